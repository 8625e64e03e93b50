"""Answers of a model to questions, and the files for the official scripts."""

import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import UserError, excerpt
from bert_tf.families.question_answering.squad_files import Question
from bert_tf.files import read_lines, write_text

PREDICTIONS_FILE = "predictions.json"
N_BEST_FILE = "nbest_predictions.json"
NULL_ODDS_FILE = "null_odds.json"


class ScoredText(NamedTuple):
    """One of the best answers; its text is empty for no answer."""

    text: str
    probability: float
    start_logit: float
    end_logit: float


@dataclasses.dataclass(frozen=True)
class Answers:
    """A model's answers to N questions.

    Attributes:
      n_best: the best answers to each question, best first; with `null_odds`,
        the empty one is among them.
      best: the best answer to each question that is not empty.
      spans: int64 [N, 2], the range of characters of that answer in its
        context; -1 if there is none.
      null_odds: float64 [N], the score of no answer minus that of `best`; None
        if every question has an answer.
    """

    n_best: tuple[tuple[ScoredText, ...], ...]
    best: tuple[str, ...]
    spans: np.ndarray
    null_odds: np.ndarray | None

    def texts(self, threshold: float = 0.0) -> tuple[str, ...]:
        """Returns the answers, empty if the null odds exceed the threshold."""
        if self.null_odds is None:
            return self.best
        return tuple(
            "" if odds > threshold else text
            for text, odds in zip(self.best, self.null_odds, strict=True)
        )


class FileAnswers(NamedTuple):
    """Answers for the official scripts, by the identifier of the question.

    Attributes:
      texts: the answers, empty for none.
      null_odds: how likely each question has no answer, if known.
    """

    texts: Mapping[str, str]
    null_odds: Mapping[str, float] | None = None


def write_answers(
    questions: Sequence[Question],
    answers: Answers,
    folder: str | os.PathLike,
    threshold: float = 0.0,
    prefix: str = "",
) -> None:
    """Writes predictions.json, nbest_predictions.json and null_odds.json.

    The last is written if there are null odds; `threshold` is that of
    `Answers.texts`, and `prefix` begins the names of the files.
    """
    files = {
        PREDICTIONS_FILE: answers.texts(threshold),
        N_BEST_FILE: [[e._asdict() for e in own] for own in answers.n_best],
    }
    if answers.null_odds is not None:
        files[NULL_ODDS_FILE] = answers.null_odds.tolist()
    for name, values in files.items():
        lines = [
            f"    {json.dumps(question.identifier)}: {json.dumps(value)}"
            for question, value in zip(questions, values, strict=True)
        ]
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        write_text(os.path.join(folder, prefix + name), text)


def read_predictions(path: str) -> dict[str, str]:
    """Reads a predictions.json: answers by identifier.

    Raises:
      UserError: it cannot be read, is not a JSON object, repeats a key, or has
        a value that is not a text.
    """
    return _read(path, "a text", lambda value: isinstance(value, str))


def read_null_odds(path: str) -> dict[str, float]:
    """Reads a null_odds.json: null odds by identifier.

    Raises:
      UserError: as for `read_predictions`; values must be finite numbers.
    """
    return _read(
        path,
        "a finite number",
        lambda value: type(value) in (int, float) and math.isfinite(value),
    )


def _read(
    path: str, kind: str, is_valid: Callable[[Any], bool]
) -> dict[str, Any]:
    text = "".join(line for _, line in read_lines(path, "strict"))
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{path}: is not JSON ({error}).") from None
    layout = f'one object {{"id of a question": {kind}, ...}}'
    if not isinstance(pairs, _Pairs):
        raise UserError(f"{path}: is not laid out as {layout}.")
    values: dict[str, Any] = {}
    for identifier, value in pairs:
        if identifier in values:
            raise UserError(f"{path}: the id {identifier!r} occurs twice.")
        if not is_valid(value):
            raise UserError(
                f"{path}: {excerpt(identifier)} is {excerpt(value)}; it must "
                f"be {kind}, as in {layout}."
            )
        values[identifier] = value
    return values


class _Pairs(list):
    """Keys and values of a JSON object, with repeated keys."""
