"""DistilBERT (Sanh et al. 2019): its configuration and its arrays.

Names and shapes are BERT's except for those in this file. The hidden layer of
transformers' classifiers is the pooler here. Google has released no DistilBERT.
"""

import dataclasses
from collections.abc import Iterable
from typing import ClassVar

from bert_tf.architectures.bert import HUB_TABLES
from bert_tf.architectures.bert import NAMES as BERT
from bert_tf.architectures.parts import (
    CLASSIFIER,
    MASKED_LM,
    MULTIPLE_CHOICE,
    POOLER,
    SPAN,
    TOKEN_CLASSIFIER,
    Architecture,
    HuggingFaceForm,
    KerasHubForm,
    Names,
    Part,
    task_classes,
)
from bert_tf.config import ALL_DENSE, QUERY_VALUE, BertConfig
from bert_tf.recipe import setting
from bert_tf.text.wordpiece import WordPiece


@dataclasses.dataclass(frozen=True)
class DistilBertConfig(
    BertConfig, defaults={"num_hidden_layers": 6, "hidden_act": "gelu_erf"}
):
    """Configuration of a DistilBERT (Sanh et al. 2019, section 3).

    A BERT with half the layers, without segments and pooler. The pooler is the
    dense layer with ReLU of classifiers.
    """

    model_type: ClassVar[str] = "distilbert"
    title: ClassVar[str] = "DistilBERT"
    pooler_act: ClassVar[str] = "relu"
    has_pooler: ClassVar[bool] = False

    type_vocab_size: int = setting(
        0,
        "number of segments: none",
        at_least=0,
        at_most=lambda config: 0,
        why="a distilbert has no segments",
    )
    seq_classif_dropout: float = setting(
        0.2,
        "dropout on the pooled output, before classes and choices",
        at_least=0,
        below=1,
    )
    qa_dropout: float = setting(
        0.1,
        "dropout on the sequence output, before spans",
        at_least=0,
        below=1,
    )

    @property
    def pooled_dropout(self) -> float:
        """Dropout on the pooled output, before classes and choices."""
        return self.seq_classif_dropout

    @property
    def span_dropout(self) -> float:
        """Dropout on the sequence output, before spans."""
        return self.qa_dropout


_LAYER, _THEIRS = "bert/encoder/layer_{}", "distilbert.transformer.layer.{}"
_HEAD = "cls/predictions"
# transformers' names by bert_tf's, for the parts that exist.
_HUGGING_FACE = {
    "bert/embeddings/word_embeddings": "distilbert.embeddings.word_embeddings",
    "bert/embeddings/position_embeddings": (
        "distilbert.embeddings.position_embeddings"
    ),
    "bert/embeddings/LayerNorm": "distilbert.embeddings.LayerNorm",
    f"{_LAYER}/attention/self/query": f"{_THEIRS}.attention.q_lin",
    f"{_LAYER}/attention/self/key": f"{_THEIRS}.attention.k_lin",
    f"{_LAYER}/attention/self/value": f"{_THEIRS}.attention.v_lin",
    f"{_LAYER}/attention/output/dense": f"{_THEIRS}.attention.out_lin",
    f"{_LAYER}/attention/output/LayerNorm": f"{_THEIRS}.sa_layer_norm",
    f"{_LAYER}/intermediate/dense": f"{_THEIRS}.ffn.lin1",
    f"{_LAYER}/output/dense": f"{_THEIRS}.ffn.lin2",
    f"{_LAYER}/output/LayerNorm": f"{_THEIRS}.output_layer_norm",
    "bert/pooler/dense": "pre_classifier",
    f"{_HEAD}/transform/dense": "vocab_transform",
    f"{_HEAD}/transform/LayerNorm": "vocab_layer_norm",
    f"{_HEAD}/output_bias": "vocab_projector.bias",
}
# KerasHub's names that differ from BERT's.
_KERAS_HUB = {
    **HUB_TABLES,
    "bert/pooler/dense": "task/layers/dense",
}


def _renamed(parts: Iterable[Part]) -> tuple[Part, ...]:
    """BERT's parts that exist, with DistilBERT's names."""
    return tuple(
        part.renamed(
            _HUGGING_FACE[part.ours],
            _KERAS_HUB.get(part.ours, part.keras_hub),
        )
        for part in parts
        if part.ours in _HUGGING_FACE
    )


_HEADS = {
    **{head: _renamed(BERT.heads[head]) for head in (POOLER, MASKED_LM)},
    # After the layer that serves as pooler.
    CLASSIFIER: tuple(
        dataclasses.replace(part, keras_hub="task/layers/dense_1")
        for part in BERT.heads[CLASSIFIER]
    ),
    **{
        head: BERT.heads[head]
        for head in (SPAN, TOKEN_CLASSIFIER, MULTIPLE_CHOICE)
    },
}

_NAMES = Names(
    embeddings=_renamed(BERT.embeddings),
    layer=_renamed(BERT.layer),
    heads=_HEADS,
    hugging_face=HuggingFaceForm(
        body="DistilBertModel",
        prefix="distilbert.",
        # transformers 5.23.0, DistilBertConfig.
        keys={
            "vocab_size": ("vocab_size", 30522),
            "dim": ("hidden_size", 768),
            "n_layers": ("num_hidden_layers", 6),
            "n_heads": ("num_attention_heads", 12),
            "hidden_dim": ("intermediate_size", 3072),
            "activation": ("hidden_act", "gelu"),
            "dropout": ("hidden_dropout_prob", 0.1),
            "attention_dropout": ("attention_probs_dropout_prob", 0.1),
            "max_position_embeddings": ("max_position_embeddings", 512),
            "initializer_range": ("initializer_range", 0.02),
            "seq_classif_dropout": ("seq_classif_dropout", 0.2),
            "qa_dropout": ("qa_dropout", 0.1),
        },
        # Sinusoidal positions are a table in the files, too.
        fixed={
            "is_decoder": False,
            "pruned_heads": {},
            "quantization_config": None,
        },
        classes={
            "DistilBertModel": (),
            "DistilBertForMaskedLM": (MASKED_LM,),
            **task_classes("DistilBert"),
        },
        words_copy="vocab_projector.weight",
        bias="vocab_projector.bias",
        bias_copy="",
        targets={
            QUERY_VALUE: ("q_lin", "v_lin"),
            ALL_DENSE: ("q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2"),
        },
        keras_layers={
            "tf_distil_bert_main_layer": "distilbert",
            "tf_transformer_block": "{}",
        },
    ),
    keras_hub=KerasHubForm(
        backbone="DistilBertBackbone",
        arguments={
            name: argument
            for name, argument in BERT.keras_hub.arguments.items()
            if name != "num_segments"
        },
        # distil_bert_backbone.py: the exact form, and 1e-12 throughout.
        computation={"hidden_act": "gelu_erf", "layer_norm_eps": 1e-12},
        masked_lm=BERT.keras_hub.masked_lm,
        tasks=(
            "DistilBertMaskedLM",
            "DistilBertTextClassifier",
            "DistilBertClassifier",
        ),
    ),
)

DISTILBERT = Architecture(
    config=DistilBertConfig,
    names=_NAMES,
    tokenizer=WordPiece,
    encoder="bert_tf.encoders.distilbert.DistilBertEncoder",
)
