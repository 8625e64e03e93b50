"""What the data of an architecture are made of."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from bert_tf.config import BertConfig
from bert_tf.family_list import FAMILIES
from bert_tf.text.tokenizer_protocol import TokenizerData

# None stands for a size that the configuration does not have (the number of
# labels of a head).
Shape = tuple[int | None, ...]
Shapes = dict[str, Shape]

POOLER = "pooler"
MASKED_LM = "masked_lm"
NEXT_SENTENCE = "next_sentence"
CLASSIFIER = "classifier"
SPAN = "span"
TOKEN_CLASSIFIER = "token_classifier"
MULTIPLE_CHOICE = "multiple_choice"
# An ELECTRA's discriminator's.
REPLACED_TOKENS = "replaced_tokens"
# Between the encoder and all of the others; there where `bilstm` is true.
BILSTM = "bilstm"
# Low-rank updates of the encoder's kernels; there where `lora_rank` is not 0.
LORA = "lora"
# Those that a fine-tuning makes.
TASK_HEADS = FAMILIES.keys()
# Those of them whose outputs have names.
LABELLED_HEADS = (CLASSIFIER, TOKEN_CLASSIFIER)

# Those that score the pooled output.
HEADS_ON_POOLER = (NEXT_SENTENCE, CLASSIFIER, MULTIPLE_CHOICE)


class Kind(enum.Enum):
    """What a part is made of."""

    TABLE = enum.auto()
    VECTOR = enum.auto()
    DENSE = enum.auto()
    # A dense layer without a bias, and a layer normalisation without a shift.
    KERNEL = enum.auto()
    NORM = enum.auto()
    SCALE = enum.auto()
    # One direction, its gates i, f, c and o side by side, as in Keras.
    LSTM = enum.auto()
    # The update of a kernel [in, out]: [in, rank] and [rank, out].
    LOW_RANK = enum.auto()
    # The last layer of a head.
    OUTPUT = enum.auto()


# How our names of a part's arrays end, in order.
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
    """A part of a BERT under the names that the families give it.

    {} in a name stands for a number of a layer's block.

    Attributes:
      kind: what it is made of.
      ours: what our names of its arrays begin with.
      sizes: of its first array, [rows, width], [in, out], [labels, in] or
        [width]: attributes of `BertConfig`, numbers, or None. An LSTM's
        follow from hidden_size.
      hugging_face: in transformers.
      model_garden: attributes from an object of Model Garden's to the layer;
        empty where it has none.
      keras_hub: path in KerasHub's files, model/ or task/; empty where it has
        none.
      google_tf1: in Google's TF1 checkpoints, of another architecture than
        BERT, whose names there are ours; empty where Google has none.
    """

    kind: Kind
    ours: str
    sizes: tuple[str | int | None, ...]
    hugging_face: str
    model_garden: str = ""
    keras_hub: str = ""
    google_tf1: str = ""

    def of_block(self, numbers: tuple[int, ...]) -> "Part":
        """The part of one block; see `BertConfig.block_numbers`."""
        ends = (f"_{number}" if number else "" for number in numbers)
        return dataclasses.replace(
            self,
            ours=self.ours.format(*numbers),
            hugging_face=self.hugging_face.format(*numbers),
            model_garden=self.model_garden.format(*numbers),
            keras_hub=self.keras_hub.format(*ends),
            google_tf1=self.google_tf1.format(*numbers),
        )

    def by_attention_head(self, shape: Shape, config: BertConfig) -> Shape:
        """The shape of an array of the part with the heads, [N, D], apart.

        Model Garden and KerasHub store query, key, value and the attention's
        output so.
        """
        heads = config.num_attention_heads
        apart = (heads, config.attention_size // heads)
        # A bias has the last axis of its kernel.
        axes = zip(shape, self.sizes[-len(shape) :], strict=True)
        parts = (apart if of == "attention_size" else (n,) for n, of in axes)
        return tuple(size for part in parts for size in part)

    def renamed(
        self, hugging_face: str, keras_hub: str = "", google_tf1: str = ""
    ) -> "Part":
        """The same part of another architecture, by the names it has there."""
        return dataclasses.replace(
            self,
            hugging_face=hugging_face,
            model_garden="",
            keras_hub=keras_hub,
            google_tf1=google_tf1,
        )

    def low_rank(self) -> "Part":
        """The update of its kernel."""
        return dataclasses.replace(self, kind=Kind.LOW_RANK)

    def shapes(self, config: BertConfig) -> Shapes:
        """Our names of the part's arrays, the weights first, and shapes."""
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


# On any encoder; no other program has such arrays.
BILSTM_PARTS = tuple(
    Part(Kind.LSTM, f"bert/bilstm/{direction}", (), "")
    for direction in ("forward", "backward")
)


@dataclasses.dataclass(frozen=True)
class HuggingFaceForm:
    """How transformers writes an architecture beside the names of arrays.

    Attributes:
      body: the class without a head. Its files have names without `prefix`.
      prefix: what the names of the body's arrays start with elsewhere.
      keys: of config.json, each with the field that it sets and what stands
        for it where it is missing.
      fixed: keys that change the computation, and their one value that we
        compute.
      classes: the classes and the heads that each holds beside the pooler.
      words_copy: the masked LM's output weights, a copy of the word
        embeddings that PyTorch keeps in step while it trains.
      bias: the masked LM's output bias.
      bias_copy: a copy of that; empty where there is none.
      targets: what names of kernels with low-rank updates end with, by the
        configuration's `lora_on`.
      poolers: what the dense layer on the pooled token is called in models of
        a head, where it is not called as in the table.
      unread: regular expression of names of arrays that are no part of ours.
      keras_layers: what Keras' files call layers of TensorFlow's classes, and
        their names here; {} stands for the number behind Keras' name.
      masked_lm_act: the one activation of the masked LM head; empty where that
        is hidden_act.
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


@dataclasses.dataclass(frozen=True)
class KerasHubForm:
    """How KerasHub writes an architecture beside the names of arrays.

    Attributes:
      backbone: the class without a head; empty where there is none.
      arguments: its arguments, with the type of each and the fields it sets.
      computation: fields that are the same for every preset.
      tasks: classes with a head.
      unread: regular expression of names of arrays that are no part of ours.
    """

    backbone: str = ""
    arguments: Mapping[str, tuple[type, tuple[str, ...]]] = dataclasses.field(
        default_factory=dict
    )
    computation: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    unread: str = ""


@dataclasses.dataclass(frozen=True)
class Names:
    """An architecture's arrays under the names of every family.

    Attributes:
      embeddings: its parts up to the first layer.
      layer: the parts of a layer's block, in order.
      heads: the parts of each head that a model may have, the pooler among
        them.
      hugging_face: what transformers writes beside.
      keras_hub: what KerasHub writes beside.
      embeddings_project: between embeddings and layers, where E is not H.
    """

    embeddings: tuple[Part, ...]
    layer: tuple[Part, ...]
    heads: Mapping[str, tuple[Part, ...]]
    hugging_face: HuggingFaceForm
    keras_hub: KerasHubForm = dataclasses.field(default_factory=KerasHubForm)
    embeddings_project: tuple[Part, ...] = ()


@dataclasses.dataclass(frozen=True)
class Architecture:
    """What is known of an architecture without computing anything.

    Attributes:
      config: the class of its configuration, with its sizes by name.
      names: its arrays under the names of every family of checkpoints.
      tokenizer: the class of its tokenizer as data.
      encoder: what computes it, as `module.Class`, imported when a model is
        built.
    """

    config: type[BertConfig]
    names: Names
    tokenizer: type[TokenizerData]
    encoder: str
