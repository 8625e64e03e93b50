"""What transformers' config.json states of the outputs of a head.

id2label        the name of each output
num_labels      how many there are, where they have no names
problem_type    what the outputs of a sequence classifier are
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from bert_tf.checkpoints.checkpoint import PROBLEM_TYPES
from bert_tf.errors import UserError, excerpt, first_few
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
    if given is None:
        return None
    if given not in PROBLEM_TYPES:
        raise UserError(
            f"{path}: problem_type is {excerpt(given)}; it takes one of "
            f"{', '.join(PROBLEM_TYPES)}."
        )
    return given
