"""ALBERT (Lan et al. 2020): its configuration and its arrays.

Names and shapes are BERT's except for those in this file. In Google's
checkpoints `gelu` is the tanh form; transformers' files state theirs.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Self

from bert_tf.architectures.bert import KERAS_LAYERS
from bert_tf.architectures.bert import NAMES as BERT
from bert_tf.architectures.parts import (
    CLASSIFIER,
    MASKED_LM,
    MULTIPLE_CHOICE,
    NEXT_SENTENCE,
    POOLER,
    SPAN,
    TOKEN_CLASSIFIER,
    Architecture,
    HuggingFaceForm,
    KerasHubForm,
    Kind,
    Names,
    Part,
    task_classes,
)
from bert_tf.config import ALL_DENSE, QUERY_VALUE, BertConfig
from bert_tf.recipe import setting
from bert_tf.text.unigram import AlbertUnigram


@dataclasses.dataclass(frozen=True)
class AlbertConfig(
    BertConfig,
    defaults={
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
):
    """Configuration of an ALBERT (Lan et al. 2020, sections 3.1 and 4.1).

    A BERT whose embeddings are narrower than its layers and whose layers share
    the blocks of `num_hidden_groups` groups: layer l runs the blocks of group
    floor(l G / L) in sequence.
    """

    model_type: ClassVar[str] = "albert"
    title: ClassVar[str] = "ALBERT"

    sizes: ClassVar[Mapping[str, tuple[int, int]]] = {
        "base": (12, 768),
        "large": (24, 1024),
        "xlarge": (24, 2048),
        "xxlarge": (12, 4096),
    }

    embedding_size: int = setting(128, "width of the embeddings, E", at_least=1)
    num_hidden_groups: int = setting(
        1,
        "groups of blocks, G, that the layers share",
        at_least=1,
        at_most=lambda config: config.num_hidden_layers,
        why="num_hidden_layers is {num_hidden_layers}",
    )
    inner_group_num: int = setting(1, "blocks of a group", at_least=1)

    @property
    def block_numbers(self) -> tuple[tuple[int, ...], ...]:
        """The group and the number inside it of each block, in sequence."""
        layers, groups = self.num_hidden_layers, self.num_hidden_groups
        return tuple(
            (layer * groups // layers, inner)
            for layer in range(layers)
            for inner in range(self.inner_group_num)
        )

    @classmethod
    def from_size(cls, size: str, vocab_size: int) -> Self:
        """The configuration of a size, as `BertConfig.from_size`.

        "xlarge" has 16 attention heads.
        """
        config = super().from_size(size, vocab_size)
        if size == "xlarge":
            return dataclasses.replace(config, num_attention_heads=16)
        return config


_GROUP = "bert/encoder/transformer/group_{}/inner_group_{}"
_THEIRS = "albert.encoder.albert_layer_groups.{}.albert_layers.{}"
# Of the parts of BERT's layer, in order.
_LAYER = (
    ("attention_1/self/query", "attention.query"),
    ("attention_1/self/key", "attention.key"),
    ("attention_1/self/value", "attention.value"),
    ("attention_1/output/dense", "attention.dense"),
    ("LayerNorm", "attention.LayerNorm"),
    ("ffn_1/intermediate/dense", "ffn"),
    ("ffn_1/intermediate/output/dense", "ffn_output"),
    ("LayerNorm_1", "full_layer_layer_norm"),
)
_HEADS = {
    POOLER: ("albert.pooler",),
    MASKED_LM: (
        "predictions.dense",
        "predictions.LayerNorm",
        "predictions.bias",
    ),
    NEXT_SENTENCE: ("sop_classifier.classifier",),
    CLASSIFIER: ("classifier",),
    SPAN: ("qa_outputs",),
    TOKEN_CLASSIFIER: ("classifier",),
    MULTIPLE_CHOICE: ("classifier",),
}


# KerasHub's names that differ from BERT's.
_HUB = {"bert/pooler/dense": "model/layers/dense_1"}


def _named(part: Part, theirs: str, ours: str = "") -> Part:
    renamed = part.renamed(theirs, _HUB.get(part.ours, part.keras_hub))
    return dataclasses.replace(renamed, ours=ours or part.ours)


NAMES = Names(
    google_config="albert_config.json",
    embeddings=tuple(
        _named(part, part.hugging_face.replace("bert.", "albert.", 1))
        for part in BERT.embeddings
    ),
    embeddings_project=(
        Part(
            Kind.DENSE,
            "bert/encoder/embedding_hidden_mapping_in",
            ("embedding_size", "hidden_size"),
            "albert.encoder.embedding_hidden_mapping_in",
            keras_hub="model/layers/dense",
        ),
    ),
    layer=tuple(
        _named(part, f"{_THEIRS}.{theirs}", f"{_GROUP}/{ours}")
        for part, (ours, theirs) in zip(BERT.layer, _LAYER, strict=True)
    ),
    heads={
        head: tuple(map(_named, BERT.heads[head], names))
        for head, names in _HEADS.items()
    },
    hugging_face=HuggingFaceForm(
        body="AlbertModel",
        prefix="albert.",
        projects=True,
        # transformers 5.23.0, AlbertConfig.
        keys={
            **BERT.hugging_face.keys,
            "vocab_size": ("vocab_size", 30000),
            "embedding_size": ("embedding_size", 128),
            "hidden_size": ("hidden_size", 4096),
            "num_hidden_groups": ("num_hidden_groups", 1),
            "num_attention_heads": ("num_attention_heads", 64),
            "intermediate_size": ("intermediate_size", 16384),
            "inner_group_num": ("inner_group_num", 1),
            "hidden_act": ("hidden_act", "gelu_new"),
            "hidden_dropout_prob": ("hidden_dropout_prob", 0.0),
            "attention_probs_dropout_prob": (
                "attention_probs_dropout_prob",
                0.0,
            ),
        },
        fixed=BERT.hugging_face.fixed,
        classes={
            "AlbertModel": (),
            "AlbertForPreTraining": (MASKED_LM, NEXT_SENTENCE),
            "AlbertForMaskedLM": (MASKED_LM,),
            **task_classes("Albert"),
        },
        words_copy="predictions.decoder.weight",
        bias="predictions.bias",
        bias_copy="predictions.decoder.bias",
        targets={
            QUERY_VALUE: ("query", "value"),
            ALL_DENSE: (
                *("query", "key", "value", "attention.dense"),
                *("ffn", "ffn_output"),
            ),
        },
        keras_layers={
            "tf_albert_main_layer": "albert",
            "tf_albert_layer_group": "{}",
            "tf_albert_layer": "{}",
            **KERAS_LAYERS,
        },
    ),
    keras_hub=KerasHubForm(
        backbone="AlbertBackbone",
        arguments={
            **BERT.keras_hub.arguments,
            "embedding_dim": (int, ("embedding_size",)),
            "num_groups": (int, ("num_hidden_groups",)),
            "num_inner_repetitions": (int, ("inner_group_num",)),
        },
        # albert_backbone.py: gelu_approximate and 1e-12 throughout.
        computation={"hidden_act": "gelu", "layer_norm_eps": 1e-12},
        # albert_masked_lm.py, masked_lm_head.py: the default epsilon.
        masked_lm={"masked_lm_layer_norm_eps": 1e-5},
        tasks=("AlbertMaskedLM", "AlbertTextClassifier", "AlbertClassifier"),
    ),
)
ALBERT = Architecture(
    config=AlbertConfig,
    names=NAMES,
    tokenizer=AlbertUnigram,
    encoder="bert_tf.encoders.albert.AlbertEncoder",
)
