"""The architecture of a BERT as a frozen dataclass."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from bert_tf.architecture_list import find_architecture
from bert_tf.errors import UserError
from bert_tf.recipe import Settings, check_kind, setting

# Keras dtype policies that models compute in.
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
# What vectors of texts are stored in: floats, a byte or a bit per number. As
# sentence-transformers 6.2, util/quantization.py.
FLOAT32, INT8, UINT8, BINARY, UBINARY = VECTOR_PRECISIONS = (
    *("float32", "int8", "uint8", "binary", "ubinary"),
)
# How learning rates decay.
LINEAR, ONE_MINUS_SQRT = DECAY_SHAPES = ("linear", "one_minus_sqrt")
# What computes the network of a model for inference; see `libraries.py`.
KERAS, AUTO = "keras", "auto"
PRECISION_HELP = (
    "float32, mixed_bfloat16 or mixed_float16; auto is mixed_bfloat16 on a CPU "
    "that has it, if the first of more than 256 rows keep their answers, and "
    "else float32"
)

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

# How the vectors of a row's tokens become one, by the names of
# sentence-transformers.
CLS, MAX, MEAN = "cls", "max", "mean"
MEAN_SQRT_LEN, WEIGHTED_MEAN = "mean_sqrt_len_tokens", "weightedmean"
LAST_TOKEN = "lasttoken"
POOLINGS = (CLS, MAX, MEAN, MEAN_SQRT_LEN, WEIGHTED_MEAN, LAST_TOKEN)
# What the pooler of a classifier reads: the first token or the mean of all.
CLASSIFIER_POOLINGS = (CLS, MEAN)
# The vector of a text: also by the modules of the model's folder or by the
# model's pooler. Or there is one of each token.
POOLED, PER_TOKEN = "pooled", "none"
TEXT_POOLINGS = (AUTO, MEAN, CLS, MAX, POOLED)

_LORA = ("lora_rank", "lora_alpha", "lora_on")

# Protects against damaged files.
_MAX_LAYERS = 10_000


@dataclasses.dataclass(frozen=True)
class BertConfig(Settings):
    """Configuration of a BERT; the fields are the keys of bert_config.json.

    Other architectures have subclasses; see `bert_tf.architectures`.
    """

    # The architecture in files; BERT's files omit it.
    model_type: ClassVar[str] = "bert"
    # The name of the architecture in text.
    title: ClassVar[str] = "BERT"
    # The activation of the dense layer on the pooled token.
    pooler_act: ClassVar[str] = "tanh"
    # The training of google-research/electra differs from BERT's in the number
    # of layer-wise decay steps between head and last block, and in whether the
    # warm-up multiplies the decay.
    decay_above_blocks: ClassVar[int] = 1
    warmup_times_decay: ClassVar[bool] = False
    # Whether pre-training trains the pooler, by next sentence prediction.
    has_pooler: ClassVar[bool] = True
    # Whether hidden_dropout_prob applies before and after the pooler.
    drops_pooled: ClassVar[bool] = False
    # Whether dense layers have a bias and layer norms a beta.
    has_biases: ClassVar[bool] = True
    has_shifts: ClassVar[bool] = True
    # The row of the position table for the first token.
    first_position: ClassVar[int] = 0
    # Whether the architecture's files state the pooling.
    states_pooling: ClassVar[bool] = False
    # Layers and hidden size by name.
    sizes: ClassVar[Mapping[str, tuple[int, int]]] = SIZES

    vocab_size: int = setting(
        dataclasses.MISSING, "number of WordPiece tokens, V", at_least=1
    )
    hidden_size: int = setting(768, "width of the encoder, H", at_least=1)
    num_hidden_layers: int = setting(
        12, "Transformer blocks, L", at_least=1, at_most=_MAX_LAYERS
    )
    num_attention_heads: int = setting(12, "attention heads, N", at_least=1)
    intermediate_size: int = setting(
        3072, "width of the feed-forward layer", at_least=1
    )
    hidden_act: str = setting(
        "gelu",
        f"feed-forward activation, one of {', '.join(ACTIVATIONS)}",
        choices=ACTIVATIONS,
    )
    hidden_dropout_prob: float = setting(
        0.1,
        "dropout on embeddings and on each sub-layer's output",
        at_least=0,
        below=1,
    )
    attention_probs_dropout_prob: float = setting(
        0.1, "dropout on attention probabilities", at_least=0, below=1
    )
    max_position_embeddings: int = setting(
        512, "rows of the position table", at_least=1
    )
    type_vocab_size: int = setting(2, "number of segments", at_least=1)
    initializer_range: float = setting(
        0.02, "standard deviation of the truncated normal initializer", above=0
    )
    layer_norm_eps: float = setting(
        1e-12, "epsilon of layer normalisation", above=0
    )
    masked_lm_act: str = setting(
        "",
        "activation of the masked LM head; empty means hidden_act",
        choices=("", *ACTIVATIONS),
    )
    masked_lm_layer_norm_eps: float = setting(
        0.0,
        "epsilon in the masked LM head; 0 means layer_norm_eps",
        at_least=0,
    )
    causal: bool = setting(
        False,
        "a position attends only to itself and to earlier ones, and the "
        "pooler reads the last token, the only one that attends to all",
    )
    bilstm: bool = setting(
        False,
        "a bidirectional LSTM, half as wide in each direction, reads the last "
        "block's output; pooler and heads read its output",
    )
    classifier_pooling: str = setting(
        CLS,
        "what the pooler reads: cls, the first token of a sequence, or mean, "
        "the mean of its tokens",
        choices=CLASSIFIER_POOLINGS,
    )
    lora_rank: int = setting(
        0,
        "rank of the low-rank updates of kernels (LoRA), the only trained "
        "weights in embeddings and blocks; 0 = no updates",
        at_least=0,
        at_most=lambda config: config.hidden_size,
        why="hidden_size is {hidden_size}",
    )
    lora_alpha: float = setting(
        16.0,
        "a low-rank update is multiplied by lora_alpha / lora_rank",
        above=0,
    )
    lora_on: str = setting(
        QUERY_VALUE,
        f"the updated kernels, one of {', '.join(LORA_ON)}",
        choices=LORA_ON,
    )
    attention_head_size: int = setting(
        0, "width of an attention head, D; 0 means H / N", at_least=0
    )

    def __post_init__(self) -> None:
        for name, kind in self.kinds().items():
            value = check_kind(name, kind, getattr(self, name), "BertConfig")
            if isinstance(value, tuple):
                object.__setattr__(self, name, value)
        super().__post_init__()
        heads, hidden = self.num_attention_heads, self.hidden_size
        self._check(
            "hidden_size",
            bool(self.attention_head_size) or hidden % heads == 0,
            f"a multiple of num_attention_heads {heads}",
        )
        self._check(
            "hidden_size",
            not self.bilstm or hidden % 2 == 0,
            "an even number where bilstm is true: each direction takes half",
        )

    @property
    def longest_input(self) -> int:
        """The maximum number of tokens in a row."""
        return self.max_position_embeddings - self.first_position

    @property
    def block_numbers(self) -> tuple[tuple[int, ...], ...]:
        """For each layer, the numbers of its block in array names.

        Layers with the same numbers share a block.
        """
        return tuple((layer,) for layer in range(self.num_hidden_layers))

    @property
    def num_blocks(self) -> int:
        """The blocks that a token passes, of which each has hidden states."""
        return len(self.block_numbers)

    @property
    def shares_blocks(self) -> bool:
        """Whether several layers have the same weights."""
        return len(set(self.block_numbers)) < self.num_blocks

    @property
    def embedding_size(self) -> int:
        """The width of the embeddings, E; H in a BERT."""
        return self.hidden_size

    @property
    def attention_size(self) -> int:
        """The width of all heads, N * D."""
        if self.attention_head_size:
            return self.num_attention_heads * self.attention_head_size
        return self.hidden_size

    @property
    def pooler_dropout(self) -> float:
        """Dropout on the input of the pooler."""
        return self.hidden_dropout_prob if self.drops_pooled else 0.0

    @property
    def pooled_dropout(self) -> float:
        """Dropout on the pooled output, before classes and choices."""
        return self.hidden_dropout_prob if self.drops_pooled else 0.1

    @property
    def span_dropout(self) -> float:
        """Dropout on the sequence output, before spans."""
        return 0.0

    @property
    def segment_limit(self) -> int:
        """The exclusive upper bound of segment_ids."""
        return self.type_vocab_size or 2

    def to_dict(self) -> dict[str, Any]:
        """The fields by name.

        Those of a BiLSTM, of LoRA, of the heads' width and of the pooling are
        omitted if unused, so that files and fingerprints of other models do not
        change.
        """
        values = super().to_dict()
        if self.model_type != BertConfig.model_type:
            values = {"model_type": self.model_type, **values}
        if not self.attention_head_size:
            del values["attention_head_size"]
        if not self.bilstm:
            del values["bilstm"]
        if self.classifier_pooling == CLS and not self.states_pooling:
            del values["classifier_pooling"]
        if not self.lora_rank:
            for name in _LORA:
                del values[name]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str) -> Self:
        """Builds the configuration of the architecture in model_type.

        Args:
          values: field name to value, and model_type, by default BERT's.
          source: the origin of the values, for errors.

        Raises:
          UserError: an unknown architecture or key, a missing key, or a value
            of a wrong type.
        """
        rest = dict(values)
        name = rest.pop("model_type", BertConfig.model_type)
        named = find_architecture(name, source).config
        # Not named.from_dict, which is this method.
        return cast(Self, super(BertConfig, named).from_dict(rest, source))

    def in_words(self, shapes: Iterable[Sequence[int]]) -> str:
        """Describes the size of a model: its layers, heads and parameters.

        Args:
          shapes: the shapes of all its arrays.
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
        """The configuration of the layers of the masked LM head.

        It differs from the encoder's only in models of KerasHub.
        """
        return dataclasses.replace(
            self.without_lora(),
            hidden_act=self.masked_lm_act or self.hidden_act,
            layer_norm_eps=self.masked_lm_layer_norm_eps or self.layer_norm_eps,
        )

    @classmethod
    def from_size(cls, size: str, vocab_size: int) -> Self:
        """Builds the configuration of a size.

        Args:
          size: tiny, mini, small, medium, base or large (a key of `sizes` of
            the architecture); or layers, hidden size and attention heads, such
            as 3/768/12 (Devlin et al. 2019, table 6).
          vocab_size: number of WordPiece tokens.

        Raises:
          UserError: the size is unknown or invalid.
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
