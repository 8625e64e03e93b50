"""Requests in the graph: what they hold, and what is refused."""

from collections.abc import Callable

import tensorflow as tf

from bert_tf.features import ENCODER_INPUTS

Tensors = dict[str, tf.Tensor]


def signature(
    function: Callable[..., Tensors], *specs: tf.TensorSpec
) -> Callable[..., Tensors]:
    """A function of tensors as the graph that is served."""
    # Nothing in it is Python control flow, so nothing has to be rewritten.
    return tf.function(function, input_signature=specs, autograph=False)


def text_spec(name: str) -> tf.TensorSpec:
    """An input of strings [B]."""
    return tf.TensorSpec([None], tf.string, name=name)


def token_specs(rank: int = 2) -> tuple[tf.TensorSpec, ...]:
    """The encoder's inputs, int32 of that many open axes."""
    return tuple(
        tf.TensorSpec([None] * rank, feature.dtype, name=feature.name)
        for feature in ENCODER_INPUTS
    )


def unless(
    wrong: tf.Tensor, value: tf.Tensor, message: str, *values: tf.Tensor
) -> tf.Tensor:
    """A value, or INVALID_ARGUMENT where something is wrong.

    Args:
      wrong: bool [B].
      value: what is returned; what is computed of it waits for the check.
      message: what is wrong, with "{}" for the number of the first wrong row
        and for its entry in each of `values`.
      *values: int32 [B].
    """
    row = tf.argmax(tf.concat([wrong, [True]], 0), output_type=tf.int32)
    # The last entry is for where nothing is wrong, and is never shown.
    shown = [tf.concat([value, [0]], 0)[row] for value in values]
    text = tf.strings.format(message, [row, *shown])
    check = tf.debugging.Assert(~tf.reduce_any(wrong), [text])
    # Eagerly the check has run already.
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(value)


def as_many(**inputs: tf.Tensor) -> list[tf.Tensor]:
    """Two inputs, or INVALID_ARGUMENT unless they have as many rows."""
    (name, first), (other, second) = inputs.items()
    counts = [tf.shape(first)[0], tf.shape(second)[0]]
    text = tf.strings.format(
        f"{name} has {{}} rows and {other} {{}}; they must be as many.", counts
    )
    check = tf.debugging.Assert(tf.equal(*counts), [text])
    with tf.control_dependencies([] if check is None else [check]):
        return [tf.identity(first), tf.identity(second)]


def valid_text(text: tf.Tensor) -> tf.Tensor:
    """Strings with U+FFFD for bytes that are not UTF-8."""
    return tf.strings.unicode_transcode(
        text, "UTF-8", "UTF-8", errors="replace"
    )


def parsed_texts(
    examples: tf.Tensor, names: tuple[str, ...]
) -> tuple[tf.Tensor, ...]:
    """The strings [B] of serialized tf.Examples, string [B], by name."""
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in names}
    parsed = tf.io.parse_example(examples, features)
    return tuple(parsed[name] for name in names)
