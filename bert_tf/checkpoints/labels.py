"""Reads the labels in transformers' config.json, and reorders heads by them.

id2label        the name of each output
num_labels      the number of outputs without names
problem_type    the kind of outputs of a sequence classifier
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.checkpoints.checkpoint import PROBLEM_TYPES, Checkpoint, num_labels
from bert_tf.checkpoints.layout import head_shapes
from bert_tf.errors import UserError, check_choice, excerpt, first_few
from bert_tf.lazy_arrays import changed_arrays, shapes_of_arrays
from bert_tf.progress import log

# Without id2label and num_labels.
_DEFAULT_LABELS = 2


def default_labels(rows: int) -> tuple[str, ...]:
    """Returns transformers' names of outputs without names."""
    return tuple(f"LABEL_{i}" for i in range(rows))


def read_labels(
    values: Mapping[str, Any], rows: int, path: pathlib.Path
) -> tuple[str, ...] | None:
    """Returns the names of a head's labels; None for LABEL_0, LABEL_1, ....

    A number becomes its digits, null LABEL_i, and the second of two equal names
    gets the suffix "_2"; changed names are logged.

    Args:
      values: the keys of config.json.
      rows: the number of labels of the head.
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
            f"{path}: id2label has names that are no strings or not unique: "
            f"label {first_few(changed)}."
        )
    return None if labels == default_labels(rows) else labels


def _distinct(names: list[Any]) -> tuple[str, ...]:
    """Returns names as distinct strings; the first of equal ones is kept."""
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
    """Returns the problem_type in config.json, if any."""
    problem_type = values.get("problem_type")
    if problem_type is not None:
        check_choice(f"{path}: problem_type", problem_type, PROBLEM_TYPES)
    return problem_type


def place_labels(
    checkpoint: Checkpoint,
    head: str,
    labels: Sequence[str],
    problem_type: str | None = None,
) -> Checkpoint | None:
    """Reorders the rows of a head by the names of its labels.

    The C outputs of a head without names take `labels` in their order. This,
    another problem_type and a head that is not reused are logged.

    Args:
      checkpoint: a model with the head.
      head: classifier or token_classifier.
      labels: the C names in their new order; empty for a regression.
      problem_type: the new kind of outputs, see `Checkpoint`; None for other
        heads than classifiers.

    Returns:
      The checkpoint with these labels, whose arrays are read at each access;
      None if the head has other labels.
    """
    rows, names = num_labels(checkpoint, head), checkpoint.labels
    # The names may belong to another head.
    named = names is not None and len(names) == rows
    known = names if named and names else default_labels(rows)
    labels = tuple(labels)
    if known == labels or (not labels and rows == 1):
        order: Sequence[int] = range(rows)
    elif set(known) == set(labels):
        order = [known.index(label) for label in labels]
    elif known == default_labels(rows) and len(labels) == rows:
        order = range(rows)
        if set(labels) == set(map(str, order)):
            order = [int(label) for label in labels]
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
    shapes = shapes_of_arrays(arrays)
    return dataclasses.replace(
        placed,
        arrays=changed_arrays(
            arrays,
            {name: shapes[name] for name in axes},
            lambda name: np.take(arrays[name], order, axes[name]),
        ),
    )


def _difference(known: Sequence[str], labels: Sequence[str]) -> str:
    """Describes the names in only one of two lists of labels."""
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
