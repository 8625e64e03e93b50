"""The architecture of a BERT as a frozen dataclass."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from bert_tf.errors import UserError
from bert_tf.recipe import Settings, check_kind, setting

# Keras dtype policies that models compute in.
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")

# Layers and hidden size by name (README of google-research/bert, "smaller BERT
# models", and Devlin et al. 2019, section 3). Heads are hidden / 64 and the
# intermediate size is four times the hidden size throughout.
SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}

SIZE_HELP = (
    "architecture by name (tiny, mini, small, medium, base, large), or "
    "layers/hidden/heads such as 3/768/12"
)

# "gelu" is the tanh form, as in Google's code; "gelu_erf" is the exact form,
# which Hugging Face calls "gelu".
ACTIVATIONS = ("gelu", "gelu_erf", "relu", "tanh", "linear")

# What gets low-rank updates: the kernels of query and value, or all of a block.
QUERY_VALUE, ALL_DENSE = LORA_ON = ("query_value", "all_dense")

_LORA = ("lora_rank", "lora_alpha", "lora_on")

# A damaged file may ask for more than fits into any memory.
_MAX_LAYERS = 10_000


@dataclasses.dataclass(frozen=True)
class BertConfig(Settings):
    """Architecture of a BERT; the fields are the keys of bert_config.json.

    Those of BERT's relatives are subclasses.
    """

    # By which files tell architectures apart; BERT's do not say.
    model_type: ClassVar[str] = "bert"
    # Of the dense layer on the pooled token.
    pooler_act: ClassVar[str] = "tanh"
    # What of google-research/electra's trainings differs from BERT's: how many
    # steps of the layer-wise decay are between the head and the last block, and
    # whether the warm-up multiplies the decay.
    decay_above_blocks: ClassVar[int] = 1
    warmup_times_decay: ClassVar[bool] = False
    # Whether pre-training trains that layer, for next sentences.
    has_pooler: ClassVar[bool] = True
    # Layers and hidden size by name.
    sizes: ClassVar[Mapping[str, tuple[int, int]]] = SIZES
    # Fields that may be 0.
    _may_be_zero: ClassVar[tuple[str, ...]] = ("attention_head_size",)

    vocab_size: int = setting(
        dataclasses.MISSING, "number of WordPiece tokens, V"
    )
    hidden_size: int = setting(768, "width of the encoder, H")
    num_hidden_layers: int = setting(12, "Transformer blocks, L")
    num_attention_heads: int = setting(12, "attention heads, N")
    intermediate_size: int = setting(3072, "width of the feed-forward layer")
    hidden_act: str = setting(
        "gelu", f"feed-forward activation, one of {', '.join(ACTIVATIONS)}"
    )
    hidden_dropout_prob: float = setting(
        0.1, "dropout on embeddings and on each sub-layer's output"
    )
    attention_probs_dropout_prob: float = setting(
        0.1, "dropout on attention probabilities"
    )
    max_position_embeddings: int = setting(512, "longest input, in tokens")
    type_vocab_size: int = setting(2, "number of segments")
    initializer_range: float = setting(
        0.02, "standard deviation of the truncated normal initializer"
    )
    layer_norm_eps: float = setting(1e-12, "epsilon of layer normalisation")
    masked_lm_act: str = setting(
        "", "activation of the masked LM head; empty takes hidden_act"
    )
    masked_lm_layer_norm_eps: float = setting(
        0.0, "epsilon in the masked LM head; 0 takes layer_norm_eps"
    )
    causal: bool = setting(
        False,
        "a position attends only to itself and to earlier ones, and the "
        "pooler reads the last token, which alone sees all of them",
    )
    bilstm: bool = setting(
        False,
        "a bidirectional LSTM, half as wide in each direction, reads the last "
        "block's output; pooler and heads read what it gives",
    )
    lora_rank: int = setting(
        0,
        "rank of the low-rank updates of kernels (LoRA), which are trained in "
        "place of all else in embeddings and blocks; 0 = there are none",
    )
    lora_alpha: float = setting(
        16.0, "a low-rank update is multiplied by lora_alpha / lora_rank"
    )
    lora_on: str = setting(
        QUERY_VALUE, f"the updated kernels, one of {', '.join(LORA_ON)}"
    )
    attention_head_size: int = setting(
        0, "width of an attention head, D; 0 takes H / N"
    )

    def __post_init__(self) -> None:
        for name, kind in self.kinds().items():
            value = check_kind(name, kind, getattr(self, name), "BertConfig")
            if kind is float and not math.isfinite(value):
                raise UserError(f"{name} is {value}; it must be a number.")
            least = 0 if name in self._may_be_zero else 1
            # lora_rank has limits of its own.
            if kind is int and name != "lora_rank" and value < least:
                raise UserError(
                    f"{name} is {value}; it must be at least {least}."
                )
        if self.num_hidden_layers > _MAX_LAYERS:
            raise UserError(
                f"num_hidden_layers is {self.num_hidden_layers}; it must be "
                f"at most {_MAX_LAYERS}."
            )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise UserError(f"{name} is {value}; it must lie in [0, 1).")
        for name in ("initializer_range", "layer_norm_eps"):
            if not getattr(self, name) > 0:
                raise UserError(
                    f"{name} is {getattr(self, name)}; it must be above 0."
                )
        if self.masked_lm_layer_norm_eps < 0:
            raise UserError(
                f"masked_lm_layer_norm_eps is {self.masked_lm_layer_norm_eps}; "
                "it must be above 0, or 0 to take layer_norm_eps."
            )
        uneven = self.hidden_size % self.num_attention_heads
        if uneven and not self.attention_head_size:
            raise UserError(
                f"hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}."
            )
        if self.bilstm and self.hidden_size % 2:
            raise UserError(
                f"hidden_size {self.hidden_size} is odd, and bilstm is true: "
                "each direction takes half of it."
            )
        if not 0 <= self.lora_rank <= self.hidden_size:
            raise UserError(
                f"lora_rank is {self.lora_rank}; it must lie between 0 and "
                f"hidden_size {self.hidden_size}."
            )
        if not self.lora_alpha > 0:
            raise UserError(
                f"lora_alpha is {self.lora_alpha}; it must be above 0."
            )
        if self.lora_on not in LORA_ON:
            raise UserError(
                f"lora_on is {self.lora_on!r}; it takes one of "
                f"{', '.join(LORA_ON)}."
            )
        if self.hidden_act not in ACTIVATIONS:
            raise UserError(
                f"hidden_act is {self.hidden_act!r}; it takes one of "
                f"{', '.join(ACTIVATIONS)}."
            )
        if self.masked_lm_act not in ("", *ACTIVATIONS):
            raise UserError(
                f"masked_lm_act is {self.masked_lm_act!r}; it takes one of "
                f"{', '.join(ACTIVATIONS)}, or nothing to take hidden_act."
            )

    @property
    def embedding_size(self) -> int:
        """The width of the embeddings, E: H but in architectures that say."""
        return self.hidden_size

    @property
    def attention_size(self) -> int:
        """The width of all heads side by side, N * D."""
        if self.attention_head_size:
            return self.num_attention_heads * self.attention_head_size
        return self.hidden_size

    @property
    def pooler_dropout(self) -> float:
        """Dropout on the token that is pooled."""
        return 0.0

    @property
    def pooled_dropout(self) -> float:
        """Dropout on what classes and choices are scored by."""
        return 0.1

    @property
    def span_dropout(self) -> float:
        """Dropout on what spans are scored by."""
        return 0.0

    @property
    def segment_limit(self) -> int:
        """What segment_ids lie below; without segments none are read."""
        return self.type_vocab_size or 2

    def to_dict(self) -> dict[str, Any]:
        """The fields by name; later ones where they change something.

        Those of a BiLSTM, of LoRA and of the heads' width, so that files and
        fingerprints of other models stay what they were before there was one.
        """
        values = super().to_dict()
        if self.model_type != BertConfig.model_type:
            values = {"model_type": self.model_type, **values}
        if not self.attention_head_size:
            del values["attention_head_size"]
        if not self.bilstm:
            del values["bilstm"]
        if not self.lora_rank:
            for name in _LORA:
                del values[name]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str) -> Self:
        """Builds the configuration of the architecture that is named.

        Args:
          values: field name to value, and model_type; without it, BERT's.
          source: what the values come from, for the error line.

        Raises:
          UserError: an unknown architecture or key, a missing key, or a value
            of a wrong type.
        """
        rest = dict(values)
        name = rest.pop("model_type", BertConfig.model_type)
        named = architecture(name, source)
        # Not named.from_dict, which is this method.
        return cast(Self, super(BertConfig, named).from_dict(rest, source))

    def in_words(self, shapes: Iterable[Sequence[int]]) -> str:
        """The size of a model: its layers, heads and parameters.

        Args:
          shapes: of all its arrays.
        """
        parameters = sum(math.prod(shape) for shape in shapes)
        return (
            f"{self.num_hidden_layers} layers of {self.hidden_size}, "
            f"{self.num_attention_heads} attention heads, "
            f"{parameters:,} parameters"
        )

    def without_lora(self) -> Self:
        """The same architecture without low-rank updates."""
        return dataclasses.replace(
            self, **{name: getattr(BertConfig, name) for name in _LORA}
        )

    def of_masked_lm_head(self) -> Self:
        """The configuration with the masked LM head's own forms put in.

        They differ from the encoder's in models of KerasHub alone.
        """
        return dataclasses.replace(
            self.without_lora(),
            hidden_act=self.masked_lm_act or self.hidden_act,
            layer_norm_eps=self.masked_lm_layer_norm_eps or self.layer_norm_eps,
        )

    @classmethod
    def from_size(cls, size: str, vocab_size: int) -> Self:
        """The configuration of a size.

        Args:
          size: tiny, mini, small, medium, base or large (what `sizes` of the
            architecture has); or layers, hidden size and attention heads, such
            as 3/768/12 (Devlin et al. 2019, table 6).
          vocab_size: number of WordPiece tokens.

        Raises:
          UserError: the size is unknown, or an impossible one.
        """
        if size in cls.sizes:
            layers, hidden = cls.sizes[size]
            heads = hidden // 64
        elif re.fullmatch(r"[0-9]{1,9}(/[0-9]{1,9}){2}", size):
            layers, hidden, heads = map(int, size.split("/"))
        else:
            fault = (
                "give three whole numbers, layers/hidden/heads, such as "
                "3/768/12"
                if "/" in size
                else f"unknown size; it takes one of {', '.join(cls.sizes)}, "
                "or layers/hidden/heads, such as 3/768/12"
            )
            raise UserError(f"`size`={size}: {fault}.")
        try:
            return cls(
                vocab_size=vocab_size,
                hidden_size=hidden,
                num_hidden_layers=layers,
                num_attention_heads=heads,
                intermediate_size=4 * hidden,
            )
        except UserError as error:
            raise UserError(f"`size`={size}: {error}") from None


@dataclasses.dataclass(frozen=True)
class DistilBertConfig(BertConfig):
    """Architecture of a DistilBERT (Sanh et al. 2019, section 3).

    A BERT of half the layers without segments and pooler. Classifiers put a
    layer with ReLU in the pooler's place, so that is what ours is here.
    """

    model_type: ClassVar[str] = "distilbert"
    pooler_act: ClassVar[str] = "relu"
    has_pooler: ClassVar[bool] = False
    _may_be_zero: ClassVar[tuple[str, ...]] = (
        *BertConfig._may_be_zero,
        "type_vocab_size",
    )

    num_hidden_layers: int = setting(6, "Transformer blocks, L")
    hidden_act: str = setting(
        "gelu_erf", f"feed-forward activation, one of {', '.join(ACTIVATIONS)}"
    )
    type_vocab_size: int = setting(0, "number of segments: none")
    seq_classif_dropout: float = setting(
        0.2, "dropout on what classes and choices are scored by"
    )
    qa_dropout: float = setting(0.1, "dropout on what spans are scored by")

    @property
    def pooled_dropout(self) -> float:
        """Dropout on what classes and choices are scored by."""
        return self.seq_classif_dropout

    @property
    def span_dropout(self) -> float:
        """Dropout on what spans are scored by."""
        return self.qa_dropout

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.type_vocab_size:
            raise UserError(
                f"type_vocab_size is {self.type_vocab_size}; a distilbert has "
                "no segments, so it must be 0."
            )
        for name in ("seq_classif_dropout", "qa_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(
                    f"{name} is {getattr(self, name)}; it must lie in [0, 1)."
                )


@dataclasses.dataclass(frozen=True)
class ElectraConfig(BertConfig):
    """Architecture of an ELECTRA (Clark et al. 2020, section 3 and table 6).

    Of its discriminator or of its generator: a BERT whose embeddings may be
    narrower than its blocks, without pooler. Classifiers put a layer with GELU
    in the pooler's place, so that is what ours is here.
    """

    model_type: ClassVar[str] = "electra"
    pooler_act: ClassVar[str] = "gelu_erf"
    decay_above_blocks: ClassVar[int] = 2
    warmup_times_decay: ClassVar[bool] = True
    has_pooler: ClassVar[bool] = False
    sizes: ClassVar[Mapping[str, tuple[int, int]]] = {
        "small": (12, 256),
        "base": (12, 768),
        "large": (24, 1024),
    }
    _may_be_zero: ClassVar[tuple[str, ...]] = (
        *BertConfig._may_be_zero,
        "embedding_size",
    )

    # google-research/electra, modeling.py, gelu.
    hidden_act: str = setting(
        "gelu_erf", f"feed-forward activation, one of {', '.join(ACTIVATIONS)}"
    )
    embedding_size: int = setting(0, "width of the embeddings, E; 0 takes H")

    @property
    def pooler_dropout(self) -> float:
        """Dropout on the token that is pooled."""
        return self.hidden_dropout_prob

    @property
    def pooled_dropout(self) -> float:
        """Dropout on what classes and choices are scored by."""
        return self.hidden_dropout_prob

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.embedding_size:
            object.__setattr__(self, "embedding_size", self.hidden_size)

    def generator(self, share: float) -> Self:
        """The configuration of a generator for this discriminator.

        Clark et al. 2020, section 3.2: as deep and with the same embeddings,
        but narrower. Heads are 64 wide.

        Args:
          share: its width, of the discriminator's.

        Raises:
          UserError: no generator is that wide.
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


ARCHITECTURES: dict[str, type[BertConfig]] = {
    config.model_type: config
    for config in (BertConfig, DistilBertConfig, ElectraConfig)
}


def architecture(model_type: object, source: str) -> type[BertConfig]:
    """The configuration's class of an architecture.

    Args:
      model_type: its name.
      source: what names it, for the error.

    Raises:
      UserError: it is not known.
    """
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        raise UserError(
            f"{source}: model_type is {model_type!r}; it takes one of "
            f"{', '.join(ARCHITECTURES)}."
        )
    return ARCHITECTURES[model_type]
