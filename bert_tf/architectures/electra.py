"""ELECTRA (Clark et al. 2020): its configuration and its arrays.

Of a discriminator or a generator. Names and shapes are BERT's except for those
in this file; those of the discriminator's head are Google's. The hidden layer
of transformers' classifiers is the pooler here. In Google's checkpoints the
arrays of the generator begin with generator/ instead of electra/; see
`checkpoints/google_tf1.py`.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import ClassVar, Self

from bert_tf.architectures.bert import KERAS_LAYERS
from bert_tf.architectures.bert import NAMES as BERT
from bert_tf.architectures.parts import (
    CLASSIFIER,
    MASKED_LM,
    MULTIPLE_CHOICE,
    POOLER,
    REPLACED_TOKENS,
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
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.recipe import setting
from bert_tf.text.wordpiece import WordPiece


@dataclasses.dataclass(frozen=True)
class ElectraConfig(BertConfig, defaults={"hidden_act": "gelu_erf"}):
    """Configuration of an ELECTRA (Clark et al. 2020, section 3, table 6).

    Of a discriminator or a generator: a BERT without a pooler whose embeddings
    may be narrower than its blocks. The pooler is the dense layer with GELU of
    classifiers.
    """

    model_type: ClassVar[str] = "electra"
    title: ClassVar[str] = "ELECTRA"
    pooler_act: ClassVar[str] = "gelu_erf"
    decay_above_blocks: ClassVar[int] = 2
    warmup_times_decay: ClassVar[bool] = True
    has_pooler: ClassVar[bool] = False
    drops_pooled: ClassVar[bool] = True
    sizes: ClassVar[Mapping[str, tuple[int, int]]] = {
        "small": (12, 256),
        "base": (12, 768),
        "large": (24, 1024),
    }

    embedding_size: int = setting(
        0, "width of the embeddings, E; 0 means H", at_least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.embedding_size:
            object.__setattr__(self, "embedding_size", self.hidden_size)

    def generator(self, share: float) -> Self:
        """Derives the configuration of a generator for this discriminator.

        Clark et al. 2020, section 3.2: as deep and with the same embeddings,
        but narrower. The width of heads is 64.

        Args:
          share: its width as a fraction of the discriminator's.

        Raises:
          UserError: the width is invalid.
        """
        width = round(share * self.hidden_size)
        heads = max(1, width // 64)
        try:
            return dataclasses.replace(
                self,
                hidden_size=width,
                num_attention_heads=heads,
                attention_head_size=0,
                intermediate_size=4 * width,
            )
        except UserError as error:
            raise UserError(
                f"`generator_size`={share}: of a hidden_size of "
                f"{self.hidden_size} it makes {width}: {error}"
            ) from None

    @classmethod
    def from_size(cls, size: str, vocab_size: int) -> Self:
        """The configuration of a size, as `BertConfig.from_size`.

        "small" has embeddings of width 128.
        """
        config = super().from_size(size, vocab_size)
        if size == "small":
            return dataclasses.replace(config, embedding_size=128)
        return config


def _body(parts: Iterable[Part]) -> tuple[Part, ...]:
    """BERT's parts with ELECTRA's names."""
    return tuple(
        part.renamed(
            part.hugging_face.replace("bert.", "electra.", 1),
            part.keras_hub,
            part.ours.replace("bert/", "electra/", 1),
        )
        for part in parts
    )


def _head(
    head: str, *hugging_face: str, google_tf1: tuple[str, ...] = ()
) -> tuple[Part, ...]:
    """The parts of a head of BERT with ELECTRA's names."""
    return tuple(
        part.renamed(theirs, google_tf1=googles)
        for part, theirs, googles in zip(
            BERT.heads[head],
            hugging_face,
            google_tf1 or ("",) * len(hugging_face),
            strict=True,
        )
    )


_HIDDEN = "hidden_size"
_HEADS = {
    POOLER: _head(POOLER, "classifier.dense"),
    MASKED_LM: _head(
        MASKED_LM,
        "generator_predictions.dense",
        "generator_predictions.LayerNorm",
        "generator_lm_head.bias",
        google_tf1=(
            "generator_predictions/dense",
            "generator_predictions/LayerNorm",
            "generator_predictions/output_bias",
        ),
    ),
    REPLACED_TOKENS: tuple(
        Part(
            Kind.DENSE,
            name,
            (_HIDDEN, size),
            theirs,
            google_tf1=name,
        )
        for name, size, theirs in (
            (
                "discriminator_predictions/dense",
                _HIDDEN,
                "discriminator_predictions.dense",
            ),
            (
                "discriminator_predictions/dense_1",
                1,
                "discriminator_predictions.dense_prediction",
            ),
        )
    ),
    CLASSIFIER: _head(CLASSIFIER, "classifier.out_proj"),
    SPAN: _head(SPAN, "qa_outputs"),
    TOKEN_CLASSIFIER: _head(TOKEN_CLASSIFIER, "classifier"),
    MULTIPLE_CHOICE: _head(MULTIPLE_CHOICE, "classifier"),
}

_NAMES = Names(
    embeddings=_body(BERT.embeddings),
    embeddings_project=(
        Part(
            Kind.DENSE,
            "bert/embeddings_project",
            ("embedding_size", _HIDDEN),
            "electra.embeddings_project",
            keras_hub="model/layers/dense",
            google_tf1="electra/embeddings_project",
        ),
    ),
    layer=_body(BERT.layer),
    heads=_HEADS,
    hugging_face=HuggingFaceForm(
        body="ElectraModel",
        prefix="electra.",
        # transformers 5.23.0, ElectraConfig.
        keys={
            **BERT.hugging_face.keys,
            "embedding_size": ("embedding_size", 128),
            "hidden_size": (_HIDDEN, 256),
            "num_attention_heads": ("num_attention_heads", 4),
            "intermediate_size": ("intermediate_size", 1024),
        },
        # The summary is the pooler of multiple choice.
        fixed={
            **BERT.hugging_face.fixed,
            "summary_type": "first",
            "summary_use_proj": True,
            "summary_activation": "gelu",
            "summary_proj_to_labels": False,
        },
        classes={
            "ElectraModel": (),
            "ElectraForPreTraining": (REPLACED_TOKENS,),
            "ElectraForMaskedLM": (MASKED_LM,),
            **task_classes("Electra"),
        },
        words_copy="generator_lm_head.weight",
        bias="generator_lm_head.bias",
        bias_copy="",
        targets=BERT.hugging_face.targets,
        poolers={MULTIPLE_CHOICE: "sequence_summary.summary"},
        masked_lm_act="gelu_erf",
        keras_layers={
            "tf_electra_main_layer": "electra",
            "tf_electra_layer": "{}",
            "tf_electra_classification_head": "classifier",
            "tf_electra_discriminator_predictions": "discriminator_predictions",
            "tf_electra_generator_predictions": "generator_predictions",
            "tf_electra_masked_lm_head": "generator_lm_head",
            "tf_sequence_summary": "sequence_summary",
            **KERAS_LAYERS,
        },
    ),
    keras_hub=KerasHubForm(
        backbone="ElectraBackbone",
        arguments={
            **{
                name: argument
                for name, argument in BERT.keras_hub.arguments.items()
                if name != "vocabulary_size"
            },
            "vocab_size": (int, ("vocab_size",)),
            "embedding_dim": (int, ("embedding_size",)),
        },
        # electra_backbone.py: the tanh form, unlike Google's, and 1e-12.
        computation={"hidden_act": "gelu", "layer_norm_eps": 1e-12},
        tasks=(),
        # Its pooler with tanh, which no ELECTRA was trained with: the second
        # Dense, or the first if E is H.
        unread=r"model/layers/dense(_1)?/vars/[01]",
    ),
)

ELECTRA = Architecture(
    config=ElectraConfig,
    names=_NAMES,
    tokenizer=WordPiece,
    encoder="bert_tf.encoders.electra.ElectraEncoder",
)
