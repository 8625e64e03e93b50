"""What all served models have in common."""

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import check_labels
from bert_tf.config import BertConfig
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError, whole_number
from bert_tf.families.requests import (
    Request,
    Tensors,
    signature,
    token_specs,
    unless,
)
from bert_tf.families.usage_options import CHOICES
from bert_tf.text.layout import HOST, TokenIds, pack_rows
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    from bert_tf.checkpoints.sentence_modules import SentenceModules

SERVING_DEFAULT = "serving_default"
TOKENS = "tokens"
# The signature and input by which a text gets one of several prompts.
EMBED_WITH_PROMPT, PROMPT_NAME = "embed_with_prompt", "prompt_name"
# The plain values that one row is answered with, ready for JSON.
Answer = dict[str, Any]
Forward = Callable[[Tensors, tf.Tensor], Tensors]
# Tokens, padding included, that go through the model at a time: what memory
# grows with. Rows of similar length go together.
_TOKENS_AT_ONCE = 2048


def largest(values: tf.Tensor) -> tf.Tensor:
    """The largest of whole numbers >= 0; 0 where there are none."""
    return tf.reduce_max(tf.concat([[0], tf.reshape(values, [-1])], 0))


class RowComputer:
    """Puts rows through a model, some of similar length at a time.

    Args:
      tokenizer: what made the ids.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._packing = tokenizer.packing

    def __call__(
        self,
        first: TokenIds,
        second: TokenIds | None,
        forward: Forward,
        outputs: Mapping[str, Sequence[int | None]],
        width: tf.Tensor | None = None,
    ) -> Tensors:
        """Computes all rows.

        Args:
          first: the R texts A, which fit.
          second: the R texts B, or None.
          forward: takes the encoder's inputs of r rows and the numbers of
            these rows, int32 [r]; returns tensors [r, ...].
          outputs: for each of those tensors its shape without the first axis;
            None first stands for an axis that is padded with zeros.
          width: what it is padded to, int32.

        Returns:
          The tensors of all rows, float32 [R, ...].
        """
        with tf.device(HOST):
            rows = pack_rows(first, second, self._packing)
            lengths = rows.lengths
            order = tf.argsort(lengths, direction="DESCENDING", stable=True)
            count = tf.size(order)

        def compute(start: tf.Tensor, done: Tensors) -> tuple:
            with tf.device(HOST):
                left = order[start:]
                length = tf.gather(lengths, left[0])
                chosen = left[: tf.maximum(_TOKENS_AT_ONCE // length, 1)]
                inputs = rows.take(chosen).padded(length)
            found = forward(inputs, chosen)
            return start + tf.size(chosen), {
                name: tf.concat(
                    [done[name], _padded(found[name], shape, width)], 0
                )
                for name, shape in outputs.items()
            }

        none = {
            name: tf.zeros(
                [0, *(width if size is None else size for size in shape)]
            )
            for name, shape in outputs.items()
        }
        _, found = tf.while_loop(
            lambda start, done: start < count,
            compute,
            [tf.constant(0), none],
            shape_invariants=[
                tf.TensorShape([]),
                {n: tf.TensorShape([None, *s]) for n, s in outputs.items()},
            ],
            parallel_iterations=1,
        )
        place = tf.math.invert_permutation(order)
        return {name: tf.gather(value, place) for name, value in found.items()}


def _padded(
    values: tf.Tensor, shape: Sequence[int | None], width: tf.Tensor | None
) -> tf.Tensor:
    """Values [r, ...] as float32, their second axis filled up."""
    values = tf.cast(values, tf.float32)
    if None not in shape:
        return values
    amount = [[0, 0]] * values.shape.rank
    amount[1] = [0, width - tf.shape(values)[1]]
    return tf.ensure_shape(tf.pad(values, amount), [None, *shape])


class TextModel(abc.ABC):
    """A model with its tokenizer, which takes strings and gives answers.

    Attributes:
      model: the Keras model.
      weights: its variables; of one beside another, see `adapters.py`.
      tokenizer: what turns texts into ids.
      max_seq_length: the longest row.
      labels: names of the labels; none where the model has none.
      config: the encoder's; None where the model has no BertEncoder.
      task: what it does, in words.
      threshold: what decides whether there is an answer, or whether a label
        holds; None where nothing does.
      activation: what makes the answer of a model's one output, see
        `sentence_modules.TORCH_ACTIVATIONS`.
      prompts: texts that may be put before a text, by name; of models of
        sentence-transformers.
      default_prompt_name: the one that is put before every text; None is none.
      modules: how its folder makes one vector of a text; None where it states
        nothing.
      method: the signature that is for TensorFlow Serving's method of that
        name, "classify" or "regress"; all others are for "predict".

    Args:
      model: a BertEncoder, a BertPretrainer or a model on an encoder.
      encoder: the model's encoder; None where it has none, and then ids and
        lengths are not checked.
      tokenizer: the tokenizer it was trained with.
      max_seq_length: the longest row, with [CLS] and [SEP].
      labels: names of the labels, in the order of the outputs.

    Raises:
      UserError: model, tokenizer and length do not go together, or labels
        that are no text or occur twice.
    """

    def __init__(
        self,
        model: keras.Model,
        encoder: BertEncoder | None,
        tokenizer: Tokenizer,
        max_seq_length: int,
        labels: Sequence[str] = (),
    ):
        self.config: BertConfig | None = encoder.config if encoder else None
        if self.config:
            _check_fit(self.config, tokenizer, max_seq_length)
        check_labels(list(labels), "labels")
        self.model = model
        self.weights = [variable.value for variable in model.weights]
        # One graph of the model, which the signatures call.
        self.forward: Callable[..., Any] = tf.function(
            functools.partial(model, training=False),
            reduce_retracing=True,
            autograph=False,
        )
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.labels = tuple(labels)
        self.compute_dtype = (encoder or model).compute_dtype
        self.compute = RowComputer(tokenizer)

    task: str
    # Axes of the inputs of `tokens`.
    token_axes: int = 2
    threshold: float | None = None
    activation: str = "linear"
    prompts: Mapping[str, str] = {}
    default_prompt_name: str | None = None
    method: str | None = None
    modules: "SentenceModules | None" = None
    # Further models on the same base, by name; see `adapters.put_beside`.
    beside: Mapping[str, "TextModel"] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        """The inputs of serving_default, by name."""
        return ("text",)

    def file_columns(self, stated: Mapping[str, Any]) -> Mapping[str, str]:
        """What the files of its training call some of `columns`.

        Args:
          stated: what recipe.json and task.json of its folder hold.
        """
        del stated
        return {}

    @abc.abstractmethod
    def answers(self, *columns: tf.Tensor) -> Tensors:
        """The one function from texts to answers, eager or traced.

        Args:
          *columns: string [B] or, of choices, [B, C]; those of `columns`, in
            their order and by their names.

        Returns:
          Tensors [B, ...], a row each.
        """

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """The signatures by name, as functions with an input signature."""
        specs = [
            tf.TensorSpec(
                [None, None] if name == CHOICES else [None], tf.string, name
            )
            for name in self.columns
        ]
        return {
            SERVING_DEFAULT: signature(self.answers, *specs),
            TOKENS: self.tokens_signature(),
        }

    @abc.abstractmethod
    def requests(self) -> list[Request]:
        """Real requests of several lengths to the signatures of text."""

    def all_signatures(self) -> dict[str, Callable[..., Tensors]]:
        """Its signatures and those of the models beside it.

        These are called by the model's name, in place of serving_default, or
        begin with that, such as NAME_tokens.
        """
        found = self.signatures()
        for name, other in self.beside.items():
            found |= {
                signature_of(name, key): function
                for key, function in other.signatures().items()
                # One of a SavedModel alone may be for Classify or Regress.
                if key != other.method
            }
        return found

    def all_requests(self) -> list[Request]:
        """Requests to `all_signatures`."""
        return self.requests() + [
            request._replace(signature=signature_of(name, request.signature))
            for name, other in self.beside.items()
            for request in other.requests()
            if request.signature != other.method
        ]

    @abc.abstractmethod
    def to_answers(
        self,
        outputs: Mapping[str, np.ndarray],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[Answer]:
        """What serving_default gave, as plain values of each row.

        Args:
          outputs: of the signature, for B rows.
          rows: the B rows, by column: what was asked.
        """

    # Whether its answers can be explained; see explained.py of its family.
    explains: bool = True

    @abc.abstractmethod
    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """What the model itself computes of the encoder's inputs."""

    def tokens_signature(self) -> Callable[..., Tensors]:
        """The signature for those who tokenise themselves."""

        def from_tokens(
            input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor
        ) -> Tensors:
            inputs = {
                "input_ids": self._checked(input_ids),
                "input_mask": with_tokens(input_mask),
                "segment_ids": segment_ids,
            }
            if self.config is not None:
                # The model runs beside the check, and must not fail first.
                longest = self.config.longest_input
                inputs = {k: v[..., :longest] for k, v in inputs.items()}
            answers = self.answer_tokens(inputs)
            return {
                name: tf.cast(value, tf.float32)
                if value.dtype.is_floating
                else value
                for name, value in answers.items()
            }

        return signature(from_tokens, *token_specs(self.token_axes))

    def _checked(self, input_ids: tf.Tensor) -> tf.Tensor:
        """Ids, int32 [..., S], that are not too many and known."""
        if self.config is None:
            return input_ids
        length = tf.shape(input_ids)[-1:]
        longest = self.config.longest_input
        input_ids = unless(
            length > longest,
            input_ids,
            f"input_ids: row {{}} and all others have {{}} positions; this "
            f"model takes {longest}.",
            length,
        )
        size = self.config.vocab_size
        ids = tf.reshape(input_ids, [-1])
        return unless(
            (ids < 0) | (ids >= size),
            input_ids,
            "input_ids: entry {} is {}; this model knows the ids from 0 to "
            f"{size - 1}.",
            ids,
        )


def with_tokens(input_mask: tf.Tensor) -> tf.Tensor:
    """A mask, int32 [..., S], in which rows without a token have their first.

    Such rows fill a batch up, and no row may be without.
    """
    some = tf.reduce_max(input_mask, -1, keepdims=True)
    first = tf.maximum(input_mask[..., :1], 1 - some)
    return tf.concat([first, input_mask[..., 1:]], -1)


def signature_of(name: str, key: str) -> str:
    """What a signature of a model beside another is called."""
    return name if key == SERVING_DEFAULT else f"{name}_{key}"


def encoders_of(model: keras.Model) -> list[BertEncoder]:
    """The encoders of a model: itself, or those among its layers."""
    if isinstance(model, BertEncoder):
        return [model]
    return [x for x in model.layers if isinstance(x, BertEncoder)]


def encoder_of(model: keras.Model) -> BertEncoder:
    """The encoder of a model.

    Raises:
      UserError: it has none, or several.
    """
    encoders = encoders_of(model)
    if len(encoders) != 1:
        raise UserError(
            f"the model {model.name!r} has {len(encoders)} BertEncoders among "
            "its layers; it takes a model with one."
        )
    return encoders[0]


def check_outputs(count: Any, labels: Sequence[str]) -> None:
    """Raises `UserError` unless a model has an output for each label."""
    if count != len(labels):
        raise UserError(
            f"`labels`: are {len(labels)}, and the model has {count} outputs; "
            "name each."
        )


def _check_fit(
    config: BertConfig, tokenizer: Tokenizer, max_seq_length: int
) -> None:
    tokenizer.vocabulary.require_rows(config.vocab_size, "the model")
    longest = config.longest_input
    why = "longest_input"
    whole_number("max_seq_length", max_seq_length, 3, longest, why)
