"""The data types of architectures."""

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any

from bert_tf.config import BertConfig
from bert_tf.family_list import FAMILIES
from bert_tf.text.tokenizer_protocol import TokenizerData

# None is a size that is not in the configuration (the labels of a head).
Shape = tuple[int | None, ...]
Shapes = dict[str, Shape]

POOLER = "pooler"
MASKED_LM = "masked_lm"
NEXT_SENTENCE = "next_sentence"
CLASSIFIER = "classifier"
SPAN = "span"
TOKEN_CLASSIFIER = "token_classifier"
MULTIPLE_CHOICE = "multiple_choice"
# The head of an ELECTRA's discriminator.
REPLACED_TOKENS = "replaced_tokens"
# Between the encoder and the other heads, if `bilstm` is true.
BILSTM = "bilstm"
# Low-rank updates of the encoder's kernels, if `lora_rank` is not 0.
LORA = "lora"
# Heads of fine-tuned models.
TASK_HEADS = FAMILIES.keys()
# Heads whose outputs have labels.
LABELLED_HEADS = (CLASSIFIER, TOKEN_CLASSIFIER)

# Heads on the pooled output.
HEADS_ON_POOLER = (NEXT_SENTENCE, CLASSIFIER, MULTIPLE_CHOICE)


class Kind(enum.Enum):
    """The kinds of parts, by their arrays."""

    TABLE = enum.auto()
    VECTOR = enum.auto()
    DENSE = enum.auto()
    # A dense layer without a bias.
    KERNEL = enum.auto()
    NORM = enum.auto()
    # A layer norm without a beta.
    SCALE = enum.auto()
    # One direction, with the gates i, f, c and o concatenated, as in Keras.
    LSTM = enum.auto()
    # The update of a kernel [in, out]: [in, rank] and [rank, out].
    LOW_RANK = enum.auto()
    # The last layer of a head.
    OUTPUT = enum.auto()


# The suffixes of bert_tf's names of the arrays, in order.
_ENDS = {
    Kind.TABLE: ("",),
    Kind.VECTOR: ("",),
    Kind.DENSE: ("/kernel", "/bias"),
    Kind.KERNEL: ("/kernel",),
    Kind.NORM: ("/gamma", "/beta"),
    Kind.SCALE: ("/gamma",),
    Kind.LSTM: ("/kernel", "/recurrent_kernel", "/bias"),
    Kind.LOW_RANK: ("/lora_a", "/lora_b"),
    Kind.OUTPUT: ("output_weights", "output_bias"),
}


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a model and its names in all families of checkpoints.

    {} in a name stands for a number of a layer's block.

    Attributes:
      kind: the kind of its arrays.
      ours: the prefix of bert_tf's names of its arrays.
      sizes: of its first array, [rows, width], [in, out], [labels, in] or
        [width]: attributes of `BertConfig`, numbers, or None. Those of an LSTM
        follow from hidden_size.
      hugging_face: the name in transformers.
      model_garden: the attributes from an object of Model Garden to the layer;
        empty if there is none.
      keras_hub: the path in KerasHub's files, model/ or task/; empty if there
        is none.
      google_tf1: the name in Google's TF1 checkpoints of other architectures
        than BERT, whose names are `ours`; empty if there is none.
      in_first: whether the first layer has the part.
    """

    kind: Kind
    ours: str
    sizes: tuple[str | int | None, ...]
    hugging_face: str
    model_garden: str = ""
    keras_hub: str = ""
    google_tf1: str = ""
    in_first: bool = True

    def of_block(self, numbers: tuple[int, ...], place: int) -> "Part":
        """Fills in the numbers of a block; see `BertConfig.block_numbers`.

        `place` is the number of the block among all blocks.
        """
        return dataclasses.replace(
            self,
            ours=self.ours.format(*numbers),
            hugging_face=self.hugging_face.format(*numbers),
            model_garden=self.model_garden.format(*numbers),
            keras_hub=self.keras_hub.format(f"_{place}" if place else ""),
            google_tf1=self.google_tf1.format(*numbers),
        )

    def by_attention_head(self, shape: Shape, config: BertConfig) -> Shape:
        """Splits the attention axis of an array's shape into [N, D].

        Model Garden and KerasHub store query, key, value and the attention's
        output with this shape.
        """
        heads = config.num_attention_heads
        split = (heads, config.attention_size // heads)
        # A bias has the last axis of its kernel.
        axes = zip(shape, self.sizes[-len(shape) :], strict=True)
        parts = (split if of == "attention_size" else (n,) for n, of in axes)
        return tuple(size for part in parts for size in part)

    def renamed(
        self, hugging_face: str, keras_hub: str = "", google_tf1: str = ""
    ) -> "Part":
        """The part with the names of another architecture."""
        return dataclasses.replace(
            self,
            hugging_face=hugging_face,
            model_garden="",
            keras_hub=keras_hub,
            google_tf1=google_tf1,
        )

    def low_rank(self) -> "Part":
        """The low-rank update of its kernel."""
        return dataclasses.replace(self, kind=Kind.LOW_RANK)

    def shapes(self, config: BertConfig) -> Shapes:
        """The names and shapes of the part's arrays, weights first."""
        names = [self.ours + end for end in _ENDS[self.kind]]
        if self.kind is Kind.LSTM:
            hidden = config.hidden_size
            shapes = (hidden, 2 * hidden), (hidden // 2, 2 * hidden)
            return dict(zip(names, (*shapes, (2 * hidden,)), strict=True))
        first = tuple(
            getattr(config, size) if isinstance(size, str) else size
            for size in self.sizes
        )
        if self.kind is Kind.LOW_RANK:
            (rows, columns), rank = first, config.lora_rank
            matrices = (rows, rank), (rank, columns)
            return dict(zip(names, matrices, strict=True))
        second = first[:1] if self.kind is Kind.OUTPUT else first[-1:]
        return dict(zip(names, (first, second), strict=False))


# The arrays of a BiLSTM, which only bert_tf has.
BILSTM_PARTS = tuple(
    Part(Kind.LSTM, f"bert/bilstm/{direction}", (), "")
    for direction in ("forward", "backward")
)


def task_classes(family: str) -> dict[str, tuple[str, ...]]:
    """The classes for tasks that transformers names alike in every family.

    Args:
      family: what their names begin with, such as "Bert".
    """
    return {
        f"{family}ForSequenceClassification": (CLASSIFIER,),
        f"{family}ForTokenClassification": (TOKEN_CLASSIFIER,),
        f"{family}ForQuestionAnswering": (SPAN,),
        f"{family}ForMultipleChoice": (MULTIPLE_CHOICE,),
    }


@dataclasses.dataclass(frozen=True)
class HuggingFaceForm:
    """The format of transformers' files besides the names of parts.

    Attributes:
      body: the class without a head, whose files omit `prefix`.
      prefix: the prefix of the body's arrays in other classes.
      keys: the keys of config.json, each with its field and default.
      fixed: keys that affect the computation, and the supported value.
      classes: the classes, and the heads of each besides the pooler.
      words_copy: the masked LM's output weights, a copy of the word embeddings.
      bias: the masked LM's output bias.
      bias_copy: a copy of the bias; empty if there is none.
      targets: the suffixes of kernels with low-rank updates, by `lora_on`.
      poolers: by head, the name of the pooler if it differs from the part's.
      unread: a regular expression of arrays to ignore.
      keras_layers: the layers of TensorFlow's classes in Keras' files, and
        their names in PyTorch; {} is the number in Keras' name.
      masked_lm_act: the activation of the masked LM head; empty means
        hidden_act.
      flat_keys: replaces nested values of config.json by `keys`.
      projects: whether embeddings as wide as the layers are projected.
    """

    body: str
    prefix: str
    keys: Mapping[str, tuple[str, Any]]
    fixed: Mapping[str, Any]
    classes: Mapping[str, tuple[str, ...]]
    words_copy: str
    bias: str
    bias_copy: str
    targets: Mapping[str, tuple[str, ...]]
    poolers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    masked_lm_act: str = ""
    unread: str = ""
    keras_layers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    flat_keys: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    projects: bool = False


@dataclasses.dataclass(frozen=True)
class KerasHubForm:
    """The format of KerasHub's files besides the names of parts.

    Attributes:
      backbone: the class without a head; empty if there is none.
      arguments: its arguments, with the type and the fields of each.
      computation: fields with the same value in every preset.
      masked_lm: fields of the masked LM head that differ from the encoder's.
      tasks: classes with a head.
      unread: a regular expression of arrays to ignore.
    """

    backbone: str = ""
    arguments: Mapping[str, tuple[type, tuple[str, ...]]] = dataclasses.field(
        default_factory=dict
    )
    computation: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    masked_lm: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    unread: str = ""


@dataclasses.dataclass(frozen=True)
class Names:
    """The parts of an architecture, with their names in every family.

    Attributes:
      embeddings: the parts before the first layer.
      layer: the parts of a layer's block, in order.
      heads: the parts of each head, including the pooler.
      hugging_face: the format of transformers' files.
      keras_hub: the format of KerasHub's files.
      embeddings_project: between embeddings and layers, if E is not H.
      final: the parts after the last layer.
      google_config: the configuration file in Google's TF1 folders, if our
        names are those of Google's variables; else empty.
    """

    embeddings: tuple[Part, ...]
    layer: tuple[Part, ...]
    heads: Mapping[str, tuple[Part, ...]]
    hugging_face: HuggingFaceForm
    keras_hub: KerasHubForm = dataclasses.field(default_factory=KerasHubForm)
    embeddings_project: tuple[Part, ...] = ()
    final: tuple[Part, ...] = ()
    google_config: str = ""


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The data of an architecture.

    Attributes:
      config: the class of its configuration, with its sizes by name.
      names: its arrays under the names of every family of checkpoints.
      tokenizer: the class of its tokenizer's data.
      encoder: its encoder, as `module.Class`, imported when a model is built.
    """

    config: type[BertConfig]
    names: Names
    tokenizer: type[TokenizerData]
    encoder: str
