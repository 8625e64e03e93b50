"""The JSON files of answers, as the official scripts take them."""

import json
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.finetuning.data.table_formats import excerpt, read_lines

if TYPE_CHECKING:
    # It brings TensorFlow, which scoring a file needs nothing of.
    from bert_tf.finetuning.spans.answers import Answers

PREDICTIONS_FILE = "predictions.json"
N_BEST_FILE = "nbest_predictions.json"
NULL_ODDS_FILE = "null_odds.json"


def write_answers(
    answers: "Answers",
    folder: str | os.PathLike,
    threshold: float = 0.0,
    prefix: str = "",
) -> None:
    """Writes predictions.json, nbest_predictions.json and null_odds.json.

    The last is written where a question may have no answer.

    Args:
      answers: what a model answers.
      folder: where to.
      threshold: a question whose null odds are above it has none.
      prefix: what the names of the files begin with.
    """
    names = answers.identifiers
    files = {
        PREDICTIONS_FILE: answers.texts(threshold),
        N_BEST_FILE: [[e._asdict() for e in own] for own in answers.n_best],
    }
    if answers.null_odds is not None:
        files[NULL_ODDS_FILE] = answers.null_odds.tolist()
    for name, values in files.items():
        lines = [
            f"    {json.dumps(key)}: {json.dumps(value)}"
            for key, value in zip(names, values, strict=True)
        ]
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        write_text(os.path.join(folder, prefix + name), text)


def read_predictions(path: str) -> dict[str, str]:
    """Reads a predictions.json: the answer to each question.

    Raises:
      UserError: it cannot be read, is no JSON object, names a question twice,
        or an answer is no text.
    """
    return _read(path, "a text", lambda value: isinstance(value, str))


def read_null_odds(path: str) -> dict[str, float]:
    """Reads a null_odds.json: how likely each question has no answer.

    Raises:
      UserError: as for `read_predictions`; or odds that are no finite number.
    """
    return _read(
        path,
        "a finite number",
        lambda value: (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
        ),
    )


def _read(
    path: str, kind: str, is_right: Callable[[Any], bool]
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
        if not is_right(value):
            raise UserError(
                f"{path}: {excerpt(identifier)} is {excerpt(value)}; {kind} is "
                f"wanted, as in {layout}."
            )
        values[identifier] = value
    return values


class _Pairs(list):
    """An object's keys and values, before a second key hides the first."""
