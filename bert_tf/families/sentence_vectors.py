"""Pooling and the other modules of sentence-transformers, in TensorFlow.

`bert_tf.embed`, `bert_tf.load`, files of features and SavedModels compute the
vectors of texts by the same functions.
"""

import dataclasses
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from bert_tf.checkpoints.sentence_modules import Dense, SentenceModules, Step
from bert_tf.config import CLS, LAST_TOKEN, MAX, MEAN_SQRT_LEN, WEIGHTED_MEAN
from bert_tf.layers.heads import at_positions, last_positions
from bert_tf.text.tokenizer_protocol import Tokenizer

# torch.nn.functional.normalize, eps: a zero vector stays zero.
SHORTEST = 1e-12
# sentence-transformers, Pooling: the lower bound of the sum of weights.
_LEAST_WEIGHT = 1e-9
# The values of `sentence_modules.TORCH_ACTIVATIONS`.
ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "linear": tf.identity,
    "tanh": tf.tanh,
    "relu": tf.nn.relu,
    "gelu_erf": lambda values: keras.ops.gelu(values, approximate=False),
    "sigmoid": tf.sigmoid,
    "silu": tf.nn.silu,
    "elu": tf.nn.elu,
    # torch.nn.LeakyReLU, negative_slope.
    "leaky_relu": lambda values: tf.nn.leaky_relu(values, 0.01),
    "softplus": tf.nn.softplus,
}


def pool(hidden: tf.Tensor, is_pooled: tf.Tensor, mode: str) -> tf.Tensor:
    """Pools the vectors of each row's tokens.

    As sentence-transformers 6.2, sentence_transformer/modules/pooling.py.

    Args:
      hidden: float32 [B, S, H].
      is_pooled: bool [B, S], the tokens to pool, at least one in each row.
      mode: one of `config.POOLINGS`.

    Returns:
      float32 [B, H].
    """
    if mode in (CLS, LAST_TOKEN):
        flags = tf.cast(is_pooled, tf.int32)
        if mode == CLS:
            position = tf.argmax(flags, 1, tf.int32)[:, tf.newaxis]
        else:
            position = last_positions(flags)
        return at_positions(hidden, position)[:, 0]
    weights = tf.cast(is_pooled, hidden.dtype)
    is_pooled = is_pooled[:, :, tf.newaxis]
    if mode == MAX:
        lowest = hidden.dtype.min
        return tf.reduce_max(tf.where(is_pooled, hidden, lowest), axis=1)
    # Not a product, because padding may hold NaN or infinity.
    hidden = tf.where(is_pooled, hidden, 0.0)
    if mode == WEIGHTED_MEAN:
        ranks = tf.range(1, tf.shape(hidden)[1] + 1)
        weights *= tf.cast(ranks, hidden.dtype)
        hidden *= weights[:, :, tf.newaxis]
    weight = tf.reduce_sum(weights, axis=1, keepdims=True)
    weight = tf.maximum(weight, _LEAST_WEIGHT)
    if mode == MEAN_SQRT_LEN:
        weight = tf.sqrt(weight)
    return tf.reduce_sum(hidden, axis=1) / weight


def prompt_length(
    prompt: str, tokenizer: Tokenizer, max_seq_length: int
) -> int:
    """The tokens of a prompt in a row, including [CLS]; 0 if it is empty.

    sentence-transformers counts the prompt as a row without [SEP].
    """
    if not prompt:
        return 0
    tokens = tokenizer.tokenize(prompt)
    length = len(tokenizer.packing.begin) + len(tokens)
    return min(length, max_seq_length - 1)


class SentenceVectors(keras.layers.Layer):
    """Applies the modules of a sentence-transformers folder, in float32.

    Args:
      modules: the modules of the folder.

    Attributes:
      modules: the modules; their dense layers have the initial values of the
        layer's weights, see also `trained_modules`.
    """

    def __init__(self, modules: SentenceModules):
        super().__init__(name="sentence_vectors", dtype="float32")
        self.modules = modules
        self._steps, self._dense_weights = build_steps(modules.steps)
        self.built = True

    def call(
        self,
        hidden: tf.Tensor,
        input_mask: tf.Tensor,
        prompt_length: tf.Tensor | int,
    ) -> tf.Tensor:
        """Computes the vectors of rows.

        Args:
          hidden: float [B, S, H], of the last layer.
          input_mask: int32 [B, S], 1 = token, 0 = padding.
          prompt_length: the tokens of the prompt, including [CLS], a number or
            int32 [B]; 0 without a prompt.

        Returns:
          float32 [B, D].
        """
        is_pooled = tf.not_equal(input_mask, 0)
        if not self.modules.include_prompt:
            positions = tf.range(tf.shape(input_mask)[1])
            lengths = tf.reshape(prompt_length, [-1, 1])
            is_pooled = is_pooled & (positions >= lengths)
        pooled = [pool(hidden, is_pooled, m) for m in self.modules.pooling]
        vectors = tf.concat(pooled, axis=1)
        for step in self._steps:
            vectors = step(vectors)
        return vectors[:, : self.modules.truncate_dim]

    @property
    def trained_modules(self) -> SentenceModules:
        """The modules with the present values of the weights."""
        values = iter(self._dense_weights)
        steps = [
            dataclasses.replace(
                step,
                **{name: next(values).numpy() for name in _weight_names(step)},
            )
            if isinstance(step, Dense)
            else step
            for step in self.modules.steps
        ]
        return dataclasses.replace(self.modules, steps=tuple(steps))


def build_steps(
    modules: Sequence[Step],
) -> tuple[list[Callable[[tf.Tensor], tf.Tensor]], list[keras.Variable]]:
    """Builds functions of vectors, float32 [N, D], and their variables."""
    weights: list[keras.Variable] = []
    steps = [
        _dense(step, weights) if isinstance(step, Dense) else _normalised
        for step in modules
    ]
    return steps, weights


def _weight_names(dense: Dense) -> list[str]:
    """The names of its arrays, in the order of its variables."""
    names = ("kernel", "bias", "residual_kernel")
    return [name for name in names if getattr(dense, name) is not None]


def _dense(
    dense: Dense, weights: list[keras.Variable]
) -> Callable[[tf.Tensor], tf.Tensor]:
    own = {
        name: keras.Variable(getattr(dense, name), dtype="float32", name=name)
        for name in _weight_names(dense)
    }
    weights += own.values()
    activate = ACTIVATIONS[dense.activation]

    def compute(vectors: tf.Tensor) -> tf.Tensor:
        found = tf.matmul(vectors, own["kernel"])
        found = activate(found + own["bias"] if "bias" in own else found)
        if not dense.use_residual:
            return found
        if "residual_kernel" in own:
            vectors = tf.matmul(vectors, own["residual_kernel"])
        return found + vectors

    return compute


def _normalised(vectors: tf.Tensor) -> tf.Tensor:
    """Scales vectors to unit length."""
    squares = tf.reduce_sum(tf.square(vectors), axis=1, keepdims=True)
    return vectors / tf.maximum(tf.sqrt(squares), SHORTEST)
