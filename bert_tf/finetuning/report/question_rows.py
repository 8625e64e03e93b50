"""A line of dev_predictions.jsonl on a question."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from bert_tf.errors import UserError
from bert_tf.finetuning.report.checks import (
    check_share,
    finite,
    require_exactly,
)
from bert_tf.recipe import check_kind

_NOWHERE = (-1, -1)


class GoldAnswer(NamedTuple):
    """A right answer.

    Attributes:
      text: its words.
      start: the character of the context that it begins at.
    """

    text: str
    start: int


class QuestionRow(NamedTuple):
    """One line of dev_predictions.jsonl.

    Attributes:
      identifier: the question's own name.
      title: of the article.
      question: the question.
      context: the text that may answer it.
      answers: the right answers; none where it has no answer.
      prediction: the model's answer; empty where it gives none.
      start: the character that it begins at, or -1.
      end: the one behind its last, or -1.
      null_odds: how likely it is that there is no answer; None where every
        question has one.
      exact: the exact match, from 0 to 1.
      f1: the F1, from 0 to 1.
      n_best: the best answers, each with its probability.
    """

    identifier: str
    title: str
    question: str
    context: str
    answers: list[GoldAnswer]
    prediction: str
    start: int
    end: int
    null_odds: float | None
    exact: float
    f1: float
    n_best: list[tuple[str, float]]


def read_question(
    line: Mapping[str, Any], results: Mapping[str, Any], place: str
) -> QuestionRow:
    """Reads a line strictly.

    Args:
      line: the line's object.
      results: results.json.
      place: file and line, for errors.

    Raises:
      UserError: something is missing, or is not what it should be.
    """
    del results
    require_exactly(line, QuestionRow._fields, place)
    for name in ("identifier", "title", "question", "context", "prediction"):
        check_kind(name, str, line[name], place)
    for name in ("start", "end"):
        check_kind(name, int, line[name], place)
    length = len(line["context"])
    span = line["start"], line["end"]
    if span != _NOWHERE and not 0 <= span[0] <= span[1] <= length:
        raise UserError(
            f"{place}: start and end are {span[0]} and {span[1]}; they take "
            f"characters of the context, 0 to {length}, or -1."
        )
    odds = line["null_odds"]
    if odds is not None and finite(odds) is None:
        raise UserError(
            f"{place}: null_odds is {odds!r}; it takes a finite number or null."
        )
    for name in ("exact", "f1"):
        check_share(f"{name} is", line[name], place)
    return QuestionRow(
        **{
            **line,
            "answers": _answers(line["answers"], length, place),
            "n_best": _n_best(line["n_best"], place),
        }
    )


def _answers(values: Any, length: int, place: str) -> list[GoldAnswer]:
    check_kind("answers", list, values, place)
    for number, value in enumerate(values):
        name = f"answers[{number}]"
        check_kind(name, dict, value, place)
        require_exactly(value, GoldAnswer._fields, f"{place}: {name}")
        check_kind(f"{name} text", str, value["text"], place)
        check_kind(f"{name} start", int, value["start"], place)
        if not 0 <= value["start"] <= length:
            raise UserError(
                f"{place}: {name} start is {value['start']}; it takes 0 to "
                f"{length}, a character of the context."
            )
    return [GoldAnswer(**value) for value in values]


def _n_best(values: Any, place: str) -> list[tuple[str, float]]:
    check_kind("n_best", list, values, place)
    for number, value in enumerate(values):
        name = f"n_best[{number}]"
        check_kind(name, list, value, place)
        if len(value) != 2:
            raise UserError(
                f"{place}: {name} is {value!r}; it takes a text and its "
                "probability."
            )
        check_kind(f"{name} text", str, value[0], place)
        check_share(f"{name} has", value[1], place)
    return [(text, probability) for text, probability in values]
