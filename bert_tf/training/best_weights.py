"""Which weights of a run scored best, and when to stop looking for better."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

_PREFIX = "best/"


class BestWeights:
    """Keeps a copy of the weights that scored best so far.

    The copy and the count of evaluations are part of the training state, so
    that a resumed run chooses and stops as the uninterrupted one does.

    Args:
      variables: the weights.
      score: scores of the weights as they are now on held-out data, by name.
      metric: the score to go by; a NaN is worse than any number.
      patience: evaluations without a better one after which to stop; 0 for
        never.
      lower_is_better: whether the score is to be small instead of large.
    """

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        score: Callable[[], Mapping[str, float]],
        metric: str,
        patience: int = 0,
        lower_is_better: bool = False,
    ):
        self.score = score
        self.step = 0
        self._variables = list(variables)
        self._metric = metric
        self._patience = patience
        self._sign = -1.0 if lower_is_better else 1.0
        self._value = -math.inf
        self._waited = 0
        self._arrays: list[np.ndarray] | None = None

    def offer(self, step: int, scores: Mapping[str, float]) -> bool:
        """Takes the weights if they are better, and says whether they are."""
        value = self._sign * scores[self._metric]
        if self._arrays is not None and not value > self._value:
            self._waited += 1
            return False
        self.step, self._waited = step, 0
        self._value = -math.inf if math.isnan(value) else value
        self._arrays = [v.numpy().copy() for v in self._variables]
        return True

    @property
    def exhausted(self) -> bool:
        """Whether `patience` evaluations in a row were no better."""
        return 0 < self._patience <= self._waited

    @property
    def is_newest(self) -> bool:
        """Whether the newest evaluation is that of the best weights."""
        return self._arrays is not None and not self._waited

    def assign(self) -> None:
        """Gives the variables the best weights, where there were any."""
        if self._arrays is not None:
            for variable, array in zip(
                self._variables, self._arrays, strict=True
            ):
                variable.assign(array)

    def arrays(self) -> dict[str, np.ndarray]:
        """The copy, by names for a training state."""
        return {
            f"{_PREFIX}{index:04d}": array
            for index, array in enumerate(self._arrays or [])
        }

    def facts(self) -> dict[str, Any]:
        """What else a training state remembers."""
        return {
            "step": self.step,
            "value": self._value,
            "waited": self._waited,
        }

    def restore(
        self, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Resumes from what `facts` and `arrays` returned."""
        self.step, self._value = facts["step"], facts["value"]
        self._waited = facts["waited"]
        self._arrays = [arrays[name] for name in sorted(arrays)] or None


def split_off_best(
    arrays: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The arrays of a training state without and with the best weights."""
    best = {k: v for k, v in arrays.items() if k.startswith(_PREFIX)}
    return {k: v for k, v in arrays.items() if k not in best}, best
