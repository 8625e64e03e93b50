"""Answers cut from the original text, as google-research/bert cuts them.

run_squad.py, `get_final_text`: the predicted tokens, joined to words, are
looked for in the normalised words of the context that they are of; where both
have as many characters, blanks aside, the characters are paired one by one,
and else the words are given whole. Here every word is normalised once, and
all that is the same for every answer of a context is kept.
"""

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import tensorflow as tf

from bert_tf.finetuning.spans.contexts import (
    BLANKS,
    TokenizedContexts,
    split_words,
)
from bert_tf.text.normalizer import BertNormalizer
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.unicode_tables import word_pattern
from bert_tf.text.vocabulary import CONTINUATION


class CutAnswer(NamedTuple):
    """A piece of a context.

    Attributes:
      text: the answer, its words joined by single spaces.
      first: its first character, blanks of the context not counted.
      last: its last character, likewise.
    """

    text: str
    first: int
    last: int


class AnswerCutter:
    """Cuts answers from contexts.

    Args:
      contexts: the contexts as tokens.
      tokenizer: what made the tokens.
    """

    def __init__(self, contexts: TokenizedContexts, tokenizer: BertTokenizer):
        self._contexts = contexts
        vocabulary = tokenizer.vocabulary
        self._pieces = [t.replace(CONTINUATION, "") for t in vocabulary.tokens]
        self._is_continuation = vocabulary.is_continuation
        words = set().union(*map(split_words, contexts.texts))
        self._normalized = _normalized(sorted(words), tokenizer.config)

    def prepare(self, number: int) -> "ContextAlignment":
        """Pairs a context's characters with those of its tokens.

        Args:
          number: which of the contexts.
        """
        context = self._contexts.texts[number]
        words = split_words(context)
        tokens = self._contexts.tokens
        begin = tokens.begin[number]
        these = slice(begin, begin + tokens.count[number])
        ids = tokens.ids[these]
        word = self._contexts.word_of_token[these]
        return ContextAlignment(
            context,
            words,
            [self._normalized[word] for word in words],
            [self._pieces[i] for i in ids.tolist()],
            self._is_continuation[ids].tolist(),
            (word - self._contexts.first_word(number)).tolist(),
        )


def _normalized(words: list[str], config: TokenizerConfig) -> dict[str, str]:
    """Words as BasicTokenizer gives them, with spaces where it splits them."""
    normalizer = BertNormalizer(config)
    find = word_pattern(config.tokenize_chinese_chars).findall
    texts = normalizer.normalize(tf.constant(words, tf.string)).numpy()
    return {
        word: " ".join(find(text.decode()))
        for word, text in zip(words, texts, strict=True)
    }


class ContextAlignment:
    """The characters of one context beside those of its tokens.

    Args:
      context: the context.
      words: its words.
      normalized: each of them, normalised.
      pieces: the tokens, without "##".
      is_continuation: whether each token continues a word.
      word_of_token: the word that each token is of.
    """

    def __init__(
        self,
        context: str,
        words: Sequence[str],
        normalized: Sequence[str],
        pieces: Sequence[str],
        is_continuation: Sequence[bool],
        word_of_token: Sequence[int],
    ):
        self._context = context
        self._word_of_token = word_of_token
        self._original = " ".join(words)
        # Where each character that is no blank stands in the original.
        self._place = [i for i, c in enumerate(self._original) if c != " "]
        # Characters that are no blanks before each word, and before its end.
        self._counts = _cumulated(map(len, words))
        self._normalized, self._word_spans = _joined(
            normalized, itertools.repeat(True)
        )
        self._normalized_counts = _cumulated(
            len(word) - word.count(" ") for word in normalized
        )
        # How many characters before each are no blanks.
        self._before = _cumulated(c != " " for c in self._normalized)
        spaced = [not continued for continued in is_continuation]
        self._pieces, self._piece_spans = _joined(pieces, spaced)

    def cut(self, first: int, last: int) -> CutAnswer:
        """The answer that some tokens of the context stand for.

        Args:
          first: the first token.
          last: the last token.
        """
        begin, end = self._word_of_token[first], self._word_of_token[last] + 1
        whole = self._counts[begin], self._counts[end] - 1
        skipped = self._normalized_counts[begin]
        predicted = self._pieces[
            self._piece_spans[first][0] : self._piece_spans[last][1]
        ]
        found = self._normalized.find(
            predicted, self._word_spans[begin][0], self._word_spans[end - 1][1]
        )
        alike = (
            self._counts[end] - self._counts[begin]
            == self._normalized_counts[end] - skipped
        )
        if found < 0 or not alike:
            return self._answer(*whole)
        shift = self._counts[begin] - skipped
        return self._answer(
            self._before[found] + shift,
            self._before[found + len(predicted) - 1] + shift,
        )

    def _answer(self, first: int, last: int) -> CutAnswer:
        text = self._original[self._place[first] : self._place[last] + 1]
        return CutAnswer(text, first, last)

    def character_span(self, answer: CutAnswer) -> tuple[int, int]:
        """Begin and exclusive end of an answer in the context."""
        first, last = (self._context_places[i] for i in answer[1:])
        return first, last + 1

    @functools.cached_property
    def _context_places(self) -> list[int]:
        """Where each character that is no blank stands in the context."""
        return [i for i, c in enumerate(self._context) if c not in BLANKS]


def _cumulated(counts: Iterable[int]) -> list[int]:
    return list(itertools.accumulate(counts, initial=0))


def _joined(
    parts: Iterable[str], spaced: Iterable[bool]
) -> tuple[str, list[tuple[int, int]]]:
    """Parts end to end, and where each begins and ends.

    Args:
      parts: the parts; one may be empty.
      spaced: whether a space stands before each, unless it is the first.
    """
    texts, spans, length = [], [], 0
    for part, space in zip(parts, spaced, strict=False):
        if part and space and length:
            texts.append(" ")
            length += 1
        texts.append(part)
        spans.append((length, length + len(part)))
        length += len(part)
    return "".join(texts), spans
