"""Requests: what signatures take, what they refuse, and samples of requests."""

import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.features import ENCODER_INPUTS
from bert_tf.text.layout import Windows, make_windows, num_windows

Tensors = dict[str, tf.Tensor]

_TEXT = """
The ferry to the island leaves at seven in the morning, and by half past six
the quay is full of people with bicycles, baskets and small dogs. Anna Larsen
has sold tickets here since 1998; she knows most of the passengers by name.
"It was quieter then," she says, "but nobody had time for coffee." In summer
more than 2,000 visitors cross the sound each day, three times as many as in
winter, when the boat belongs to the teachers of the school in Nordby and to
the engineers of the Baltic Wind Company. The crossing takes forty minutes. On
the left one sees the lighthouse, which was built in 1854 after the wreck of
the Margaret; on the right, if the fog allows it, the towers of Copenhagen.
Those who have made the journey often do not look up from their newspapers.
The others stand at the rail, wait for the gulls and take the same photograph
again and again. Is it worth the fare? Most of them would say yes: the bread
from Mr. Holm's bakery alone, still warm at eight o'clock, is a good reason to
come back.
"""
_WORDS = tuple(_TEXT.split())
# Tokens of rows that a model is tried and warmed up with.
_SAMPLE_LENGTHS = (32, 64, 96, 128, 192, 256, 384, 512)
# Fewer words than tokens, so that a text stays within its length.
_WORDS_A_TOKEN = 0.7
QUESTIONS = (
    "When does the ferry leave?",
    "Who sells the tickets?",
    "How long does the crossing take?",
    "What was built in 1854?",
)


# What the graph says of a row that `unless` refuses.
_REFUSAL = re.compile(
    r"assertion failed: \[(\w+): (?:the text of )?row 0 (.+?)\](?:\s|$)", re.S
)


class Request(NamedTuple):
    """Inputs of a signature, by name."""

    signature: str
    inputs: dict[str, np.ndarray]


class Refusal(NamedTuple):
    """Why a model does not answer to a row.

    Attributes:
      column: whose text it is.
      why: a sentence about it, from the verb on.
    """

    column: str
    why: str


def refusal_of(error: tf.errors.InvalidArgumentError) -> Refusal | None:
    """Why a request of one row is refused; None of another error."""
    found = _REFUSAL.search(error.message)
    return Refusal(*found.groups()) if found else None


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
    if tf.executing_eagerly():
        if tf.reduce_any(wrong):
            # As the graph reports it; an eager Assert escapes the text.
            raise tf.errors.InvalidArgumentError(
                None, None, f"assertion failed: [{text.numpy().decode()}]"
            )
        return value
    check = tf.debugging.Assert(~tf.reduce_any(wrong), [text])
    with tf.control_dependencies([check]):
        return tf.identity(value)


def checked_windows(
    length: tf.Tensor,
    room: tf.Tensor | int,
    stride: int,
    max_windows: int,
    name: str,
    empty: int = 1,
    align_last: bool = False,
) -> Windows:
    """The windows on texts, or INVALID_ARGUMENT where a text takes too many.

    Args:
      length: int32 [N], tokens of each text.
      room: tokens of a window, or int32 [N].
      stride: tokens from one window to the next.
      max_windows: of a text; more are refused.
      name: of the input that the texts are from, for the error.
      empty: windows of a text without tokens.
      align_last: see `make_windows`.
    """
    counts = num_windows(length, room, stride, empty)
    counts = unless(
        counts > max_windows,
        counts,
        f"{name}: the text of row {{}} takes {{}} windows, and this model "
        f"reads at most {max_windows} of a text; shorten it.",
        counts,
    )
    return make_windows(counts, length, room, stride, align_last)


def equal_rows(**inputs: tf.Tensor) -> list[tf.Tensor]:
    """Two inputs, or INVALID_ARGUMENT where they differ in their rows."""
    (name, first), (other, second) = inputs.items()
    counts = [tf.shape(first)[0], tf.shape(second)[0]]
    text = tf.strings.format(
        f"{name} has {{}} rows and {other} {{}}; they must be equal.", counts
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


def string_array(texts: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
    """Strings as an array of bytes, which requests hold."""
    array = np.array(texts, object)
    encoded = [text.encode("utf-8") for text in array.ravel()]
    result = np.empty(array.size, object)
    result[:] = encoded
    return result.reshape(array.shape)


def requests_of(signature: str, **columns: Sequence) -> list[Request]:
    """A request of each row of some columns of strings, and one of all."""
    count = len(next(iter(columns.values())))
    rows = [slice(row, row + 1) for row in range(count)] + [slice(None)]
    return [
        Request(
            signature,
            {
                name: string_array(column[row])
                for name, column in columns.items()
            },
        )
        for row in rows
    ]


def sample_text(words: int, start: int = 0) -> str:
    """A text of that many words."""
    endless = itertools.cycle(_WORDS)
    return " ".join(itertools.islice(endless, start, start + words))


def sample_lengths(max_seq_length: int) -> list[int]:
    """Words of texts that fill rows of several lengths, the longest last."""
    lengths = [n for n in _SAMPLE_LENGTHS if n < max_seq_length]
    lengths.append(max_seq_length)
    return [max(int(_WORDS_A_TOKEN * length), 1) for length in lengths]


def sample_texts(max_seq_length: int, columns: int) -> list[tuple[str, ...]]:
    """A row of one or two texts for each length, and an empty one."""
    rows = []
    for words in sample_lengths(max_seq_length):
        share = max(words // columns, 1)
        rows.append(
            tuple(sample_text(share, 7 * number) for number in range(columns))
        )
    return [*rows, ("",) * columns]


def example_bytes(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Rows of strings as serialized tf.Examples."""
    found = np.empty(len(next(iter(columns.values()))), object)
    for row in range(len(found)):
        example = tf.train.Example()
        for name, values in columns.items():
            feature = example.features.feature[name]
            feature.bytes_list.value.append(values[row])
        found[row] = example.SerializeToString()
    return found
