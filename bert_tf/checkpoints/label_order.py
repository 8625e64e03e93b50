"""The rows of a head, placed by the names of its labels."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint, num_labels
from bert_tf.checkpoints.hugging_face_labels import default_labels
from bert_tf.checkpoints.layout import head_shapes
from bert_tf.errors import excerpt, first_few
from bert_tf.lazy_arrays import LazyArrays, shapes_of_arrays
from bert_tf.progress import log


def place_labels(
    checkpoint: Checkpoint,
    head: str,
    labels: Sequence[str],
    problem_type: str | None = None,
) -> Checkpoint | None:
    """Puts the rows of a head in the order of some labels, by their names.

    Outputs without names, LABEL_0 and so on, take `labels` in their order where
    there are as many; one line is logged then. Other lines state that the
    outputs are used as another kind, and why a head is not reused.

    Args:
      checkpoint: a model with the head.
      head: classifier or token_classifier.
      labels: the C names in the order that is asked for; none for a head of
        one number.
      problem_type: what the outputs are used as, see `Checkpoint`; None for a
        head of which there is one kind.

    Returns:
      The checkpoint with these labels, whose arrays are read when asked for;
      None where the head is for other labels.
    """
    rows, names = num_labels(checkpoint, head), checkpoint.labels
    # The names may be those of another head.
    named = names is not None and len(names) == rows
    known = names if named and names else default_labels(rows)
    labels = tuple(labels)
    if known == labels or (not labels and rows == 1):
        order: Sequence[int] = range(rows)
    elif set(known) == set(labels):
        order = [known.index(label) for label in labels]
    elif known == default_labels(rows) and len(labels) == rows:
        order = _numbers(labels) or range(rows)
        taken = [
            f"{known[i]} is {excerpt(label)}"
            for i, label in zip(order, labels, strict=True)
        ]
        log(
            f"{checkpoint.source}: its {head} has no names of labels, so it "
            f"takes those given: {first_few(taken)}."
        )
    else:
        log(
            f"{checkpoint.source}: its {head} is for other labels "
            f"({_difference(known, labels)}); a new head starts from random "
            "weights."
        )
        return None
    if problem_type and checkpoint.problem_type not in (None, problem_type):
        log(
            f"{checkpoint.source}: its {head} was trained as "
            f"{checkpoint.problem_type} and is used as {problem_type}."
        )
    placed = dataclasses.replace(
        checkpoint, labels=labels or None, problem_type=problem_type
    )
    if list(order) == list(range(rows)):
        return placed
    arrays = checkpoint.arrays
    axes = {
        name: shape.index(None)
        for name, shape in head_shapes(checkpoint.config)[head].items()
        if None in shape
    }

    def read(name: str) -> np.ndarray:
        array = arrays[name]
        return np.take(array, order, axes[name]) if name in axes else array

    return dataclasses.replace(
        placed, arrays=LazyArrays(shapes_of_arrays(arrays), read)
    )


def _numbers(labels: Sequence[str]) -> list[int] | None:
    """The labels as numbers, where they are 0 to C - 1; else None."""
    if set(labels) != {str(i) for i in range(len(labels))}:
        return None
    return [int(label) for label in labels]


def _difference(known: Sequence[str], labels: Sequence[str]) -> str:
    """Which names only one of two lists of labels has."""
    if not labels:
        return f"{len(known)} outputs, where a number takes 1"
    sides = {
        "only in the model": [name for name in known if name not in labels],
        "only in the data": [name for name in labels if name not in known],
    }
    return "; ".join(
        f"{side}: {first_few(list(map(excerpt, names)))}"
        for side, names in sides.items()
        if names
    )
