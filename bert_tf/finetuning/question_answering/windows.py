"""Questions with windows of their contexts, as rows of token ids."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_tf.errors import UserError
from bert_tf.finetuning.question_answering.squad_files import BLANKS, Question
from bert_tf.finetuning.rows import RowsAround
from bert_tf.text.rows import (
    EncodedRows,
    TokenIds,
    counted,
    pack_rows,
    take_ranges,
    tokenize_texts,
)

if TYPE_CHECKING:
    # It brings TensorFlow, which scoring a file needs nothing of.
    from bert_tf.text.tokenizer import BertTokenizer

# Contexts tokenised at a time.
_CONTEXTS = 512


@dataclasses.dataclass(frozen=True)
class TokenizedContexts:
    """C different contexts as tokens, with the word that each token is of.

    Words and characters are numbered through all contexts, one character
    between two of them.

    Attributes:
      texts: the contexts.
      tokens: their token ids, end to end in this order.
      character_begin: int64 [C], the number of each one's first character.
      word_starts: int64 [words], the character at which each word begins.
      word_of_token: int64 [T], the word of each token, ascending.
    """

    texts: tuple[str, ...]
    tokens: TokenIds
    character_begin: np.ndarray
    word_starts: np.ndarray
    word_of_token: np.ndarray

    def word_at(self, context: np.ndarray, character: np.ndarray) -> np.ndarray:
        """The numbers of the words at some characters.

        Args:
          context: int64 [N], contexts by number.
          character: int64 [N], characters of them; at a blank, the word before
            it is meant.
        """
        place = self.character_begin[context] + character
        return np.searchsorted(self.word_starts, place, side="right") - 1

    def first_word(self, context: int) -> int:
        """The number of a context's first word."""
        begin = self.character_begin[context]
        return int(np.searchsorted(self.word_starts, begin))


def tokenize_contexts(
    contexts: Sequence[str], tokenizer: "BertTokenizer"
) -> tuple[TokenizedContexts, np.ndarray]:
    """Tokenises contexts, equal ones once.

    google-research/bert tokenises every word of its own; since its tokenizer
    never looks across the blanks that divide them, the tokens of the whole
    are the same.

    Args:
      contexts: N contexts.
      tokenizer: what makes the tokens.

    Returns:
      The different contexts and, for each of the N, its number, int64 [N].
    """
    different = dict.fromkeys(contexts)
    # Batches of ASCII alone are tokenised faster, so they come first.
    plain = [text for text in different if text.isascii()]
    other = [text for text in different if not text.isascii()]
    texts = (*plain, *other)
    numbers = {text: number for number, text in enumerate(texts)}
    lengths = np.array([len(text) + 1 for text in texts], np.int64)
    character_begin = np.cumsum(lengths) - lengths
    ids, counts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    starts = [np.zeros(0, np.int64)]
    word_starts = [np.zeros(0, np.int64)]
    number = 0
    for batch in _batches(plain, other):
        begins = character_begin[number : number + len(batch)]
        found, first, _ = tokenizer.tokenize_with_offsets(batch)
        ids.append(found.values.numpy())
        counts.append(found.row_lengths().numpy())
        starts.append(first.values.numpy() + np.repeat(begins, counts[-1]))
        word_starts.append(_word_starts(batch) + begins[0])
        number += len(batch)
    count, all_starts = np.concatenate(counts), np.concatenate(word_starts)
    tokens = TokenIds(np.concatenate(ids), np.cumsum(count) - count, count)
    word_of_token = (
        np.searchsorted(all_starts, np.concatenate(starts), side="right") - 1
    )
    return (
        TokenizedContexts(
            texts, tokens, character_begin, all_starts, word_of_token
        ),
        np.array([numbers[text] for text in contexts], np.int64),
    )


def _batches(*groups: Sequence[str]) -> list[list[str]]:
    return [
        list(group[start : start + _CONTEXTS])
        for group in groups
        for start in range(0, len(group), _CONTEXTS)
    ]


def _word_starts(texts: Sequence[str]) -> np.ndarray:
    """Where the words begin in texts that one blank stands between."""
    joined = BLANKS[0] + BLANKS[0].join(texts)
    codes = np.frombuffer(joined.encode("utf-32-le"), "<u4")
    blank = np.zeros(len(codes), bool)
    for character in BLANKS:
        blank |= codes == ord(character)
    return np.flatnonzero(blank[:-1] & ~blank[1:]).astype(np.int64)


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
    tokenizer: "BertTokenizer",
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
    tokenizer: "BertTokenizer",
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
