"""Finds the words of texts by their characters, as CoNLL's files have them.

Blanks separate words, and punctuation marks and ideographs are words of their
own, as in google-research/bert, tokenization.py, `BasicTokenizer`. Files of
tagged words keep U.N., O'Neal, 1996-08-22 and AT&T as one word and 's as a
word, so some of these words are joined. Words do not depend on how a tokenizer
splits them, except that each added token of a tokenizer is a word.
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.text import unicode_tables
from bert_tf.text.layout import text_of
from bert_tf.text.tokenizer_protocol import Tokenizer

_APOSTROPHES = "'\u2019"
# Characters inside a word between letters, and between digits only.
_INSIDE = f"-._/&@+{_APOSTROPHES}\u2010\u2011"
_INSIDE_NUMBERS = ",:"
# Kinds of code points.
_LETTER, _ALONE, _BLANK, _DROPPED = range(4)


class Words(NamedTuple):
    """K words of B texts.

    Attributes:
      row: int32 [K], the index of each word's text.
      begin: int32 [K], its first character in its text.
      end: int32 [K], its exclusive end.
      after_blank: bool [K], whether it is tokenized like a word after a blank;
        false next to an added token without a blank between them.
    """

    row: tf.Tensor
    begin: tf.Tensor
    end: tf.Tensor
    after_blank: tf.Tensor

    def texts(self, codes: tf.RaggedTensor) -> tf.Tensor:
        """The words, string [K], given the characters of the texts."""
        starts = tf.cast(codes.row_starts(), tf.int32)
        first = tf.gather(starts, self.row) + self.begin
        return text_of(codes.flat_values, first, self.end - self.begin)


def tokenize_words(
    tokenizer: Tokenizer,
    words: tf.Tensor,
    after_blank: tf.Tensor | bool = True,
) -> tuple[tf.RaggedTensor, ...]:
    """Tokenizes words, string [W], as words of a text.

    Args:
      tokenizer: the tokenizer.
      words: the words.
      after_blank: bool [W], see `Words`, or of all.

    Returns:
      The ids, their first characters and exclusive ends in the word, each
      int32 [W, tokens].
    """
    # Byte-level BPE has other tokens for a word at the start of a text.
    after_blank = tf.broadcast_to(after_blank, tf.shape(words))
    blank = tf.where(after_blank, " ", "")
    ids, begins, ends = tokenizer.tokenize_with_offsets(
        tf.strings.join([blank, words])
    )
    shift = tf.cast(after_blank, tf.int32)[:, tf.newaxis]
    return ids, tf.maximum(begins - shift, 0), tf.maximum(ends - shift, 0)


def first_tokens(
    tokenizer: Tokenizer, ids: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tf.Tensor:
    """Returns the index of the token that represents each word, int32 [W].

    It is the first one (Devlin et al. 2019, section 5.3), but an added token
    and not the token of the blank before it.

    Args:
      tokenizer: the tokenizer.
      ids: the tokens of words, int32 [W, tokens].
      ends: their exclusive ends in the word.
    """
    firsts = tf.cast(ids.row_starts(), tf.int32)
    if not tokenizer.added_ids:
        return firsts
    last = tf.maximum(tf.cast(ids.row_limits(), tf.int32) - 1, firsts)
    # Behind the last word, there may be no token.
    flat = tf.concat([ids.flat_values, [-1]], 0)
    second = tf.gather(flat, tf.minimum(firsts + 1, last))
    is_added = _is_in(second, tokenizer.added_ids)
    is_blank = tf.gather(tf.concat([ends.flat_values, [1]], 0), firsts) == 0
    return firsts + tf.cast(is_blank & is_added, tf.int32)


def _is_in(values: tf.Tensor, numbers: Collection[int]) -> tf.Tensor:
    """Whether each value, int32 [N], is one of some numbers >= 0."""
    table = np.zeros(max(numbers, default=0) + 2, bool)
    table[list(numbers)] = True
    # The last entry stands for all larger values and for -1.
    outside = (values < 0) | (values >= len(table) - 1)
    return tf.gather(table, tf.where(outside, len(table) - 1, values))


class WordFinder(tf.Module):
    """Finds the words of texts.

    Args:
      tokenizer: knows which characters are separate words, and finds added
        tokens.
    """

    def __init__(self, tokenizer: Tokenizer):
        super().__init__()
        self._tokenizer = tokenizer
        # An unknown word becomes this token too.
        unknown = tokenizer.vocabulary.unk_id
        self._added = {*tokenizer.added_ids} - {unknown}
        dropped = unicode_tables.dropped()
        kinds = np.full(unicode_tables.CODE_POINTS, _LETTER, np.int32)
        kinds[sorted(tokenizer.stand_alone)] = _ALONE
        kinds[sorted(unicode_tables.spaces())] = _BLANK
        kinds[sorted(dropped)] = _DROPPED
        # The first code point of each range of one kind.
        firsts = np.flatnonzero(np.diff(kinds, prepend=-1))
        with tf.init_scope(), tf.device("/CPU:0"):
            self._firsts = tf.constant(firsts, tf.int32)
            self._kinds = tf.constant(kinds[firsts])

    def __call__(self, codes: tf.RaggedTensor) -> Words:
        """Finds the words of characters, int32 [B, characters]."""
        flat = codes.flat_values
        run = tf.searchsorted(self._firsts, flat, side="right") - 1
        kind = tf.gather(self._kinds, run)
        rows = tf.cast(codes.value_rowids(), tf.int32)
        bound = rows != _shifted(rows, 1, -1)
        added, starts_added, after_added = self._added_tokens(codes)
        # Whatever an added token holds, it is a word and joined to no other.
        kind = tf.where(added, _LETTER, kind)
        is_solid, is_alone = kind != _BLANK, kind == _ALONE
        bound |= is_alone | _shifted(is_alone, 1, False)
        bound |= starts_added | after_added
        begins = is_solid & (bound | ~_shifted(is_solid, 1, False))
        ends = is_solid & _shifted(begins | ~is_solid, -1, True)
        begin, end = (
            tf.cast(tf.where(each)[:, 0], tf.int32) for each in (begins, ends)
        )
        end += 1
        # Characters that tokenizers remove are no word by themselves.
        is_visible = tf.cast(kind != _DROPPED, tf.int32)
        visible = tf.concat([[0], tf.cumsum(is_visible)], 0)
        found = tf.gather(visible, end) > tf.gather(visible, begin)
        begin, end = (tf.boolean_mask(each, found) for each in (begin, end))
        row = tf.gather(rows, begin)
        glued = self._glued(
            (row == _shifted(row, 1, -1)) & (begin == _shifted(end, 1, -1)),
            ~tf.gather(is_alone | added, begin),
            tf.gather(flat, begin),
            tf.gather(flat, end - 1),
            end - begin,
        )
        number = tf.where(~glued)[:, 0]
        last = tf.where(~_shifted(glued, -1, False))[:, 0]
        row = tf.gather(row, number)
        start = tf.gather(tf.cast(codes.row_starts(), tf.int32), row)
        begin = tf.gather(begin, number)
        is_first = _shifted(rows, 1, -1) != rows
        follows_blank = is_first | (_shifted(kind, 1, _BLANK) == _BLANK)
        after_blank = tf.where(
            starts_added, follows_blank & ~is_first, ~after_added
        )
        return Words(
            row,
            begin - start,
            tf.gather(end, last) - start,
            tf.gather(after_blank, begin),
        )

    def _added_tokens(
        self, codes: tf.RaggedTensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Finds the added tokens of texts, int32 [B, characters].

        Returns:
          Whether each character is in one, begins one, and follows one, bool
          [all characters].
        """
        count = tf.size(codes.flat_values)
        none = tf.zeros([count], tf.bool)
        if not self._added:
            return none, none, none
        texts = tf.strings.unicode_encode(codes, "UTF-8")
        ids, begins, ends = self._tokenizer.tokenize_with_offsets(texts)
        found = _is_in(ids.flat_values, self._added)
        row = tf.boolean_mask(ids.value_rowids(), found)
        shift = tf.gather(tf.cast(codes.row_starts(), tf.int32), row)
        begin, end = (
            tf.boolean_mask(each.flat_values, found) + shift
            for each in (begins, ends)
        )
        ones = tf.ones_like(begin)
        starts, stops = (
            tf.math.unsorted_segment_sum(ones, each, count + 1)
            for each in (begin, end)
        )
        inside = tf.cumsum(starts - stops)[:-1] > 0
        follows = (stops[:-1] > 0) & (
            codes.value_rowids() == _shifted(codes.value_rowids(), 1, -1)
        )
        return inside, starts[:-1] > 0, follows & ~(starts[:-1] > 0)

    def _glued(
        self,
        touches: tf.Tensor,
        is_word: tf.Tensor,
        first: tf.Tensor,
        last: tf.Tensor,
        size: tf.Tensor,
    ) -> tf.Tensor:
        """Which of N words continue the word before.

        `touches` is whether no blank precedes the word, `is_word` whether it
        consists of letters; `first`, `last` and `size` are its first and last
        character and the number of all.
        """
        before, after = (
            _shifted(is_word, 1, False),
            _shifted(is_word, -1, False),
        )
        touched = _shifted(touches, -1, False)
        between = touches & before & touched & after
        digits = _is_digit(_shifted(last, 1, 0)) & _is_digit(
            _shifted(first, -1, 0)
        )
        inside = between & (
            _is_one_of(first, _INSIDE)
            | (_is_one_of(first, _INSIDE_NUMBERS) & digits)
        )
        follows = _shifted(touched & after, -1, False)
        clitic = (
            touched
            & _is_one_of(first, _APOSTROPHES)
            & _is_one_of(_shifted(first, -1, 0), "sS")
            & (_shifted(size, -1, 0) == 1)
            & ~follows
        )
        period = _is_one_of(first, ".")
        letter = (first >= ord("A")) & (first <= ord("Z")) & (size == 1)
        letter &= ~_shifted(inside, 1, False)
        abbreviates = (
            period
            & touches
            & (_shifted(period & inside, 2, False) | _shifted(letter, 1, False))
        )
        return (
            (inside & ~clitic)
            | _shifted(inside | clitic, 1, False)
            | (abbreviates & before)
        )


def _shifted(values: tf.Tensor, by: int, outside: bool | int) -> tf.Tensor:
    """Shifts values by `by` positions, filling in `outside`."""
    fill = tf.fill([abs(by)], tf.constant(outside, values.dtype))
    if by > 0:
        return tf.concat([fill, values], 0)[: tf.size(values)]
    return tf.concat([values, fill], 0)[-by:]


def _is_one_of(codes: tf.Tensor, characters: str) -> tf.Tensor:
    codes_of = [ord(character) for character in characters]
    return tf.reduce_any(codes[:, tf.newaxis] == codes_of, 1)


def _is_digit(codes: tf.Tensor) -> tf.Tensor:
    return (codes >= ord("0")) & (codes <= ord("9"))
