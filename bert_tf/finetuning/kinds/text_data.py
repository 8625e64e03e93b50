"""Where the rows of text tasks come from, and what their models remember."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from bert_tf.finetuning.data.examples import Example, Label, ParseLabel
from bert_tf.finetuning.legacy_task import TaskFacts
from bert_tf.finetuning.recipe import SentenceRecipe


class TextData(Protocol):
    """Where a task's rows come from."""

    def present(
        self, splits: Sequence[str], recipe: SentenceRecipe
    ) -> tuple[str, ...]:
        """The splits that are there; says in a line which are not."""

    def read(
        self, split: str, recipe: SentenceRecipe, parse_label: ParseLabel
    ) -> list[Example]:
        """The rows of a split, labels made of their cells by `parse_label`."""

    def read_file(
        self, path: str, recipe: SentenceRecipe, parse_label: ParseLabel
    ) -> list[Example]:
        """The rows of a file that is laid out as the dev file is."""


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


@dataclasses.dataclass(frozen=True)
class SentenceFacts(TaskFacts):
    """What task.json holds of a model of sentences.

    Attributes:
      label_kind: classes, regression or multi_label.
      num_outputs: C.
      num_texts: 1, or 2 where the rows are pairs.
      text_columns: columns of an own file, as the recipe has them.
      label_separator: between several labels in a cell.
      long_inputs: cut or windows.
      doc_stride: tokens from the start of a window to that of the next.
      threshold: above which one of several labels holds.
    """

    label_kind: str
    num_outputs: int
    num_texts: int
    text_columns: str
    label_separator: str
    long_inputs: str
    doc_stride: int
    threshold: float

    def summary(self) -> dict[str, Any]:
        """The threshold, where there is one."""
        several = self.label_kind == "multi_label"
        return {"threshold": self.threshold} if several else {}
