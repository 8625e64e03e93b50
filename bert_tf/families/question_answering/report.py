"""Report statistics of question answering.

Rows are those of dev_predictions.jsonl: "answers" are the gold answers, empty
if there is none, and "prediction" is empty for no answer.
"""

import collections
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.report.statistics import NUM_MISTAKES

Row = Mapping[str, Any]

_QUESTION_WORDS = ("what", "which", "who", "when", "where", "why", "how")
_FORMS = {"whom": "who", "whose": "who"}
_OTHER_WORD = "other"
_WORD = re.compile(r"[^\W\d_]+")
# The largest number of words in each group but the last.
_ANSWER_WORDS = (1, 2, 4, 8)
_CONTEXT_WORDS = (75, 100, 150, 200, 300)
_HAS_ANSWER, _NO_ANSWER = "has an answer", "no answer"
_ODDS_BINS = 40
# Null odds beyond these quantiles are counted in the outer bins.
_ODDS_RANGE = (0.005, 0.995)


def statistics(
    rows: Sequence[Row], results: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns scores of groups of questions, null odds and mistakes."""
    # The lowest F1 first, then the most certain answers. An answer that is not
    # among the n best has no known probability.
    wrong = sorted(
        (row for row in rows if row["exact"] < 1),
        key=lambda row: (
            row["f1"],
            -dict(row["n_best"]).get(row["prediction"], 0.0),
        ),
    )
    return {
        "num_examples": len(rows),
        "all": _scores(rows),
        "parts": _parts(rows),
        "by_question_word": _grouped(rows, question_word),
        "by_answer_length": _grouped(
            rows, _answer_length, (*_ranges(_ANSWER_WORDS), _NO_ANSWER)
        ),
        "by_context_length": _grouped(
            rows,
            lambda row: _range(row["context"], _CONTEXT_WORDS),
            _ranges(_CONTEXT_WORDS),
        ),
        "null_odds": _null_odds(rows, results.get("threshold")),
        "mistakes": {
            "total": len(wrong),
            "worst": [dict(row) for row in wrong[:NUM_MISTAKES]],
        },
    }


def question_word(row: Row) -> str:
    """Returns the first question word of a question, or "other"."""
    words = _WORD.findall(row["question"].lower())
    known = (_FORMS.get(word, word) for word in words)
    return next((w for w in known if w in _QUESTION_WORDS), _OTHER_WORD)


def _answer_length(row: Row) -> str:
    """Returns the group of the number of words of the first gold answer."""
    if not row["answers"]:
        return _NO_ANSWER
    return _range(row["answers"][0]["text"], _ANSWER_WORDS)


def _ranges(edges: Sequence[int]) -> list[str]:
    """Names the groups: "1", "2", "3 to 4", ..., "9 or more"."""
    begins = [1, *(edge + 1 for edge in edges[:-1])]
    names = [
        str(end) if begin == end else f"{begin} to {end}"
        for begin, end in zip(begins, edges, strict=True)
    ]
    return [*names, f"{edges[-1] + 1} or more"]


def _range(text: str, edges: Sequence[int]) -> str:
    return _ranges(edges)[int(np.searchsorted(edges, len(text.split())))]


def _scores(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "count": len(rows),
        "exact": float(np.mean([row["exact"] for row in rows])),
        "f1": float(np.mean([row["f1"] for row in rows])),
    }


def _groups(
    rows: Sequence[Row], group: Callable[[Row], str]
) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = collections.defaultdict(list)
    for row in rows:
        groups[group(row)].append(row)
    return groups


def _grouped(
    rows: Sequence[Row],
    group: Callable[[Row], str],
    order: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Computes the scores of each group, by default the largest first."""
    groups = _groups(rows, group)
    if order is None:
        order = sorted(groups, key=lambda name: (-len(groups[name]), name))
    return [
        {"group": name} | _scores(groups[name])
        for name in order
        if name in groups
    ]


def _parts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Scores questions with and without an answer; empty if all have one."""
    groups = _groups(
        rows, lambda row: _HAS_ANSWER if row["answers"] else _NO_ANSWER
    )
    if _NO_ANSWER not in groups:
        return []
    return [
        {
            "group": name,
            "answered": sum(bool(row["prediction"]) for row in groups[name]),
        }
        | _scores(groups[name])
        for name in (_HAS_ANSWER, _NO_ANSWER)
        if name in groups
    ]


def _null_odds(
    rows: Sequence[Row], threshold: float | None
) -> dict[str, Any] | None:
    """Returns histograms of the null odds with and without an answer."""
    if rows[0]["null_odds"] is None:
        return None
    odds = np.array([row["null_odds"] for row in rows], np.float64)
    has_answer = np.array([bool(row["answers"]) for row in rows])
    low, high = np.quantile(odds, _ODDS_RANGE)
    if threshold is not None:
        low, high = min(low, threshold), max(high, threshold)
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _ODDS_BINS + 1)
    clipped = np.clip(odds, low, high)
    return {
        "threshold": threshold,
        "edges": edges.tolist(),
        "has_answer": np.histogram(clipped[has_answer], edges)[0].tolist(),
        "no_answer": np.histogram(clipped[~has_answer], edges)[0].tolist(),
    }
