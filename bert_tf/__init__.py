"""BERT on TensorFlow and Keras 3.

Names are loaded when first used, so that `import bert_tf` alone pulls in
neither TensorFlow nor Keras.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bert_tf.architectures.distilbert import DistilBertConfig
    from bert_tf.architectures.electra import ElectraConfig
    from bert_tf.checkpoints import (
        Checkpoint,
        load_checkpoint,
        load_tokenizer,
        save_checkpoint,
    )
    from bert_tf.config import BertConfig
    from bert_tf.conversion.convert import convert
    from bert_tf.corpora.vocabulary import train_vocab
    from bert_tf.encoders import BertEncoder, load_encoder
    from bert_tf.encoders.distilbert import DistilBertEncoder
    from bert_tf.encoders.electra import ElectraEncoder
    from bert_tf.errors import UserError
    from bert_tf.finetuned import FinetuningRun, finetune
    from bert_tf.inference.embed import embed
    from bert_tf.inference.export import export_saved_model
    from bert_tf.inference.export_model import export
    from bert_tf.inference.fill_mask import fill_mask
    from bert_tf.inference.load import LoadedModel, load
    from bert_tf.inference.mteb_models import mteb_model
    from bert_tf.inference.predict import predict
    from bert_tf.inference.retrieval import evaluate_retrieval
    from bert_tf.inference.search import search
    from bert_tf.inference.text_classifier import TextClassifier
    from bert_tf.models import (
        bert_classifier,
        bert_multiple_choice,
        bert_span_labeler,
        bert_token_classifier,
        model_arrays,
        replaced_token_detector,
        restore,
    )
    from bert_tf.optimization import adamw, lamb, stable_adamw
    from bert_tf.pretraining.electra import ElectraPretrainer
    from bert_tf.pretraining.pretrainer import BertPretrainer
    from bert_tf.pretraining.run import pretrain
    from bert_tf.records.build import create_records
    from bert_tf.text.layout import SentencePacker
    from bert_tf.text.tokenizer import BertTokenizer
    from bert_tf.text.vocabulary import Vocabulary

_HOME = {
    "BertConfig": "bert_tf.config",
    "BertEncoder": "bert_tf.encoders",
    "BertPretrainer": "bert_tf.pretraining.pretrainer",
    "BertTokenizer": "bert_tf.text.tokenizer",
    "Checkpoint": "bert_tf.checkpoints",
    "DistilBertConfig": "bert_tf.architectures.distilbert",
    "DistilBertEncoder": "bert_tf.encoders.distilbert",
    "ElectraConfig": "bert_tf.architectures.electra",
    "ElectraEncoder": "bert_tf.encoders.electra",
    "ElectraPretrainer": "bert_tf.pretraining.electra",
    "FinetuningRun": "bert_tf.finetuned",
    "LoadedModel": "bert_tf.inference.load",
    "SentencePacker": "bert_tf.text.layout",
    "TextClassifier": "bert_tf.inference.text_classifier",
    "Vocabulary": "bert_tf.text.vocabulary",
    "UserError": "bert_tf.errors",
    "adamw": "bert_tf.optimization",
    "bert_classifier": "bert_tf.models",
    "bert_multiple_choice": "bert_tf.models",
    "bert_span_labeler": "bert_tf.models",
    "bert_token_classifier": "bert_tf.models",
    "convert": "bert_tf.conversion.convert",
    "create_records": "bert_tf.records.build",
    "embed": "bert_tf.inference.embed",
    "evaluate_retrieval": "bert_tf.inference.retrieval",
    "export": "bert_tf.inference.export_model",
    "export_saved_model": "bert_tf.inference.export",
    "fill_mask": "bert_tf.inference.fill_mask",
    "finetune": "bert_tf.finetuned",
    "lamb": "bert_tf.optimization",
    "load": "bert_tf.inference.load",
    "load_checkpoint": "bert_tf.checkpoints",
    "load_encoder": "bert_tf.encoders",
    "load_tokenizer": "bert_tf.checkpoints",
    "model_arrays": "bert_tf.models",
    "mteb_model": "bert_tf.inference.mteb_models",
    "predict": "bert_tf.inference.predict",
    "pretrain": "bert_tf.pretraining.run",
    "replaced_token_detector": "bert_tf.models",
    "restore": "bert_tf.models",
    "save_checkpoint": "bert_tf.checkpoints",
    "search": "bert_tf.inference.search",
    "stable_adamw": "bert_tf.optimization",
    "train_vocab": "bert_tf.corpora.vocabulary",
}

# A type checker reads the imports above and this list, and no table.
__all__ = [
    "BertConfig",
    "BertEncoder",
    "BertPretrainer",
    "BertTokenizer",
    "Checkpoint",
    "DistilBertConfig",
    "DistilBertEncoder",
    "ElectraConfig",
    "ElectraEncoder",
    "ElectraPretrainer",
    "FinetuningRun",
    "LoadedModel",
    "SentencePacker",
    "TextClassifier",
    "UserError",
    "Vocabulary",
    "adamw",
    "bert_classifier",
    "bert_multiple_choice",
    "bert_span_labeler",
    "bert_token_classifier",
    "convert",
    "create_records",
    "embed",
    "evaluate_retrieval",
    "export",
    "export_saved_model",
    "fill_mask",
    "finetune",
    "lamb",
    "load",
    "load_checkpoint",
    "load_encoder",
    "load_tokenizer",
    "model_arrays",
    "mteb_model",
    "predict",
    "pretrain",
    "replaced_token_detector",
    "restore",
    "save_checkpoint",
    "search",
    "stable_adamw",
    "train_vocab",
]
__version__ = "0.1.0"

# A type checker would allow any name, and an editor show what is imported.
if not TYPE_CHECKING:
    import importlib

    from bert_tf import keras_files
    from bert_tf.libraries import quiet_start

    keras_files.register_with_keras()

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'bert_tf' has no attribute {name!r}")
        with quiet_start():
            module = importlib.import_module(_HOME[name])
        value = getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
