"""Calibration by one temperature, which divides the logits of a model.

Guo et al. 2017, "On calibration of modern neural networks", section 4.2:
probabilities of a softmax or sigmoid of logits / temperature match the accuracy
better, and the most probable class stays the same.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.report.statistics import class_calibration, label_calibration

if TYPE_CHECKING:
    from bert_tf.families.task import Task

MIN_ROWS = 50
# Limits of 1 / temperature, and the steps that bisect its logarithm.
_LEAST, _MOST, _STEPS = 1e-3, 1e3, 80


def tuner(task: "Task", examples: Sequence[Any]) -> Callable[[Any], Any]:
    """Returns a function from dev predictions to a config with a temperature.

    Args:
      task: the task.
      examples: the examples of the dev split.

    Raises:
      UserError: they are too few.
    """
    if len(examples) < MIN_ROWS:
        raise UserError(
            f"`calibrate`=true: the dev split has {len(examples)} examples, "
            f"and a temperature is fitted to {MIN_ROWS} or more; give a larger "
            "one, or leave it out."
        )

    def tuned(answered: Any) -> Any:
        temperature = fit_temperature(*task.gold_logits(answered))
        return dataclasses.replace(
            answered.config, calibration_temperature=temperature
        )

    return tuned


def fit_temperature(logits: np.ndarray, targets: np.ndarray) -> float:
    """Fits the temperature of the least negative log-likelihood.

    The likelihood is a concave function of 1 / temperature, so bisecting its
    derivative finds the maximum.

    Args:
      logits: float [N, C]; -inf for padding.
      targets: the classes, int [N]; or whether each label holds, [N, C].

    Returns:
      The temperature; 1 if the likelihood has no maximum, because the model is
      right about every row.
    """
    rows, classes = _as_classes(logits, targets)
    gaps = rows - _of_targets(rows, classes)[:, np.newaxis]
    finite = np.where(np.isfinite(gaps), gaps, 0.0)

    def slope(scale: float) -> float:
        return float((_softmax(scale * gaps) * finite).sum(axis=1).mean())

    if slope(_MOST) <= 0:
        return 1.0
    low, high = _LEAST, _MOST
    for _ in range(_STEPS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return 1 / high


def measure(
    logits: np.ndarray, targets: np.ndarray, temperature: float = 1.0
) -> dict[str, Any]:
    """Computes calibration and negative log-likelihood; see `fit_temperature`.

    Args:
      logits, targets: see `fit_temperature`.
      temperature: divides the logits.
    """
    rows, classes = _as_classes(logits, targets)
    rows = rows / temperature
    shares = _softmax(rows)
    found = (
        class_calibration(shares, classes)
        if targets.ndim == 1
        else label_calibration(shares[:, 1].reshape(targets.shape), targets)
    )
    loss = np.logaddexp.reduce(rows, axis=1) - _of_targets(rows, classes)
    own = {"temperature": temperature, "negative_log_likelihood": loss.mean()}
    return {name: float(value) for name, value in own.items()} | found


def before_and_after(
    logits: np.ndarray, targets: np.ndarray, results: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Measures a calibrated model by `measure`, without and with temperature.

    Args:
      logits, targets: see `fit_temperature`.
      results: the contents of results.json.
    """
    temperature = results["calibration_temperature"]
    return [measure(logits, targets, each) for each in (1.0, temperature)]


def is_offered(results: Mapping[str, Any], num_rows: int) -> bool:
    """Whether a report offers to calibrate a model, by its dev rows."""
    # Recipes of earlier versions have no such setting.
    is_off = results.get("recipe", {}).get("calibrate") is False
    return is_off and num_rows >= MIN_ROWS


def calibrations(
    rows: Sequence[Mapping[str, Any]],
    results: Mapping[str, Any],
    probabilities: np.ndarray,
    targets: np.ndarray,
) -> tuple[list[Mapping[str, Any]], bool]:
    """Measures probabilities, as `calibration_section` takes them.

    Args:
      rows: of dev_predictions.jsonl.
      results: the contents of results.json.
      probabilities: float [N, C], those of `rows`.
      targets: see `fit_temperature`.
    """
    if "calibration_temperature" in results:
        logits = np.full(probabilities.shape, -np.inf)
        for row, values in zip(rows, logits, strict=True):
            values[: len(row["logits"])] = row["logits"]
        return before_and_after(logits, targets, results), False
    own = class_calibration if targets.ndim == 1 else label_calibration
    return [own(probabilities, targets)], is_offered(results, len(rows))


def _as_classes(
    logits: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns each of several labels as a row with the logits 0 and its own."""
    logits = logits.astype(np.float64)
    if targets.ndim == 1:
        return logits, targets
    rows = np.stack([np.zeros_like(logits), logits], axis=-1)
    return rows.reshape(-1, 2), targets.reshape(-1).astype(np.int64)


def _of_targets(rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
    return rows[np.arange(len(rows)), classes]


def _softmax(rows: np.ndarray) -> np.ndarray:
    return np.exp(rows - np.logaddexp.reduce(rows, axis=1, keepdims=True))
