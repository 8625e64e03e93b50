"""`TextModel`, the base of every model that takes text."""

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import check_labels
from bert_tf.config import KERAS, BertConfig
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
from bert_tf.models import padded
from bert_tf.runtimes.runtime import ROW_OUTPUTS, Network, Runtime
from bert_tf.text.layout import HOST, TokenIds, pack_rows
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    from bert_tf.checkpoints.sentence_modules import Modules

SERVING_DEFAULT = "serving_default"
TOKENS = "tokens"
LOGITS = "logits"
# The signature and input by which a text gets one of several prompts.
EMBED_WITH_PROMPT, PROMPT_NAME = "embed_with_prompt", "prompt_name"
# The signatures that count the tokens of texts, and score pairs for a ranking.
COUNT_TOKENS, RANK = "count_tokens", "rank"
# The answer to one row in plain Python values, ready for JSON.
Answer = dict[str, Any]
# The texts of a row by column, and the outputs of rows.
InputRow = Mapping[str, Any]
InputRows = Sequence[InputRow]
Arrays = Mapping[str, np.ndarray]
Forward = Callable[[Tensors, tf.Tensor], Tensors]


def largest(values: tf.Tensor) -> tf.Tensor:
    """The maximum of whole numbers >= 0; 0 of an empty tensor."""
    return tf.reduce_max(tf.concat([[0], tf.reshape(values, [-1])], 0))


def _padded(
    values: tf.Tensor, shape: Sequence[int | None], width: tf.Tensor | None
) -> tf.Tensor:
    """Values [r, ...] as float32, padded to `width` in the second axis."""
    values = tf.cast(values, tf.float32)
    if None not in shape:
        return values
    amount = [[0, 0]] * values.shape.rank
    amount[1] = [0, width - tf.shape(values)[1]]
    return tf.ensure_shape(tf.pad(values, amount), [None, *shape])


class TextModel(abc.ABC):
    """A model with its tokenizer, which answers texts.

    Attributes:
      model: the Keras model.
      weights: its variables; for models that share a base see `adapters.py`.
      tokenizer: its tokenizer.
      max_seq_length: the longest row in tokens.
      labels: the names of its labels, if any.
      config: the encoder's config; None if the model has no BertEncoder.
      task: its task, in words.
      threshold: the threshold of a label, or of having no answer; None if the
        task has neither.
      calibration_temperature: divides the logits for probabilities.
      activation: the activation of a single output, see
        `sentence_modules.TORCH_ACTIVATIONS`.
      prompts: prompts of sentence-transformers by name.
      default_prompt_name: the prompt that precedes every text; None for none.
      modules: the modules of its folder that pool a text to a vector; None if
        there are none.
      method: the signature for the method of TensorFlow Serving of the same
        name, "classify" or "regress"; all others are for "predict".

    Args:
      model: a BertEncoder, a BertPretrainer or a model on an encoder.
      tokenizer: the tokenizer it was trained with.
      max_seq_length: the longest row, with [CLS] and [SEP].
      labels: names of the labels, in the order of the outputs.

    Raises:
      UserError: model, tokenizer and length do not fit each other, or a label
        is no text or occurs twice.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        max_seq_length: int,
        labels: Sequence[str] = (),
    ):
        encoder = None
        if self.needs_encoder or len(encoders_of(model)) == 1:
            encoder = encoder_of(model)
        self.config: BertConfig | None = encoder.config if encoder else None
        if self.config:
            size, longest = self.config.vocab_size, self.config.longest_input
            tokenizer.vocabulary.require_rows(size, "the model")
            why = "longest_input"
            whole_number("max_seq_length", max_seq_length, 3, longest, why)
        check_labels(list(labels), "labels")
        self.model = model
        self.weights = [variable.value for variable in model.weights]
        # One graph of the model for all signatures.
        self.forward: Callable[..., Any] = tf.function(
            functools.partial(model, training=False),
            reduce_retracing=True,
            autograph=False,
        )
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.labels = tuple(labels)
        self.compute_dtype = (encoder or model).compute_dtype

    task: str
    # Whether it has one encoder; ids and lengths are not checked without.
    needs_encoder: ClassVar[bool] = True
    # Tokens of a batch of `compute`, padding included. They determine the
    # memory that is used.
    tokens_at_once: ClassVar[int] = 2048
    # The inputs of serving_default, by name.
    columns: tuple[str, ...] = ("text",)
    # The rank of the inputs of `tokens`.
    token_axes: int = 2
    threshold: float | None = None
    calibration_temperature: float = 1.0
    activation: str = "linear"
    prompts: Mapping[str, str] = {}
    default_prompt_name: str | None = None
    method: str | None = None
    modules: "Modules | None" = None
    # What computes its network; None for Keras.
    runtime: Runtime | None = None
    # Models that share its base, by name; see `adapters.put_beside`.
    beside: Mapping[str, "TextModel"] = {}

    def row_outputs(self, inputs: Tensors) -> Tensors:
        """Computes the network's outputs of rows, with their padding.

        Args:
          inputs: the encoder's, int32 [R, S].

        Returns:
          Tensors [R, ...] by name; a single one is called logits.
        """
        found = padded(self.model)(inputs, training=False)
        return dict(found) if isinstance(found, Mapping) else {LOGITS: found}

    @property
    def network(self) -> Network:
        """What a runtime knows of it."""
        assert self.config is not None
        return Network(self.config, self.weights, self.max_seq_length)

    @property
    def runtime_kind(self) -> str:
        """The name of what computes the network."""
        if self.runtime is None or self.runtime.left_to_keras:
            return KERAS
        return self.runtime.kind

    @property
    def computed_by(self) -> str:
        """What computes the network, and in which precision, in words."""
        if self.runtime_kind == KERAS:
            return f"Keras in {self.compute_dtype}"
        return str(self.runtime)

    def compute_by(self, runtime: Runtime) -> None:
        """Computes the network by another runtime from now on.

        Raises:
          UserError: the runtime does not support the model, or computes other
            outputs.
        """
        self.runtime = runtime
        compiled = runtime.compiled(self.row_outputs, ROW_OUTPUTS, self.network)
        if compiled is None:
            return

        def forward(inputs: Tensors) -> Any:
            found = compiled(inputs)
            return found[LOGITS] if set(found) == {LOGITS} else found

        self.forward = forward

    def file_columns(self, stated: Mapping[str, Any]) -> Mapping[str, str]:
        """The names that its training files have for some of `columns`.

        Args:
          stated: the contents of recipe.json and task.json of its folder.
        """
        del stated
        return {}

    @abc.abstractmethod
    def answers(self, *columns: tf.Tensor) -> Tensors:
        """Answers texts; runs eagerly or is traced.

        Args:
          *columns: the texts of each of `columns`, string [B] or, for choices,
            [B, C].

        Returns:
          Tensors [B, ...] by name.
        """

    def compute(
        self,
        first: TokenIds,
        second: TokenIds | None,
        forward: Forward,
        outputs: Mapping[str, Sequence[int | None]],
        width: tf.Tensor | None = None,
    ) -> Tensors:
        """Computes any number of rows in batches of similar length.

        Args:
          first: R texts A, already truncated.
          second: R texts B, or None.
          forward: takes the encoder's inputs of r rows and the indices of
            these rows, int32 [r]; returns tensors [r, ...].
          outputs: the shapes of these tensors without the first axis; an
            axis of None is padded with zeros.
          width: the padded size of that axis, int32.

        Returns:
          The tensors of all rows, float32 [R, ...].
        """
        with tf.device(HOST):
            rows = pack_rows(first, second, self.tokenizer.packing)
            lengths = rows.lengths
            order = tf.argsort(lengths, direction="DESCENDING", stable=True)
            count = tf.size(order)

        def compute_batch(start: tf.Tensor, done: Tensors) -> tuple:
            with tf.device(HOST):
                left = order[start:]
                length = tf.gather(lengths, left[0])
                room = self.tokens_at_once // tf.maximum(length, 1)
                chosen = left[: tf.maximum(room, 1)]
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
            compute_batch,
            [tf.constant(0), none],
            shape_invariants=[
                tf.TensorShape([]),
                {n: tf.TensorShape([None, *s]) for n, s in outputs.items()},
            ],
            parallel_iterations=1,
        )
        index = tf.math.invert_permutation(order)
        return {name: tf.gather(value, index) for name, value in found.items()}

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """The functions of a SavedModel by the names of their signatures."""
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
        """Requests of several lengths to the signatures that take text."""

    def all_signatures(self) -> dict[str, Callable[..., Tensors]]:
        """Its signatures and those of the models that share its base.

        The latter are called NAME, which stands for serving_default, or
        NAME_tokens and the like.
        """
        found = self.signatures()
        for name, other in self.beside.items():
            found |= {
                signature_of(name, key): function
                for key, function in other.signatures().items()
                # A SavedModel has at most one for Classify or Regress.
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
    def to_answers(self, outputs: Arrays, rows: InputRows) -> list[Answer]:
        """Converts the outputs of serving_default to plain values.

        Args:
          outputs: the outputs for B rows.
          rows: the texts of these rows, by column.
        """

    # Whether its answers can be explained; see explained.py of its family.
    explains: bool = True

    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """Answers rows of the encoder's inputs, by default with the logits."""
        found = self.forward(inputs)
        return dict(found) if isinstance(found, Mapping) else {LOGITS: found}

    def tokens_signature(self) -> Callable[..., Tensors]:
        """The signature that takes token ids."""

        def from_tokens(
            input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor
        ) -> Tensors:
            inputs = {
                "input_ids": self._checked(input_ids),
                "input_mask": with_tokens(input_mask),
                "segment_ids": segment_ids,
            }
            if self.config is not None:
                # Runs in parallel with the check, and must not fail first.
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
        """Ids, int32 [..., S], checked against positions and vocabulary."""
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
    """Unmasks the first token of padding rows in a mask, int32 [..., S].

    Padding rows need one token, because an empty row has no softmax.
    """
    some = tf.reduce_max(input_mask, -1, keepdims=True)
    first = tf.maximum(input_mask[..., :1], 1 - some)
    return tf.concat([first, input_mask[..., 1:]], -1)


def signature_of(name: str, key: str) -> str:
    """The name of a signature of a model that shares another's base."""
    return name if key == SERVING_DEFAULT else f"{name}_{key}"


def encoders_of(model: keras.Model) -> list[BertEncoder]:
    """The encoders of a model: the model itself, or those of its layers."""
    if isinstance(model, BertEncoder):
        return [model]
    return [x for x in model.layers if isinstance(x, BertEncoder)]


def encoder_of(model: keras.Model) -> BertEncoder:
    """Returns the encoder of a model.

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
    """Raises `UserError` unless the model has one output for each label."""
    if count != len(labels):
        raise UserError(
            f"`labels`: are {len(labels)}, and the model has {count} outputs; "
            "name each."
        )
