"""Windows on token ids in the graph."""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.serving.requests import unless
from bert_tf.serving.rows import counted

# run_squad.py `_check_is_max_context`: how much a longer window is worth.
_LENGTH_WORTH = 0.01


class Windows(NamedTuple):
    """W windows on N texts, those of a text one after the other.

    Attributes:
      text: int32 [W], whose each is.
      number: int32 [W], its number among those of its text.
      offset: int32 [W], the token of its text that it begins with.
      shown: int32 [W], its tokens.
    """

    text: tf.Tensor
    number: tf.Tensor
    offset: tf.Tensor
    shown: tf.Tensor


def overlapping(
    length: tf.Tensor,
    room: tf.Tensor | int,
    stride: int,
    most: int,
    name: str,
    empty: int = 1,
) -> Windows:
    """Windows every `stride` tokens until one reaches the end of its text.

    Args:
      length: int32 [N], tokens of each text.
      room: tokens of a window, or int32 [N].
      stride: tokens from one window to the next; where it is longer than a
        window, windows follow one another.
      most: windows of a text; more are refused.
      name: of the input that the texts are from, for the error.
      empty: windows of a text without tokens.
    """
    room = tf.broadcast_to(room, tf.shape(length))
    stride = tf.minimum(stride, room)
    more = -(-tf.maximum(length - room, 0) // stride)
    windows = tf.where(length > 0, 1 + more, empty)
    windows = unless(
        windows > most,
        windows,
        f"{name}: the text of row {{}} takes {{}} windows, and this model "
        f"reads at most {most} of a text; shorten it.",
        windows,
    )
    text, number = counted(windows)
    offset = number * tf.gather(stride, text)
    shown = tf.minimum(tf.gather(length, text) - offset, tf.gather(room, text))
    return Windows(text, number, offset, shown)


def most_context(windows: Windows) -> tuple[tf.Tensor, tf.Tensor]:
    """Which tokens of a window no other window shows in more context.

    The rule is that of `finetuning.question_answering.windows`: a window is
    worth the lesser number of tokens left and right of a token, plus a
    hundredth of its length; the first of the best counts.

    Returns:
      Begin and exclusive end of the stretch in each window, int32 [W].
    """
    window, left = counted(windows.shown)
    length = tf.gather(windows.shown, window)
    least = tf.cast(tf.minimum(left, length - 1 - left), tf.float64)
    worth = least + _LENGTH_WORTH * tf.cast(length, tf.float64)
    ends = windows.offset + windows.shown
    # Texts end to end, each with room for its last window's end.
    sizes = tf.math.unsorted_segment_max(
        ends, windows.text, largest_text(windows)
    )
    begin = tf.cumsum(tf.maximum(sizes, 0), exclusive=True)
    place = tf.gather(begin, windows.text) + windows.offset
    token = tf.gather(place, window) + left
    total = tf.reduce_sum(tf.maximum(sizes, 0))
    best = tf.math.unsorted_segment_max(worth, token, total)
    owner = tf.math.unsorted_segment_min(
        tf.where(worth == tf.gather(best, token), window, window.dtype.max),
        token,
        total,
    )
    count = tf.math.unsorted_segment_sum(
        tf.ones_like(owner), owner, tf.size(windows.text)
    )
    # Stretches follow one another through a text.
    end = tf.cumsum(count) - place
    return end - count, end


def largest_text(windows: Windows) -> tf.Tensor:
    """One more than the number of the last text that has a window."""
    return tf.reduce_max(tf.concat([[0], windows.text + 1], 0))
