"""BERT on TensorFlow and Keras 3.

Names are loaded when first used, so that `import bert_tf` alone pulls in
neither TensorFlow nor Keras.
"""

import importlib

from bert_tf import keras_files

_HOME = {
    "BertConfig": "bert_tf.config",
    "BertEncoder": "bert_tf.encoder",
    "BertPretrainer": "bert_tf.pretraining.pretrainer",
    "BertTokenizer": "bert_tf.text.tokenizer",
    "Checkpoint": "bert_tf.checkpoints",
    "SentencePacker": "bert_tf.text.packer",
    "Vocabulary": "bert_tf.text.vocabulary",
    "UserError": "bert_tf.errors",
    "adamw": "bert_tf.optimization",
    "bert_classifier": "bert_tf.models",
    "bert_multiple_choice": "bert_tf.models",
    "bert_span_labeler": "bert_tf.models",
    "bert_token_classifier": "bert_tf.models",
    "embed": "bert_tf.extraction.embed",
    "export_saved_model": "bert_tf.serving.export",
    "fill_mask": "bert_tf.pretraining.fill_mask",
    "lamb": "bert_tf.optimization",
    "load_checkpoint": "bert_tf.checkpoints",
    "model_arrays": "bert_tf.models",
    "restore": "bert_tf.models",
    "save_checkpoint": "bert_tf.checkpoints",
    "train_vocab": "bert_tf.text.vocabulary_trainer",
}

__all__ = sorted(_HOME)  # noqa: PLE0604
__version__ = "0.1.0"

keras_files.register_with_keras()


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'bert_tf' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
