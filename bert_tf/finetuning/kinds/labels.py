"""Labels of sentences: their order, what is wrong with one, their weights."""

import collections
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.errors import UserError, excerpt
from bert_tf.finetuning.data.examples import Label

# Above this many classes, a class must have at least two rows on average.
FEW_CLASSES = 20


def sorted_labels(labels: Any) -> tuple[str, ...]:
    """Different labels, sorted; by value where all are numbers."""
    labels = set(labels)
    try:
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    except ValueError:
        return tuple(sorted(labels))


def commonest(labels: Sequence[Label]) -> Label:
    """The commonest label, the first in order of equally common ones."""
    counts = collections.Counter(labels)
    most = max(counts.values())
    return min(label for label in counts if counts[label] == most)


def check_label_text(label: str, place: str) -> None:
    """Raises `UserError` if no prediction file could hold the label."""
    if any(character in label for character in "\t\r\n"):
        raise UserError(
            f"{place}: the label {excerpt(label)} holds a tab or a line end; "
            "remove it."
        )


def place_of(example: Any) -> str:
    """File and row of an example, for errors."""
    return f"{example.path}, row {example.row}"


def known_label(example: Any) -> Any:
    """An example's label; raises `UserError` if it has none."""
    if example.label is None:
        raise UserError(
            f"{place_of(example)}: has no label; a file with labels is needed "
            "to train and to evaluate."
        )
    return example.label


def unknown_label(label: Label, labels: Sequence[str], place: str) -> UserError:
    """The error of a label that is none of `labels`."""
    known = ", ".join(map(repr, labels[:20]))
    more = f" and {len(labels) - 20} more" if len(labels) > 20 else ""
    return UserError(
        f"{place}: unknown label {excerpt(label)}; the labels are "
        f"{known}{more}."
    )


def class_weights_of(
    setting: str, targets: np.ndarray, labels: Sequence[str]
) -> list[float] | None:
    """The weights of the classes that the recipe asks for.

    Args:
      setting: `class_weights` of the recipe.
      targets: int32 [N], the classes of the training examples.
      labels: the C classes.

    Returns:
      C weights; None for no weights. "balanced" gives each class the same
      sum of weights over the training examples, and 1 on average.

    Raises:
      UserError: the setting is no list of one number for each class.
    """
    if not setting:
        return None
    # For tasks without classes, `make_objective` says it better.
    if targets.ndim > 1 or targets.dtype != np.int32:
        return []
    if setting == "balanced":
        counts = np.bincount(targets, minlength=len(labels))
        present = np.maximum(counts, 1)
        return list(len(targets) / (np.sum(counts > 0) * present))
    try:
        weights = [float(part) for part in setting.split(",")]
    except ValueError:
        weights = []
    # With a weight of 0, a batch of that class alone would have no mean.
    good = all(0 < weight < math.inf for weight in weights)
    if not good or len(weights) != len(labels):
        raise UserError(
            f"class_weights={setting}: give balanced, or {len(labels)} numbers "
            f"above 0 for the labels {', '.join(labels)}."
        )
    return weights
