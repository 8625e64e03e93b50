"""Spans of tokens that may be answers, in the graph.

The rules are those of `finetuning.question_answering.decoding`.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.serving.rows import FlatTexts, Rows
from bert_tf.serving.windows import Windows, most_context


class Candidates(NamedTuple):
    """Spans of tokens, by question and the best first.

    Attributes:
      question: int32 [V].
      first: int32 [V], tokens of the flat list of all contexts.
      last: int32 [V], likewise.
      score: float64 [V], start logit and end logit together.
      null: float64 [B], those of no answer, in the window where they are the
        least.
    """

    question: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor
    score: tf.Tensor
    null: tf.Tensor


def find_candidates(
    rows: Rows,
    windows: Windows,
    contexts: FlatTexts,
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
    n_best_size: int,
    max_answer_length: int,
) -> Candidates:
    """Finds the candidates of B questions.

    Args:
      rows: the W windows as rows.
      windows: the windows on the contexts.
      contexts: the B contexts.
      start_logits: float32 [W, S].
      end_logits: float32 [W, S].
      n_best_size: how many starts and ends of a window are tried.
      max_answer_length: the most tokens of an answer.
    """
    lengths, before = rows.lengths, rows.first.count + 2
    starts = _best_positions(start_logits, lengths, n_best_size)
    ends = _best_positions(end_logits, lengths, n_best_size)
    own_begin, own_end = (
        (before + bound)[:, tf.newaxis, tf.newaxis]
        for bound in most_context(windows)
    )
    first, last = starts[:, :, tf.newaxis], ends[:, tf.newaxis]
    fits = tf.where(
        (own_begin <= first)
        & (first < own_end)
        & (first <= last)
        & (last < lengths[:, tf.newaxis, tf.newaxis] - 1)
        & (last - first < max_answer_length)
    )
    window, i, j = tf.unstack(tf.cast(fits, tf.int32), num=3, axis=1)
    first = _at(starts, window, i)
    last = _at(ends, window, j)
    score = tf.cast(_at(start_logits, window, first), tf.float64)
    score += tf.cast(_at(end_logits, window, last), tf.float64)
    question = tf.gather(windows.text, window)
    # The order of what is equal is the original's: window, start, end.
    order = tf.argsort(-score, stable=True)
    by_question = tf.argsort(tf.gather(question, order), stable=True)
    order = tf.gather(order, by_question)
    shift = tf.gather(contexts.begin, question) + tf.gather(
        windows.offset - before, window
    )
    return Candidates(
        tf.gather(question, order),
        tf.gather(first + shift, order),
        tf.gather(last + shift, order),
        tf.gather(score, order),
        _null(windows, contexts, start_logits, end_logits),
    )


def _at(values: tf.Tensor, row: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
    return tf.gather_nd(values, tf.stack([row, column], 1))


def _best_positions(
    logits: tf.Tensor, lengths: tf.Tensor, count: int
) -> tf.Tensor:
    """The positions of the highest logits, the first of equal ones first.

    Args:
      logits: float32 [W, S].
      lengths: int32 [W].
      count: how many are wanted.

    Returns:
      int32 [W, K], past a row's end where it is short.
    """
    width = tf.shape(logits)[1]
    in_row = tf.range(width) < lengths[:, tf.newaxis]
    masked = tf.where(in_row, logits, -float("inf"))
    return tf.math.top_k(masked, tf.minimum(count, width)).indices


def _null(
    windows: Windows,
    contexts: FlatTexts,
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
) -> tf.Tensor:
    """The score of no answer, float64 [B]; 0 where there is no window."""
    score = tf.cast(start_logits[:, 0], tf.float64)
    score += tf.cast(end_logits[:, 0], tf.float64)
    least = tf.math.unsorted_segment_min(
        score, windows.text, tf.size(contexts.count)
    )
    return tf.where(contexts.count > 0, least, tf.zeros_like(least))
