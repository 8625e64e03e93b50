"""The report of question answering."""

import collections
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.report.answer_sections import (
    ReportWords,
    Row,
    mistakes_section,
)
from bert_tf.report.figures import histogram
from bert_tf.report.formats import bar, number, percent, words
from bert_tf.report.sections import Figure, Lines, ReportTable, Section
from bert_tf.report.texts import Mark, MarkedText

WORDS = ReportWords(
    "questions",
    "no answer to any question",
    threshold="Null odds above which there is no answer",
)
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


def sections(rows: Sequence[Row], results: Mapping[str, Any]) -> list[Section]:
    """Scores of groups of questions, null odds and mistakes.

    Args:
      rows: of dev_predictions.jsonl: "answers" are the gold answers, empty if
        there is none, and "prediction" is empty for no answer.
      results: the contents of results.json.
    """
    # The lowest F1 first, then the most certain answers. An answer that is not
    # among the n best has no known probability.
    wrong = sorted(
        (row for row in rows if row["exact"] < 1),
        key=lambda row: (
            row["f1"],
            -dict(row["n_best"]).get(row["prediction"], 0.0),
        ),
    )
    return [
        _groups_section(rows, _null_odds(rows, results.get("threshold"))),
        mistakes_section(
            wrong,
            len(rows),
            "questions, the lowest F1 first, then the most confident answers. "
            "In the context, correct answers are underlined and the predicted "
            "answer is framed",
            ("identifier", "title", "f1", "null_odds"),
            _texts,
        ),
    ]


def _texts(row: Row) -> list[MarkedText]:
    """The question, its answers, and the context with both kinds marked."""
    context, gold = row["context"], row["answers"]
    spans = dict.fromkeys(
        (each["start"], each["start"] + len(each["text"]))
        for each in gold
        if context.startswith(each["text"], each["start"])
    )
    marks = [Mark(*span, "true", "gold") for span in spans]
    if row["start"] >= 0:
        marks.append(Mark(row["start"], row["end"], "predicted", "given"))
    true = dict.fromkeys(each["text"] for each in gold)
    best = [
        f"{text or _NO_ANSWER} at {percent(share)} %"
        for text, share in row["n_best"]
    ]
    return [
        MarkedText(row["question"], "Question"),
        MarkedText(row["prediction"] or _NO_ANSWER, "Predicted"),
        MarkedText(", ".join(true) or _NO_ANSWER, "True"),
        MarkedText(", ".join(best), "Best answers"),
        MarkedText(context, "Context", marks),
    ]


def question_word(row: Row) -> str:
    """Returns the first question word of a question, or "other"."""
    asked = _WORD.findall(row["question"].lower())
    known = (_FORMS.get(word, word) for word in asked)
    return next((w for w in known if w in _QUESTION_WORDS), _OTHER_WORD)


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
        "answered": sum(bool(row["prediction"]) for row in rows),
        "exact": float(np.mean([row["exact"] for row in rows])),
        "f1": float(np.mean([row["f1"] for row in rows])),
    }


def _grouped(
    rows: Sequence[Row], group: Callable[[Row], str], order: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Computes the scores of each group, by default the largest first."""
    groups: dict[str, list[Row]] = collections.defaultdict(list)
    for row in rows:
        groups[group(row)].append(row)
    by_size = sorted(groups, key=lambda name: (-len(groups[name]), name))
    return [
        {"group": name, **_scores(groups[name])}
        for name in order or by_size
        if name in groups
    ]


def _groups_section(
    rows: Sequence[Row], odds: Mapping[str, Any] | None
) -> Section:
    """Scores by kind of question, and the null odds where they are known."""
    has_answer = _grouped(
        rows,
        lambda row: _HAS_ANSWER if row["answers"] else _NO_ANSWER,
        (_HAS_ANSWER, _NO_ANSWER),
    )
    groups = {
        # Of interest where some have none.
        "parts": has_answer if has_answer[-1]["group"] == _NO_ANSWER else [],
        "by_question_word": _grouped(rows, question_word),
        "by_answer_length": _grouped(
            rows,
            lambda row: (
                _range(row["answers"][0]["text"], _ANSWER_WORDS)
                if row["answers"]
                else _NO_ANSWER
            ),
            (*_ranges(_ANSWER_WORDS), _NO_ANSWER),
        ),
        "by_context_length": _grouped(
            rows,
            lambda row: _range(row["context"], _CONTEXT_WORDS),
            _ranges(_CONTEXT_WORDS),
        ),
    }
    note = (
        "Exact match and F1 are means x 100 over the questions of a group. An "
        "answer matches exactly if it equals a correct one up to case, "
        "punctuation and articles; F1 compares their words (Rajpurkar et al. "
        "2016). The question word is the first one in the question; lengths "
        "are numbers of words, that of the answer of the first correct one."
    )
    tables = [
        ReportTable(words(name), group, {"exact": percent, "f1": bar})
        for name, group in groups.items()
        if group
    ]
    figures = [] if odds is None else [_odds_figure(odds)]
    return Section(
        "answers",
        "Scores by kind of question",
        [*tables, Lines([note]), *figures],
        {"all": _scores(rows), **groups, "null_odds": odds},
    )


def _null_odds(
    rows: Sequence[Row], threshold: float | None
) -> dict[str, Any] | None:
    """Histograms of the null odds with and without an answer, if known."""
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


def _odds_figure(odds: Mapping[str, Any]) -> Figure:
    """Shows null odds."""
    threshold = odds["threshold"]
    counts = {name: odds[name] for name in ("has_answer", "no_answer")}
    caption = (
        "Null odds: the score of no answer minus that of the best answer. The "
        "less the two distributions overlap, the better. The first and the "
        "last bin include everything beyond them."
    )
    if threshold is not None:
        caption += (
            " The vertical line is the threshold of this model, "
            f"{number(threshold)}; to the right of it the prediction is "
            '"no answer".'
        )
    lines = {"threshold": threshold}
    names = "null odds", "questions"
    return Figure(histogram(odds["edges"], counts, names, lines), caption)
