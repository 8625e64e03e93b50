"""The names of a head's labels, and its rows in their order.

In config.json of transformers:

id2label        the name of each output
num_labels      how many there are, where they have no names
problem_type    what the outputs of a sequence classifier are
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.checkpoints.checkpoint import PROBLEM_TYPES, Checkpoint, num_labels
from bert_tf.checkpoints.layout import head_shapes
from bert_tf.errors import UserError, check_choice, excerpt, first_few
from bert_tf.lazy_arrays import LazyArrays, shapes_of_arrays
from bert_tf.progress import log

# Of a config.json that states neither id2label nor num_labels.
_DEFAULT_LABELS = 2


def default_labels(rows: int) -> tuple[str, ...]:
    """The names that transformers gives outputs without names."""
    return tuple(f"LABEL_{i}" for i in range(rows))


def read_labels(
    values: Mapping[str, Any], rows: int, path: pathlib.Path
) -> tuple[str, ...] | None:
    """The names of a head's labels; None for transformers' LABEL_0 and so on.

    A name that is a number is read as its digits, null as LABEL_i, and the
    second of two equal names gets "_2" behind it; one line is logged then.

    Args:
      values: what config.json holds.
      rows: the number of labels that the head scores.
      path: the file, for errors.
    """
    ids = [str(i) for i in range(rows)]
    names = values.get("id2label")
    if names is None:
        count = values.get("num_labels", _DEFAULT_LABELS)
        names = dict(zip(ids, default_labels(rows), strict=True))
    elif not isinstance(names, dict) or any(
        isinstance(name, list | dict) for name in names.values()
    ):
        raise UserError(
            f"{path}: id2label must be an object that names each label, as "
            '{"0": "negative", "1": "positive"}.'
        )
    else:
        count = len(names)
    if count != rows:
        raise UserError(
            f"{path}: names {count} labels (id2label), but the head in the "
            f"weights has {rows}."
        )
    if set(names) != set(ids):
        raise UserError(
            f"{path}: id2label has the ids {', '.join(names)}; they must be "
            f"0 to {rows - 1}."
        )
    labels = _distinct([names[i] for i in ids])
    changed = [
        f"{i} ({excerpt(names[i])}) is {excerpt(label)}"
        for i, label in zip(ids, labels, strict=True)
        if names[i] != label
    ]
    if changed:
        log(
            f"{path}: id2label has names that are no text or occur twice: "
            f"label {first_few(changed)}."
        )
    return None if labels == default_labels(rows) else labels


def _distinct(names: list[Any]) -> tuple[str, ...]:
    """Names as text, each once; the first of two equal names stays."""
    texts = [
        f"LABEL_{i}" if name is None else str(name)
        for i, name in enumerate(names)
    ]
    taken = set(texts)
    labels: list[str] = []
    for text in texts:
        label, number = text, 1
        while label in labels or (number > 1 and label in taken):
            number += 1
            label = f"{text}_{number}"
        labels.append(label)
    return tuple(labels)


def read_problem_type(
    values: Mapping[str, Any], path: pathlib.Path
) -> str | None:
    """What the outputs of a sequence classifier are; None where not stated.

    Args:
      values: what config.json holds.
      path: the file, for errors.
    """
    given = values.get("problem_type")
    if given is not None:
        check_choice(f"{path}: problem_type", given, PROBLEM_TYPES)
    return given


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
