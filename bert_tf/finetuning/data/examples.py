"""What a task reads and what a model answers: the common currency."""

import dataclasses
from typing import Any, NamedTuple, TypeAlias

import numpy as np

# The name of a class, a number (regression), the names of all classes that
# hold (multi-label), or None where the file tells no answer: each kind of task
# reads its own.
Label: TypeAlias = Any


class Example(NamedTuple):
    """One row of a data set.

    Attributes:
      text_a: the text, or the first of a pair.
      text_b: the second of a pair, or None.
      label: the answer; None in test files.
      identifier: the row's own name, for prediction files.
      row: its line in the file, counted from 1, for errors.
      path: the file it is from, for errors.
    """

    text_a: str
    text_b: str | None
    label: Label
    identifier: str
    row: int
    path: str = ""


@dataclasses.dataclass(frozen=True)
class Predictions:
    """A model's answers to N examples.

    Attributes:
      logits: float32 [N, C].
      values: the answers, in the form of `Example.label`.
      probabilities: float32 [N, C]; None for regression.
    """

    logits: np.ndarray
    values: tuple[Label, ...]
    probabilities: np.ndarray | None
