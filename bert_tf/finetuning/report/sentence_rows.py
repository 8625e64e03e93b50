"""A line of dev_predictions.jsonl on a sentence or a pair."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.errors import UserError
from bert_tf.finetuning.report.checks import (
    RESULTS,
    check_probabilities,
    finite,
    require,
)
from bert_tf.recipe import check_kind

_TEXT_KEYS = ("identifier", "text_a")
_KEYS = (*_TEXT_KEYS, "row", "text_b", "label", "prediction")


class DevPrediction(NamedTuple):
    """One line of dev_predictions.jsonl.

    Attributes:
      identifier: the row's own name.
      row: its line in the data file, counted from 1.
      text_a: the text, or the first of a pair.
      text_b: the second of a pair, or None.
      label: the right answer: a class, a number, or the classes that hold.
      prediction: the model's, in the same form.
      probabilities: one a class; None for regression.
    """

    identifier: str
    row: int
    text_a: str
    text_b: str | None
    label: Any
    prediction: Any
    probabilities: Sequence[float] | None

    def probability(self, place: int) -> float:
        """That of a class, by its place among the labels."""
        assert self.probabilities is not None
        return self.probabilities[place]


def read_sentence(
    line: Mapping[str, Any], results: Mapping[str, Any], place: str
) -> DevPrediction:
    """Reads a line strictly.

    Args:
      line: the line's object.
      results: results.json, for the labels.
      place: file and line, for errors.

    Raises:
      UserError: something is missing, or is not what it should be.
    """
    labels = results["labels"]
    require(line, _KEYS, place)
    for name in _TEXT_KEYS:
        check_kind(name, str, line[name], place)
    check_kind("row", int, line["row"], place)
    if line["text_b"] is not None:
        check_kind("text_b", str, line["text_b"], place)
    for name in ("label", "prediction"):
        _check_answer(name, line[name], labels, place)
    if isinstance(line["label"], list) != isinstance(line["prediction"], list):
        raise UserError(f"{place}: label and prediction differ in form.")
    probabilities = None
    if labels:
        probabilities = check_probabilities(
            line.get("probabilities"), len(labels), "one a label", place
        )
    return DevPrediction(
        **{name: line[name] for name in DevPrediction._fields[:-1]},
        probabilities=probabilities,
    )


def _check_answer(
    name: str, value: Any, labels: Sequence[str], place: str
) -> None:
    if not labels:
        if finite(value) is None:
            raise UserError(
                f"{place}: {name} is {value!r}; it takes a finite number."
            )
        return
    for each in value if isinstance(value, list) else [value]:
        if each not in labels:
            raise UserError(
                f"{place}: {name} is {each!r}, which is not among the labels "
                f"of {RESULTS}."
            )
