"""Questions with windows of their contexts, as rows of token ids.

The rules are those of google-research/bert, run_squad.py,
`convert_examples_to_features`: [CLS] question [SEP] window [SEP], a window
every `doc_stride` tokens until one reaches the end of the context.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.finetuning.rows import RowsAround
from bert_tf.finetuning.spans.contexts import (
    TokenizedContexts,
    tokenize_contexts,
)
from bert_tf.finetuning.spans.squad_file import Question
from bert_tf.text.rows import (
    EncodedRows,
    TokenIds,
    counted,
    pack_rows,
    take_ranges,
    tokenize_texts,
)
from bert_tf.text.tokenizer import BertTokenizer

# [CLS] and two [SEP].
_SPECIALS = 3
# run_squad.py `_check_is_max_context`: how much a longer window is worth.
_LENGTH_WORTH = 0.01


@dataclasses.dataclass(frozen=True)
class SpanWindows(RowsAround):
    """W windows of N questions. A context without tokens has none.

    Attributes:
      rows: the windows; its examples are the questions.
      contexts: the contexts of the questions.
      context: int64 [N], the context of each question by number.
      offset: int64 [W], the token of its context that a window begins with.
      owned: int64 [W, 2], begin and exclusive end of the positions of a row
        whose tokens no other window shows in more context.
      cut_questions: how many questions were longer than they may be.
    """

    rows: EncodedRows
    contexts: TokenizedContexts
    context: np.ndarray
    offset: np.ndarray
    owned: np.ndarray
    cut_questions: int

    @functools.cached_property
    def shift(self) -> np.ndarray:
        """A context token's number less its position in the row, int64 [W]."""
        return self.offset - self.rows.first


def make_windows(
    questions: Sequence[Question],
    tokenizer: BertTokenizer,
    max_seq_length: int = 384,
    doc_stride: int = 128,
    max_query_length: int = 64,
) -> SpanWindows:
    """Makes the windows of all questions.

    Args:
      questions: N questions.
      tokenizer: what turns texts into ids.
      max_seq_length: S, the longest row.
      doc_stride: tokens from the start of a window to that of the next; where
        it is longer than a window, windows follow one another.
      max_query_length: the longest question; others are cut at their end.

    Raises:
      UserError: the lengths leave no room for a context, or one is not
        positive.
    """
    _check_lengths(max_seq_length, doc_stride, max_query_length)
    contexts, context = tokenize_contexts(
        [question.context for question in questions], tokenizer
    )
    asked = tokenize_texts([q.question for q in questions], tokenizer)
    cut = np.minimum(asked.count, max_query_length)
    room = max_seq_length - _SPECIALS - cut
    length = contexts.tokens.count[context]
    stride = np.minimum(doc_stride, room)
    more = -(-np.maximum(length - room, 0) // stride)
    windows = np.where(length > 0, 1 + more, 0)
    example = np.repeat(np.arange(len(questions)), windows)
    offset = counted(windows) * stride[example]
    shown = np.minimum(length[example] - offset, room[example])
    rows = pack_rows(
        example,
        TokenIds(asked.ids, asked.begin[example], cut[example]),
        TokenIds(
            contexts.tokens.ids,
            contexts.tokens.begin[context[example]] + offset,
            shown,
        ),
        len(questions),
        tokenizer,
    )
    owned = _most_context(windows, offset, shown) + rows.first[:, None]
    cut_questions = int(np.sum(asked.count > max_query_length))
    return SpanWindows(rows, contexts, context, offset, owned, cut_questions)


def _check_lengths(
    max_seq_length: int, doc_stride: int, max_query_length: int
) -> None:
    for name, value in (
        ("doc_stride", doc_stride),
        ("max_query_length", max_query_length),
    ):
        if value < 1:
            raise UserError(f"{name}={value}: at least 1 is wanted.")
    if max_seq_length < max_query_length + _SPECIALS + 1:
        raise UserError(
            f"max_seq_length={max_seq_length}: leaves no room for a context "
            f"beside a question of max_query_length={max_query_length} tokens "
            "and 3 special ones; raise it, or lower max_query_length."
        )


def _most_context(
    windows: np.ndarray, offset: np.ndarray, shown: np.ndarray
) -> np.ndarray:
    """Which tokens of a window no other window shows in more context.

    A window is worth the lesser number of tokens left and right of a token,
    plus a hundredth of its length; the first of the best counts. The tokens
    of a window for which it is the best are a stretch.

    Args:
      windows: int64 [N], the windows of each question.
      offset: int64 [W], the context token that a window begins with.
      shown: int64 [W], its context tokens.

    Returns:
      int64 [W, 2], begin and exclusive end of the stretch, in the window.
    """
    owned = np.stack([np.zeros_like(shown), shown], axis=1)
    several = np.flatnonzero(np.repeat(windows > 1, windows))
    number = counted(windows)[several]
    if not several.size:
        return owned
    # The tokens of all questions with several windows, end to end.
    is_last = np.append(number[1:] == 0, True)
    lengths = (offset + shown)[several][is_last]
    question = np.cumsum(number == 0) - 1
    place = (np.cumsum(lengths) - lengths)[question] + offset[several]
    best = np.full(lengths.sum(), -1.0)
    owner = np.zeros(lengths.sum(), np.int64)
    for turn in range(number.max() + 1):
        these = np.flatnonzero(number == turn)
        size = shown[several[these]]
        left = counted(size)
        length = np.repeat(size, size)
        worth = np.minimum(left, length - 1 - left) + _LENGTH_WORTH * length
        tokens = np.repeat(place[these], size) + left
        better = worth > best[tokens]
        best[tokens[better]] = worth[better]
        owner[tokens[better]] = np.repeat(these, size)[better]
    count = np.bincount(owner, minlength=len(several))
    # Stretches follow one another through the context.
    end = np.cumsum(count) - place
    owned[several] = np.stack([end - count, end], axis=1)
    return owned


def answer_positions(
    windows: SpanWindows,
    questions: Sequence[Question],
    tokenizer: BertTokenizer,
) -> np.ndarray:
    """Where the answers lie in the windows.

    As in run_squad.py: an answer is the words that it touches, or the tokens
    among theirs that are its own (`_improve_answer_span`). A window that does
    not show all of it, or a question without one, is answered by [CLS].

    Args:
      windows: the windows of the questions.
      questions: N questions as `trainable` returns them.
      tokenizer: what made the windows.

    Returns:
      int32 [W, 2], the positions of the first and the last token.
    """
    answered = np.flatnonzero([bool(q.answers) for q in questions])
    answers = [questions[number].answers[0] for number in answered.tolist()]
    context = windows.context[answered]
    begin = np.array([answer.start for answer in answers], np.int64)
    size = np.array([len(answer.text) for answer in answers], np.int64)
    contexts = windows.contexts
    word = contexts.word_of_token
    first = np.searchsorted(word, contexts.word_at(context, begin))
    last_word = contexts.word_at(context, begin + size - 1)
    last = np.searchsorted(word, last_word, side="right") - 1
    own = tokenize_texts([answer.text for answer in answers], tokenizer)
    first, last = _improved(contexts.tokens.ids, first, last, own)
    # Tokens of all contexts, by question; none where the answer has none.
    tokens = np.full((len(questions), 2), -1, np.int64)
    tokens[answered[first <= last]] = np.stack([first, last], 1)[first <= last]
    begin = contexts.tokens.begin[windows.context[windows.rows.example]]
    positions = tokens[windows.rows.example] - (begin + windows.shift)[:, None]
    inside = (positions[:, 0] >= windows.rows.first) & (
        positions[:, 1] < windows.rows.lengths - 1
    )
    return np.where(inside[:, None], positions, 0).astype(np.int32)


def _improved(
    ids: np.ndarray, first: np.ndarray, last: np.ndarray, own: TokenIds
) -> tuple[np.ndarray, np.ndarray]:
    """The first stretch of tokens that equals an answer's own, if any.

    Args:
      ids: int32 [T], the tokens of all contexts.
      first: int64 [A], where to look for each answer.
      last: int64 [A], inclusive.
      own: the tokens of the answers themselves.
    """
    first, last = first.copy(), last.copy()
    open_ = np.flatnonzero(own.count > 0)
    shift = 0
    while open_.size:
        count, start = own.count[open_], first[open_] + shift
        fits = start + count - 1 <= last[open_]
        open_, count, start = open_[fits], count[fits], start[fits]
        if not open_.size:
            break
        same = take_ranges(ids, start, count) == take_ranges(
            own.ids, own.begin[open_], count
        )
        equal = np.logical_and.reduceat(same, np.cumsum(count) - count)
        first[open_[equal]] = start[equal]
        last[open_[equal]] = (start + count - 1)[equal]
        open_ = open_[~equal]
        shift += 1
    return first, last
