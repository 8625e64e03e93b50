"""Requests to signatures: their specs, their checks, and sample requests."""

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
# Lengths in tokens of the sample requests that check and warm up a model.
_SAMPLE_LENGTHS = (32, 64, 96, 128, 192, 256, 384, 512)
# The rows of a model without positions may be far longer than is useful here.
LONGEST_SAMPLE = 8192
# Fewer words than tokens, so that a text stays within its length.
_WORDS_A_TOKEN = 0.7
QUESTIONS = (
    "When does the ferry leave?",
    "Who sells the tickets?",
    "How long does the crossing take?",
    "What was built in 1854?",
)


# The error of a row that `unless` refuses.
_REFUSAL = re.compile(
    r"assertion failed: \[(\w+): (?:the text of )?row 0 (.+?)\](?:\s|$)", re.S
)


class Request(NamedTuple):
    """Inputs of a signature, by name."""

    signature: str
    inputs: dict[str, np.ndarray]


class Refusal(NamedTuple):
    """Why a model refuses a row.

    Attributes:
      column: the input that is refused.
      why: the reason, the predicate of a sentence about the text.
    """

    column: str
    why: str


def refusal_of(error: tf.errors.InvalidArgumentError) -> Refusal | None:
    """Parses the error of a request of one row; None for other errors."""
    found = _REFUSAL.search(error.message)
    return Refusal(*found.groups()) if found else None


def signature(
    function: Callable[..., Tensors], *specs: tf.TensorSpec
) -> Callable[..., Tensors]:
    """Wraps a function of tensors as a graph with an input signature."""
    # It has no Python control flow that autograph would have to rewrite.
    return tf.function(function, input_signature=specs, autograph=False)


def text_spec(name: str) -> tf.TensorSpec:
    """The spec of an input of strings [B]."""
    return tf.TensorSpec([None], tf.string, name=name)


def token_specs(rank: int = 2) -> tuple[tf.TensorSpec, ...]:
    """The specs of the encoder's inputs, int32, with `rank` unknown axes."""
    return tuple(
        tf.TensorSpec([None] * rank, feature.dtype, name=feature.name)
        for feature in ENCODER_INPUTS
    )


def unless(
    wrong: tf.Tensor, value: tf.Tensor, message: str, *values: tf.Tensor
) -> tf.Tensor:
    """Returns a value, or fails with INVALID_ARGUMENT for invalid rows.

    Args:
      wrong: bool [B], whether each row is invalid.
      value: the return value, on which the check is a control dependency.
      message: the error, with "{}" for the index of the first invalid row and
        for its entry in each of `values`.
      *values: int32 [B].
    """
    row = tf.argmax(tf.concat([wrong, [True]], 0), output_type=tf.int32)
    # The last entry is read if no row is wrong, and is never shown.
    shown = [tf.concat([value, [0]], 0)[row] for value in values]
    text = tf.strings.format(message, [row, *shown])
    if tf.executing_eagerly():
        if tf.reduce_any(wrong):
            # The message of the graph; an eager Assert escapes the text.
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
    """Makes the windows of texts; INVALID_ARGUMENT if a text has too many.

    Args:
      length: int32 [N], the tokens of each text.
      room: the tokens of a window, a number or int32 [N].
      stride: the tokens from the start of a window to that of the next.
      max_windows: the most windows of a text.
      name: the input of the texts, for the error.
      empty: the windows of a text without tokens.
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
    """Returns two inputs; INVALID_ARGUMENT unless their rows are as many."""
    (name, first), (other, second) = inputs.items()
    counts = [tf.shape(first)[0], tf.shape(second)[0]]
    text = tf.strings.format(
        f"{name} has {{}} rows and {other} {{}}; they must be equal.", counts
    )
    check = tf.debugging.Assert(tf.equal(*counts), [text])
    with tf.control_dependencies([] if check is None else [check]):
        return [tf.identity(first), tf.identity(second)]


def valid_text(text: tf.Tensor) -> tf.Tensor:
    """Replaces bytes that are not UTF-8 by U+FFFD."""
    return tf.strings.unicode_transcode(
        text, "UTF-8", "UTF-8", errors="replace"
    )


def parsed_texts(
    examples: tf.Tensor, names: tuple[str, ...]
) -> tuple[tf.Tensor, ...]:
    """Parses serialized tf.Examples, string [B], to a string [B] per name."""
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in names}
    parsed = tf.io.parse_example(examples, features)
    return tuple(parsed[name] for name in names)


def string_array(texts: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
    """Encodes strings as an object array of bytes."""
    array = np.array(texts, object)
    encoded = [text.encode("utf-8") for text in array.ravel()]
    result = np.empty(array.size, object)
    result[:] = encoded
    return result.reshape(array.shape)


def requests_of(signature: str, **columns: Sequence) -> list[Request]:
    """Makes a request of each row of columns of strings, and one of all."""
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
    """Returns a text of `words` words, from the word `start` of the sample."""
    endless = itertools.cycle(_WORDS)
    return " ".join(itertools.islice(endless, start, start + words))


def sample_lengths(max_seq_length: int) -> list[int]:
    """Returns the words that fill rows of several lengths, ascending."""
    lengths = [n for n in _SAMPLE_LENGTHS if n < max_seq_length]
    lengths.append(min(max_seq_length, LONGEST_SAMPLE))
    return [max(int(_WORDS_A_TOKEN * length), 1) for length in lengths]


def sample_texts(max_seq_length: int, columns: int) -> list[tuple[str, ...]]:
    """Returns a row of texts for each sample length, and an empty one."""
    rows = []
    for words in sample_lengths(max_seq_length):
        share = max(words // columns, 1)
        rows.append(
            tuple(sample_text(share, 7 * number) for number in range(columns))
        )
    return [*rows, ("",) * columns]


def example_bytes(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Serializes rows of strings as tf.Examples."""
    found = np.empty(len(next(iter(columns.values()))), object)
    for row in range(len(found)):
        example = tf.train.Example()
        for name, values in columns.items():
            feature = example.features.feature[name]
            feature.bytes_list.value.append(values[row])
        found[row] = example.SerializeToString()
    return found
