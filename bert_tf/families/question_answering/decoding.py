"""From start and end logits to answers cut from the original text.

The rules are those of google-research/bert, run_squad.py,
`write_predictions`; unlike there, the padding behind a window takes no place
among the best positions. And of its `get_final_text`: the predicted tokens,
joined to words, are looked for in the normalised words of the context that
they are of; where both have the same number of characters, blanks aside, these
are paired one by one, and else the words are given whole. Here every word is
normalised once, and all that is the same for every answer of a context is
kept. `answers.py` does the same in the graph, where a context's characters are
tensors, and shares `may_answer`.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.families.question_answering.prediction_files import (
    Answers,
    ScoredText,
)
from bert_tf.families.question_answering.squad_files import (
    BLANKS,
    split_words,
)
from bert_tf.families.question_answering.windows import (
    SpanWindows,
    TokenizedContexts,
)
from bert_tf.text.normalizer import BertNormalizer
from bert_tf.text.packing import take_ranges
from bert_tf.text.tokenizer_protocol import Tokenizer
from bert_tf.text.unicode_tables import word_pattern
from bert_tf.text.vocabulary import CONTINUATION

# The answer where the rules leave none, as in run_squad.py.
_NONCE = "empty"
# Windows decoded at a time.
_WINDOWS = 1024


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
    """What cutting answers needs of all contexts and of the vocabulary."""

    def __init__(self, contexts: TokenizedContexts, tokenizer: Tokenizer):
        self.contexts = contexts
        vocabulary = tokenizer.vocabulary
        # The tokens without "##", and which of them have it.
        self.pieces = [t.replace(CONTINUATION, "") for t in vocabulary.tokens]
        self.is_continuation = vocabulary.is_continuation
        words = sorted(set().union(*map(split_words, contexts.texts)))
        normalizer = BertNormalizer(tokenizer.config)
        find = word_pattern(tokenizer.config.tokenize_chinese_chars).findall
        texts = normalizer.normalize(tf.constant(words, tf.string)).numpy()
        # Words as BasicTokenizer gives them, with spaces where it splits them.
        self.normalized = {
            word: " ".join(find(text.decode()))
            for word, text in zip(words, texts, strict=True)
        }


class ContextAlignment:
    """The characters of the context of a number beside those of its tokens."""

    def __init__(self, cutter: AnswerCutter, number: int):
        contexts = cutter.contexts
        self._context = contexts.texts[number]
        words = split_words(self._context)
        begin = contexts.tokens.begin[number]
        these = slice(begin, begin + contexts.tokens.count[number])
        word = contexts.word_of_token[these] - contexts.first_word(number)
        self._word_of_token = word.tolist()
        self._original = " ".join(words)
        # Where each character that is no blank stands in the original.
        self._place = [i for i, c in enumerate(self._original) if c != " "]
        # Characters that are no blanks before each word, and before its end.
        self._counts = _cumulated(map(len, words))
        normalized = [cutter.normalized[word] for word in words]
        self._normalized, self._word_spans = _joined(
            normalized, itertools.repeat(True)
        )
        self._normalized_counts = _cumulated(
            len(word) - word.count(" ") for word in normalized
        )
        # How many characters before each are no blanks.
        self._before = _cumulated(c != " " for c in self._normalized)
        ids = contexts.tokens.ids[these]
        self._pieces, self._piece_spans = _joined(
            (cutter.pieces[token] for token in ids.tolist()),
            (~cutter.is_continuation[ids]).tolist(),
        )

    def cut(self, first: int, last: int) -> CutAnswer:
        """The answer that the tokens from `first` to `last` stand for."""
        begin, end = self._word_of_token[first], self._word_of_token[last] + 1
        whole_begin, whole_end = self._counts[begin], self._counts[end]
        skipped = self._normalized_counts[begin]
        predicted = self._pieces[
            self._piece_spans[first][0] : self._piece_spans[last][1]
        ]
        found = self._normalized.find(
            predicted, self._word_spans[begin][0], self._word_spans[end - 1][1]
        )
        size = self._normalized_counts[end] - skipped
        if found < 0 or whole_end - whole_begin != size:
            return self._answer(whole_begin, whole_end - 1)
        shift = whole_begin - skipped
        return self._answer(
            self._before[found] + shift,
            self._before[found + len(predicted) - 1] + shift,
        )

    def _answer(self, first: int, last: int) -> CutAnswer:
        text = self._original[self._place[first] : self._place[last] + 1]
        return CutAnswer(text, first, last)

    def character_span(self, answer: CutAnswer) -> tuple[int, int]:
        """Begin and exclusive end of an answer in the context."""
        places = self._context_places
        return places[answer.first], places[answer.last] + 1

    @functools.cached_property
    def _context_places(self) -> list[int]:
        """Where each character that is no blank stands in the context."""
        return [i for i, c in enumerate(self._context) if c not in BLANKS]


def _cumulated(counts: Iterable[int]) -> list[int]:
    return list(itertools.accumulate(counts, initial=0))


def _joined(
    parts: Iterable[str], spaced: Iterable[bool]
) -> tuple[str, list[tuple[int, int]]]:
    """Parts with a space before those `spaced`, and where each stands."""
    texts, spans, length = [], [], 0
    for part, space in zip(parts, spaced, strict=False):
        if part and space and length:
            texts.append(" ")
            length += 1
        texts.append(part)
        spans.append((length, length + len(part)))
        length += len(part)
    return "".join(texts), spans


class _Candidates(NamedTuple):
    """Spans of tokens of one question, the best first.

    Attributes:
      first: int64 [K], tokens of its context.
      last: int64 [K], likewise.
      start: float64 [K], start logits.
      end: float64 [K], end logits.
      null: start and end logit of no answer, in the window where they are
        the least together.
    """

    first: np.ndarray
    last: np.ndarray
    start: np.ndarray
    end: np.ndarray
    null: tuple[float, float]


def decode_answers(
    windows: SpanWindows,
    tokenizer: Tokenizer,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    with_null: bool = False,
    n_best_size: int = 20,
    max_answer_length: int = 30,
) -> Answers:
    """Finds the best answers.

    Args:
      windows: W windows of N questions, T tokens in all.
      tokenizer: what made the windows.
      start_logits: float [T], of the tokens of `windows.rows.ids`; of several
        models, their means.
      end_logits: float [T], likewise.
      with_null: whether a question may have no answer (SQuAD 2.0).
      n_best_size: how many answers are kept, and how many starts and ends of
        a window are tried.
      max_answer_length: the most tokens of an answer.

    Raises:
      UserError: the logits are not finite.
    """
    for name, logits in (
        ("start_logits", start_logits),
        ("end_logits", end_logits),
    ):
        if not np.isfinite(logits).all():
            raise UserError(f"{name}: are not all finite.")
    cutter = AnswerCutter(windows.contexts, tokenizer)
    prepared, alignment = -1, None
    n_best, best, spans, null_odds = [], [], [], []
    for number, found in enumerate(
        _candidates(
            windows, start_logits, end_logits, n_best_size, max_answer_length
        )
    ):
        if windows.context[number] != prepared and found.first.size:
            prepared = int(windows.context[number])
            alignment = ContextAlignment(cutter, prepared)
        entries, cut = _best(found, alignment, n_best_size, with_null)
        n_best.append(_with_probabilities(entries))
        filled = next((e for e in entries if e.text), None)
        best.append(filled.text if filled else "")
        spans.append(
            alignment.character_span(cut) if alignment and cut else (-1, -1)
        )
        score = filled.start_logit + filled.end_logit if filled else 0.0
        null_odds.append(sum(found.null) - score)
    return Answers(
        n_best=tuple(n_best),
        best=tuple(best),
        spans=np.array(spans, np.int64).reshape(-1, 2),
        null_odds=np.array(null_odds) if with_null else None,
    )


def _candidates(
    windows: SpanWindows,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    n_best_size: int,
    max_answer_length: int,
) -> Iterator[_Candidates]:
    """The candidates of each question in turn."""
    rows = windows.rows
    bounds = np.searchsorted(rows.example, np.arange(rows.num_examples + 1))
    _, context_ends = rows.bounds[1]
    first_question = 0
    while first_question < rows.num_examples:
        # All questions that _WINDOWS windows hold, but at least one.
        most = bounds[first_question] + _WINDOWS
        end = int(np.searchsorted(bounds, most, side="right")) - 1
        end = max(end, first_question + 1)
        of_block = bounds[first_question : end + 1]
        first_question = end
        these = slice(of_block[0], of_block[-1])
        lengths, begins = rows.lengths[these], rows.starts[these]
        starts = _best_positions(start_logits, begins, lengths, n_best_size)
        ends = _best_positions(end_logits, begins, lengths, n_best_size)
        owned = windows.owned[these, :, None, None]
        window, i, j = np.nonzero(
            may_answer(
                starts[:, :, None],
                ends[:, None, :],
                (owned[:, 0], owned[:, 1]),
                context_ends[these, None, None],
                max_answer_length,
            )
        )
        first, last = starts[window, i], ends[window, j]
        start = start_logits[begins[window] + first].astype(np.float64)
        end_score = end_logits[begins[window] + last].astype(np.float64)
        of_block = of_block - of_block[0]
        question = np.searchsorted(of_block, window, side="right") - 1
        # The order of what is equal is the original's: window, start, end.
        order = np.lexsort((-(start + end_score), question))
        shift = windows.shift[these][window]
        places = np.searchsorted(question[order], np.arange(len(of_block)))
        nulls = np.stack([start_logits[begins], end_logits[begins]], axis=1)
        nulls = nulls.astype(np.float64)
        for index in range(len(of_block) - 1):
            chosen = order[places[index] : places[index + 1]]
            own = nulls[of_block[index] : of_block[index + 1]]
            null = own[own.sum(axis=1).argmin()] if len(own) else np.zeros(2)
            yield _Candidates(
                first[chosen] + shift[chosen],
                last[chosen] + shift[chosen],
                start[chosen],
                end_score[chosen],
                (float(null[0]), float(null[1])),
            )


def may_answer(
    first: Any,
    last: Any,
    owned: tuple[Any, Any],
    end: Any,
    max_answer_length: int,
) -> Any:
    """Which pairs of positions, of NumPy or in the graph, may be answers.

    A window answers with what begins where it shows most context, and ends in
    the context.

    Args:
      first: whole numbers, the first position.
      last: the last one.
      owned: begin and exclusive end of what the window shows in most context.
      end: exclusive end of the context.
      max_answer_length: the most tokens of an answer.
    """
    return (
        (owned[0] <= first)
        & (first < owned[1])
        & (first <= last)
        & (last < end)
        & (last - first < max_answer_length)
    )


def _best_positions(
    logits: np.ndarray, begins: np.ndarray, lengths: np.ndarray, count: int
) -> np.ndarray:
    """The positions of the highest logits [T], the first of equal ones first.

    Returns:
      int64 [W, K], the highest first; past a window's end where it is short.
    """
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    padded = np.full(mask.shape, np.inf)
    padded[mask] = -take_ranges(logits, begins, lengths).astype(np.float64)
    return np.argsort(padded, axis=1, kind="stable")[:, :count]


def _best(
    found: _Candidates,
    alignment: ContextAlignment | None,
    n_best_size: int,
    with_null: bool,
) -> tuple[list[ScoredText], CutAnswer | None]:
    """The best answers of different texts, and the best that is not empty."""
    scores = found.start + found.end
    null = ScoredText("", 0.0, *found.null)
    # Behind what scores the same.
    null_place = np.searchsorted(-scores, -sum(found.null), side="right")
    spans = zip(*(values.tolist() for values in found[:4]), strict=True)
    entries: dict[str, ScoredText] = {}
    best = None
    for place, (first, last, start, end) in enumerate(spans):
        if with_null and place == null_place and len(entries) < n_best_size:
            entries[""] = null
        if len(entries) >= n_best_size:
            break
        assert alignment is not None
        answer = alignment.cut(first, last)
        if answer.text not in entries:
            best = best or answer
            entries[answer.text] = ScoredText(answer.text, 0.0, start, end)
    if with_null:
        entries.setdefault("", null)
    if not entries:
        return [ScoredText(_NONCE, 0.0, 0.0, 0.0)], None
    return list(entries.values()), best


def _with_probabilities(
    entries: Sequence[ScoredText],
) -> tuple[ScoredText, ...]:
    """The entries with the softmax over their scores."""
    scores = [entry.start_logit + entry.end_logit for entry in entries]
    highest = max(scores)
    exp_scores = [math.exp(score - highest) for score in scores]
    total = sum(exp_scores)
    return tuple(
        entry._replace(probability=exp_score / total)
        for entry, exp_score in zip(entries, exp_scores, strict=True)
    )
