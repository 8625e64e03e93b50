"""From start and end logits to answers, as google-research/bert decodes them.

The rules are those of run_squad.py, `write_predictions`. Unlike there, the
padding behind a window takes no place among the best positions.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.errors import UserError
from bert_tf.finetuning.spans.alignment import (
    AnswerCutter,
    ContextAlignment,
    CutAnswer,
)
from bert_tf.finetuning.spans.squad_file import Question
from bert_tf.finetuning.spans.windows import SpanWindows
from bert_tf.text.rows import take_ranges
from bert_tf.text.tokenizer import BertTokenizer

# The answer where the rules leave none, as in run_squad.py.
_NONCE = "empty"
# Windows decoded at a time.
_WINDOWS = 1024


class ScoredText(NamedTuple):
    """One of the best answers to a question.

    Attributes:
      text: the answer; empty for none.
      probability: its share among the best.
      start_logit: of its first token.
      end_logit: of its last token.
    """

    text: str
    probability: float
    start_logit: float
    end_logit: float


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a model answers to N questions.

    Attributes:
      identifiers: the questions' names.
      n_best: the best answers to each, the best first; with `null_odds`, the
        empty one is among them.
      best: the best answer to each that is not empty.
      spans: int64 [N, 2], begin and exclusive end of that answer in its
        context, in characters; -1 where there is none.
      null_odds: float64 [N], how much better no answer scores than `best`;
        None where every question has an answer.
    """

    identifiers: tuple[str, ...]
    n_best: tuple[tuple[ScoredText, ...], ...]
    best: tuple[str, ...]
    spans: np.ndarray
    null_odds: np.ndarray | None

    def texts(self, threshold: float = 0.0) -> tuple[str, ...]:
        """The answer to each question.

        Args:
          threshold: a question whose null odds are above it has none.
        """
        if self.null_odds is None:
            return self.best
        return tuple(
            "" if odds > threshold else text
            for text, odds in zip(self.best, self.null_odds, strict=True)
        )


@dataclasses.dataclass(frozen=True)
class _Candidates:
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
    questions: Sequence[Question],
    tokenizer: BertTokenizer,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    with_null: bool = False,
    n_best_size: int = 20,
    max_answer_length: int = 30,
) -> Answers:
    """Finds the best answers.

    Args:
      windows: W windows of the questions, T tokens in all.
      questions: N questions.
      tokenizer: what made the windows.
      start_logits: float [T], of the tokens of `windows.rows.ids`; of several
        models, their means.
      end_logits: float [T], likewise.
      with_null: whether a question may have no answer (SQuAD 2.0).
      n_best_size: how many answers are kept, and how many starts and ends of
        a window are tried.
      max_answer_length: the most tokens of an answer.

    Raises:
      UserError: the logits are not finite or not one for each token, or a
        number is not positive.
    """
    _check(windows, start_logits, end_logits, n_best_size, max_answer_length)
    cutter = AnswerCutter(windows.contexts, tokenizer)
    prepared, alignment = -1, None
    n_best, best, spans, odds = [], [], [], []
    for number, found in enumerate(
        _candidates(
            windows, start_logits, end_logits, n_best_size, max_answer_length
        )
    ):
        if windows.context[number] != prepared and found.first.size:
            prepared = int(windows.context[number])
            alignment = cutter.prepare(prepared)
        entries, cut = _best(found, alignment, n_best_size, with_null)
        n_best.append(_with_probabilities(entries))
        filled = next((e for e in entries if e.text), None)
        best.append(filled.text if filled else "")
        spans.append(
            alignment.character_span(cut) if alignment and cut else (-1, -1)
        )
        if with_null:
            score = filled.start_logit + filled.end_logit if filled else 0.0
            odds.append(found.null[0] + found.null[1] - score)
    return Answers(
        identifiers=tuple(question.identifier for question in questions),
        n_best=tuple(n_best),
        best=tuple(best),
        spans=np.array(spans, np.int64).reshape(-1, 2),
        null_odds=np.array(odds) if with_null else None,
    )


def _check(
    windows: SpanWindows,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    n_best_size: int,
    max_answer_length: int,
) -> None:
    for name, value in (
        ("n_best_size", n_best_size),
        ("max_answer_length", max_answer_length),
    ):
        if value < 1:
            raise UserError(f"{name}={value}: at least 1 is wanted.")
    for name, logits in (
        ("start_logits", start_logits),
        ("end_logits", end_logits),
    ):
        if logits.shape != windows.rows.ids.shape:
            raise UserError(
                f"{name}: have shape {logits.shape}; one for each of the "
                f"{len(windows.rows.ids)} tokens is wanted."
            )
        if not np.isfinite(logits).all():
            raise UserError(f"{name}: are not all finite.")


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
    question = 0
    while question < rows.num_examples:
        # As many questions as have so many windows, but at least one.
        after = np.searchsorted(bounds, bounds[question] + _WINDOWS, "right")
        after = max(int(after) - 1, question + 1)
        yield from _block(
            windows,
            bounds[question : after + 1],
            start_logits,
            end_logits,
            n_best_size,
            max_answer_length,
        )
        question = after


def _block(
    windows: SpanWindows,
    bounds: np.ndarray,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    n_best_size: int,
    max_answer_length: int,
) -> Iterator[_Candidates]:
    """The candidates of some questions whose windows follow one another.

    Args:
      windows: the windows.
      bounds: int64 [Q + 1], the first window of each question, and the end.
      start_logits: float [T].
      end_logits: float [T].
      n_best_size: how many starts and ends of a window are tried.
      max_answer_length: the most tokens of an answer.
    """
    rows, these = windows.rows, slice(bounds[0], bounds[-1])
    number = np.arange(bounds[0], bounds[-1])
    lengths, begins = rows.lengths[these], rows.starts[these]
    best_starts = _best_positions(start_logits, begins, lengths, n_best_size)
    best_ends = _best_positions(end_logits, begins, lengths, n_best_size)
    first, last = best_starts[:, :, None], best_ends[:, None, :]
    owned = windows.owned[these, :, None, None]
    window, i, j = np.nonzero(
        (owned[:, 0] <= first)
        & (first < owned[:, 1])
        & (first <= last)
        & (last < lengths[:, None, None] - 1)
        & (last - first < max_answer_length)
    )
    first, last = best_starts[window, i], best_ends[window, j]
    start = start_logits[begins[window] + first].astype(np.float64)
    end = end_logits[begins[window] + last].astype(np.float64)
    question = np.searchsorted(bounds, number[window], side="right") - 1
    # The order of what is equal is the original's: window, start, end.
    order = np.lexsort((-(start + end), question))
    before = windows.shift[these][window]
    places = np.searchsorted(question[order], np.arange(len(bounds)))
    nulls = np.stack([start_logits[begins], end_logits[begins]], axis=1)
    nulls = nulls.astype(np.float64)
    for index in range(len(bounds) - 1):
        chosen = order[places[index] : places[index + 1]]
        own = nulls[bounds[index] - bounds[0] : bounds[index + 1] - bounds[0]]
        least = own[own.sum(axis=1).argmin()] if len(own) else np.zeros(2)
        yield _Candidates(
            first[chosen] + before[chosen],
            last[chosen] + before[chosen],
            start[chosen],
            end[chosen],
            (float(least[0]), float(least[1])),
        )


def _best_positions(
    logits: np.ndarray, begins: np.ndarray, lengths: np.ndarray, count: int
) -> np.ndarray:
    """The positions of the highest logits, the first of equal ones first.

    Args:
      logits: float [T].
      begins: int64 [W], where each window begins.
      lengths: int64 [W], its tokens.
      count: K, how many are wanted.

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
    starts, ends = found.start.tolist(), found.end.tolist()
    firsts, lasts = found.first.tolist(), found.last.tolist()
    null = ScoredText("", 0.0, *found.null)
    # Behind what scores the same.
    null_place = np.searchsorted(-scores, -sum(found.null), side="right")
    entries: dict[str, ScoredText] = {}
    best = None
    for place in range(len(firsts) + 1):
        if with_null and place == null_place and len(entries) < n_best_size:
            entries[""] = null
        if place == len(firsts) or len(entries) >= n_best_size:
            break
        assert alignment is not None
        answer = alignment.cut(firsts[place], lasts[place])
        if answer.text not in entries:
            best = best or answer
            entries[answer.text] = ScoredText(
                answer.text, 0.0, starts[place], ends[place]
            )
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
    odds = [math.exp(score - max(scores)) for score in scores]
    total = sum(odds)
    return tuple(
        entry._replace(probability=odd / total)
        for entry, odd in zip(entries, odds, strict=True)
    )
