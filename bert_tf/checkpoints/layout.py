"""Which arrays a BERT has: their names in every family, and our shapes.

Our names are those of Google's TF1 checkpoints, and so are the shapes: Dense
kernels are [in, out], output weights of heads are [labels, hidden]. Google has
no names for token classification, multiple choice and a BiLSTM; ours follow its
form.
"""

import dataclasses
import enum
from collections.abc import Iterable, Iterator

from bert_tf.config import ALL_DENSE, BertConfig

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
# Between the encoder and all of the others; there where `bilstm` is true.
BILSTM = "bilstm"
# Low-rank updates of the encoder's kernels; there where `lora_rank` is not 0.
LORA = "lora"
# Those that a fine-tuning makes.
TASK_HEADS = (CLASSIFIER, SPAN, TOKEN_CLASSIFIER, MULTIPLE_CHOICE)

# Those that score the pooled output.
HEADS_ON_POOLER = (NEXT_SENTENCE, CLASSIFIER, MULTIPLE_CHOICE)


class Kind(enum.Enum):
    """What a part is made of."""

    TABLE = enum.auto()
    VECTOR = enum.auto()
    DENSE = enum.auto()
    NORM = enum.auto()
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
    Kind.NORM: ("/gamma", "/beta"),
    Kind.LSTM: ("/kernel", "/recurrent_kernel", "/bias"),
    Kind.LOW_RANK: ("/lora_a", "/lora_b"),
    Kind.OUTPUT: ("output_weights", "output_bias"),
}


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a BERT under the names that the families give it.

    {} in a name stands for the number of a layer.

    Attributes:
      kind: what it is made of.
      ours: what our names of its arrays begin with.
      sizes: of its first array, [rows, width], [in, out], [labels, in] or
        [width]: attributes of `BertConfig`, numbers, or None. An LSTM's
        follow from hidden_size.
      hugging_face: in transformers, without the prefix of the encoder.
      model_garden: attributes from an object of Model Garden's to the layer;
        empty where it has none.
      keras_hub: path in KerasHub's files, model/ or task/; empty where it has
        none.
    """

    kind: Kind
    ours: str
    sizes: tuple[str | int | None, ...]
    hugging_face: str
    model_garden: str = ""
    keras_hub: str = ""

    def of_layer(self, number: int) -> "Part":
        """The part of one layer."""
        return dataclasses.replace(
            self,
            ours=self.ours.format(number),
            hugging_face=self.hugging_face.format(number),
            model_garden=self.model_garden.format(number),
            keras_hub=self.keras_hub.format(f"_{number}" if number else ""),
        )

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


_HIDDEN, _INNER = "hidden_size", "intermediate_size"
_ATTENTION = "attention_size"
_SQUARE = (_HIDDEN, _HIDDEN)
_EMBEDDINGS = (
    Part(
        Kind.TABLE,
        "bert/embeddings/word_embeddings",
        ("vocab_size", _HIDDEN),
        "embeddings.word_embeddings",
        "encoder/_embedding_layer/embeddings",
        "model/layers/reversible_embedding",
    ),
    Part(
        Kind.TABLE,
        "bert/embeddings/token_type_embeddings",
        ("type_vocab_size", _HIDDEN),
        "embeddings.token_type_embeddings",
        "encoder/_type_embedding_layer/embeddings",
        "model/layers/embedding",
    ),
    Part(
        Kind.TABLE,
        "bert/embeddings/position_embeddings",
        ("max_position_embeddings", _HIDDEN),
        "embeddings.position_embeddings",
        "encoder/_position_embedding_layer/embeddings",
        "model/layers/position_embedding",
    ),
    Part(
        Kind.NORM,
        "bert/embeddings/LayerNorm",
        (_HIDDEN,),
        "embeddings.LayerNorm",
        "encoder/_embedding_norm_layer",
        "model/layers/layer_normalization",
    ),
)
_OURS, _THEIRS = "bert/encoder/layer_{}", "encoder.layer.{}"
_GARDEN = "encoder/_transformer_layers/{}"
_HUB = "model/layers/transformer_encoder{}"
_LAYER = (
    *(
        Part(
            Kind.DENSE,
            f"{_OURS}/attention/self/{name}",
            (_HIDDEN, _ATTENTION),
            f"{_THEIRS}.attention.self.{name}",
            f"{_GARDEN}/_attention_layer/_{name}_dense",
            f"{_HUB}/_self_attention_layer/{name}_dense",
        )
        for name in ("query", "key", "value")
    ),
    Part(
        Kind.DENSE,
        f"{_OURS}/attention/output/dense",
        (_ATTENTION, _HIDDEN),
        f"{_THEIRS}.attention.output.dense",
        f"{_GARDEN}/_attention_layer/_output_dense",
        f"{_HUB}/_self_attention_layer/output_dense",
    ),
    Part(
        Kind.NORM,
        f"{_OURS}/attention/output/LayerNorm",
        (_HIDDEN,),
        f"{_THEIRS}.attention.output.LayerNorm",
        f"{_GARDEN}/_attention_layer_norm",
        f"{_HUB}/_self_attention_layer_norm",
    ),
    Part(
        Kind.DENSE,
        f"{_OURS}/intermediate/dense",
        (_HIDDEN, _INNER),
        f"{_THEIRS}.intermediate.dense",
        f"{_GARDEN}/_intermediate_dense",
        f"{_HUB}/_feedforward_intermediate_dense",
    ),
    Part(
        Kind.DENSE,
        f"{_OURS}/output/dense",
        (_INNER, _HIDDEN),
        f"{_THEIRS}.output.dense",
        f"{_GARDEN}/_output_dense",
        f"{_HUB}/_feedforward_output_dense",
    ),
    Part(
        Kind.NORM,
        f"{_OURS}/output/LayerNorm",
        (_HIDDEN,),
        f"{_THEIRS}.output.LayerNorm",
        f"{_GARDEN}/_output_layer_norm",
        f"{_HUB}/_feedforward_layer_norm",
    ),
)
# Three heads share a name in transformers; its config.json says which it is.
HEAD_PARTS = {
    POOLER: (
        Part(
            Kind.DENSE,
            "bert/pooler/dense",
            _SQUARE,
            "pooler.dense",
            "encoder/_pooler_layer",
            "model/layers/dense",
        ),
    ),
    MASKED_LM: (
        Part(
            Kind.DENSE,
            "cls/predictions/transform/dense",
            _SQUARE,
            "cls.predictions.transform.dense",
            "masked_lm/dense",
            "task/layers/masked_lm_head/_intermediate_dense",
        ),
        Part(
            Kind.NORM,
            "cls/predictions/transform/LayerNorm",
            (_HIDDEN,),
            "cls.predictions.transform.LayerNorm",
            "masked_lm/layer_norm",
            "task/layers/masked_lm_head/_intermediate_layer_norm",
        ),
        Part(
            Kind.VECTOR,
            "cls/predictions/output_bias",
            ("vocab_size",),
            "cls.predictions.bias",
            "masked_lm/bias",
            "task/layers/masked_lm_head",
        ),
    ),
    NEXT_SENTENCE: (
        Part(
            Kind.OUTPUT,
            "cls/seq_relationship/",
            (2, _HIDDEN),
            "cls.seq_relationship",
            "next_sentence/out_proj",
        ),
    ),
    CLASSIFIER: (
        Part(
            Kind.OUTPUT,
            "",
            (None, _HIDDEN),
            "classifier",
            "classifier/out_proj",
            "task/layers/dense",
        ),
    ),
    SPAN: (
        Part(
            Kind.OUTPUT,
            "cls/squad/",
            (2, _HIDDEN),
            "qa_outputs",
            "span_labeling",
        ),
    ),
    TOKEN_CLASSIFIER: (
        Part(
            Kind.OUTPUT,
            "cls/token_classification/",
            (None, _HIDDEN),
            "classifier",
            "token_classifier",
        ),
    ),
    MULTIPLE_CHOICE: (
        Part(
            Kind.OUTPUT,
            "cls/multiple_choice/",
            (1, _HIDDEN),
            "classifier",
        ),
    ),
    BILSTM: tuple(
        Part(Kind.LSTM, f"bert/bilstm/{direction}", (), "")
        for direction in ("forward", "backward")
    ),
}


def _heads(config: BertConfig) -> dict[str, tuple[Part, ...]]:
    """The parts of each head that a model may have."""
    heads = dict(HEAD_PARTS)
    if not config.bilstm:
        del heads[BILSTM]
    if config.lora_rank:
        heads[LORA] = tuple(_low_rank_parts(config))
    return heads


def encoder_parts(config: BertConfig) -> Iterator[Part]:
    """The parts of the encoder without its pooler, from the input on."""
    yield from _EMBEDDINGS
    for number in range(config.num_hidden_layers):
        for part in _LAYER:
            yield part.of_layer(number)


def _low_rank_parts(config: BertConfig) -> Iterator[Part]:
    """The updates of the encoder's kernels."""
    for part in encoder_parts(config):
        attends = part.ours.endswith(("/query", "/value"))
        if part.kind is Kind.DENSE and (attends or config.lora_on == ALL_DENSE):
            yield dataclasses.replace(part, kind=Kind.LOW_RANK)


def all_parts(config: BertConfig) -> Iterator[Part]:
    """The parts of the encoder and of every head, the pooler among them."""
    yield from encoder_parts(config)
    for parts in _heads(config).values():
        yield from parts


def _shapes(parts: Iterable[Part], config: BertConfig) -> Shapes:
    return dict(item for part in parts for item in part.shapes(config).items())


def encoder_shapes(config: BertConfig) -> Shapes:
    """The arrays of the encoder without its pooler."""
    return _shapes(encoder_parts(config), config)


def head_shapes(config: BertConfig) -> dict[str, Shapes]:
    """The arrays of each head by the head's name, the pooler among them."""
    return {head: _shapes(p, config) for head, p in _heads(config).items()}


def all_shapes(config: BertConfig) -> Shapes:
    """The arrays of the encoder and of every head."""
    return _shapes(all_parts(config), config)


def by_attention_head(name: str, shape: Shape, config: BertConfig) -> Shape:
    """Our shape of an array with the attention heads, [N, D], apart.

    Model Garden and KerasHub store query, key, value and the attention's
    output so.
    """
    heads = config.num_attention_heads
    apart = (heads, config.attention_size // heads)
    if "/attention/self/" in name:
        return (*shape[:-1], *apart)
    if name.endswith("/attention/output/dense/kernel"):
        return (*apart, shape[-1])
    return shape
