"""A Mosaic, which nobody has made: its configuration and its arrays.

Groups of blocks are run again and again, some of them see near tokens alone; no
layer has a bias, no normalisation a shift; the first token is pooled as it is.
Rows are of one segment and begin with their text; tokens are letters.
"""

import dataclasses
from typing import ClassVar

from bert_tf.architectures.parts import (
    CLASSIFIER,
    MASKED_LM,
    MULTIPLE_CHOICE,
    SPAN,
    TOKEN_CLASSIFIER,
    Architecture,
    HuggingFaceForm,
    Kind,
    Names,
    Part,
    task_classes,
)
from bert_tf.config import ALL_DENSE, QUERY_VALUE, BertConfig
from bert_tf.recipe import setting
from bert_tf.text.token_table import Packing
from tests.letters_tokenizer import END, PAD, Letters


@dataclasses.dataclass(frozen=True)
class MosaicConfig(BertConfig, defaults={"hidden_act": "gelu_erf"}):
    """Sizes of a Mosaic."""

    model_type: ClassVar[str] = "mosaic"
    has_pooler: ClassVar[bool] = False
    has_biases: ClassVar[bool] = False
    has_shifts: ClassVar[bool] = False
    first_position: ClassVar[int] = 2

    type_vocab_size: int = setting(
        0,
        "number of segments: none",
        at_least=0,
        at_most=lambda config: 0,
        why="a mosaic has no segments",
    )
    num_groups: int = setting(2, "groups of blocks", at_least=1)
    group_size: int = setting(2, "blocks of a group", at_least=1)
    windows: tuple[int, ...] = setting(
        (0, 2), "tokens to each side that layers in turn see; 0 is all"
    )

    @property
    def block_numbers(self) -> tuple[tuple[int, ...], ...]:
        """Of each layer, the numbers of its block in names of arrays."""
        size = self.group_size
        return tuple(
            divmod(layer % (self.num_groups * size), size)
            for layer in range(self.num_hidden_layers)
        )


class OneSegment(Letters):
    """Letters, in rows A <end> and A <end> B <end> of one segment."""

    packing = Packing((), (END,), (END,), 0, PAD)

    def save_json(self, folder, max_length, padded, finds_special=False):
        """No library has such a tokenizer."""
        self.save(folder)

    def notices(self, to):
        """There is nothing to know of them."""
        return []

    def save_hugging_face(self, folder, max_length):
        """See `save_json`."""
        self.save(folder)


_HIDDEN, _INNER, _WIDE = "hidden_size", "intermediate_size", "attention_size"
_OURS, _THEIRS = "mosaic/group_{}/block_{}", "mosaic.groups.{}.blocks.{}"
_LABELS = (
    (CLASSIFIER, "", None),
    (TOKEN_CLASSIFIER, "cls/token_classification/", None),
    (SPAN, "cls/squad/", 2),
    (MULTIPLE_CHOICE, "cls/multiple_choice/", 1),
)
_NAMES = Names(
    embeddings=(
        Part(
            Kind.TABLE,
            "mosaic/words",
            ("vocab_size", _HIDDEN),
            "mosaic.words",
        ),
        Part(
            Kind.TABLE,
            "mosaic/positions",
            ("max_position_embeddings", _HIDDEN),
            "mosaic.positions",
        ),
        Part(Kind.SCALE, "mosaic/norm", (_HIDDEN,), "mosaic.norm"),
    ),
    layer=tuple(
        Part(kind, f"{_OURS}/{name}", sizes, f"{_THEIRS}.{name}")
        for kind, name, sizes in (
            (Kind.KERNEL, "query", (_HIDDEN, _WIDE)),
            (Kind.KERNEL, "key", (_HIDDEN, _WIDE)),
            (Kind.KERNEL, "value", (_HIDDEN, _WIDE)),
            (Kind.KERNEL, "attended", (_WIDE, _HIDDEN)),
            (Kind.SCALE, "attention_norm", (_HIDDEN,)),
            (Kind.KERNEL, "gate", (_HIDDEN, _INNER)),
            (Kind.KERNEL, "inner", (_HIDDEN, _INNER)),
            (Kind.KERNEL, "outer", (_INNER, _HIDDEN)),
            (Kind.SCALE, "inner_norm", (_HIDDEN,)),
        )
    ),
    heads={
        MASKED_LM: (
            Part(
                Kind.KERNEL, "mosaic/lm/dense", (_HIDDEN, _HIDDEN), "lm.dense"
            ),
            Part(Kind.SCALE, "mosaic/lm/norm", (_HIDDEN,), "lm.norm"),
            Part(Kind.VECTOR, "mosaic/lm/bias", ("vocab_size",), "lm.bias"),
        ),
        **{
            head: (Part(Kind.OUTPUT, ours, (rows, _HIDDEN), f"head_{head}"),)
            for head, ours, rows in _LABELS
        },
    },
    hugging_face=HuggingFaceForm(
        body="MosaicModel",
        prefix="mosaic.",
        keys={
            field: (field, default)
            for field, default in (
                ("vocab_size", 100),
                (_HIDDEN, 768),
                ("num_hidden_layers", 12),
                ("num_attention_heads", 12),
                (_INNER, 3072),
                ("hidden_act", "gelu"),
                ("hidden_dropout_prob", 0.1),
                ("attention_probs_dropout_prob", 0.1),
                ("max_position_embeddings", 514),
                ("layer_norm_eps", 1e-12),
                ("num_groups", 2),
                ("group_size", 2),
                ("windows", [0, 2]),
            )
        },
        fixed={},
        classes={
            "MosaicModel": (),
            "MosaicForMaskedLM": (MASKED_LM,),
            **task_classes("Mosaic"),
        },
        words_copy="lm.decoder.weight",
        bias="lm.bias",
        bias_copy="",
        targets={
            QUERY_VALUE: ("query", "value"),
            ALL_DENSE: (
                *("query", "key", "value", "attended"),
                *("gate", "inner", "outer"),
            ),
        },
    ),
)
MOSAIC = Architecture(
    config=MosaicConfig,
    names=_NAMES,
    tokenizer=OneSegment,
    encoder="bert_tf.encoders.mosaic.MosaicEncoder",
)
