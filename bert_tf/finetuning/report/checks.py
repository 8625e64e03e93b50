"""What reading a run folder strictly takes, whatever the kind of task."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from bert_tf.errors import UserError

RESULTS, PREDICTIONS = "results.json", "dev_predictions.jsonl"


def finite(value: Any) -> float | None:
    """A number, or None where it is no finite one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def require(
    line: Mapping[str, Any], names: Collection[str], place: str
) -> None:
    """Raises `UserError` if an object lacks a key."""
    for name in names:
        if name not in line:
            raise UserError(f"{place}: holds no {name!r}.")


def require_exactly(
    line: Mapping[str, Any], names: Collection[str], place: str
) -> None:
    """Raises `UserError` if an object lacks a key or has another one."""
    require(line, names, place)
    for name in line:
        if name not in names:
            raise UserError(
                f"{place}: has the key {name!r}; it takes {', '.join(names)}."
            )


def check_share(name: str, value: Any, place: str) -> float:
    """Returns a number from 0 to 1.

    Raises:
      UserError: it is none.
    """
    # A softmax in float32 can sum to a hair more than 1.
    if finite(value) is None or not 0 <= value <= 1.0001:
        raise UserError(
            f"{place}: {name} {value!r}; each takes a number from 0 to 1."
        )
    return value


def check_probabilities(
    values: Any, count: int, each: str, place: str
) -> list[float]:
    """Returns a list of so many probabilities.

    Args:
      values: what the line has.
      count: how many there are to be.
      each: what each is of, for the error.
      place: file and line, for the error.

    Raises:
      UserError: it is none.
    """
    if not isinstance(values, list) or len(values) != count:
        raise UserError(
            f"{place}: 'probabilities' must be a list of {count} numbers, "
            f"{each}."
        )
    return [check_share("probabilities hold", value, place) for value in values]
