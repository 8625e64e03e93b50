"""Reads the description of outputs in a fine-tuned model's task.json.

`bert_tf.families.model_folder` reads the other keys.
"""

import dataclasses
import os
import pathlib
from typing import Any

from bert_tf.architectures.parts import CLASSIFIER, LABELLED_HEADS
from bert_tf.checkpoints.checkpoint import (
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    Checkpoint,
)
from bert_tf.errors import UserError, excerpt, first_few
from bert_tf.foreign_files import demand_regular
from bert_tf.recipe import read_json_object

TASK_FILE = "task.json"
# The kinds of outputs in task.json, and transformers' names.
PROBLEM_TYPE_OF = {
    "classes": SINGLE_LABEL,
    "regression": REGRESSION,
    "multi_label": MULTI_LABEL,
}


def read_task_file(folder: str | os.PathLike) -> dict[str, Any] | None:
    """Reads a folder's task.json; returns None without one.

    Raises:
      UserError: the file is not regular or no JSON object.
    """
    path = pathlib.Path(folder) / TASK_FILE
    demand_regular(path)
    if not path.is_file():
        return None
    values = read_json_object(path)
    # KerasHub has a file of the same name.
    return None if "registered_name" in values else values


def with_task(
    checkpoint: Checkpoint, folder: pathlib.Path, labels_file: str
) -> Checkpoint:
    """Adds labels, problem_type and max_seq_length of task.json.

    `labels_file` is the folder's other file with labels, for errors.

    Raises:
      UserError: the files contradict each other.
    """
    values, changes = read_task_file(folder) or {}, dict[str, Any]()
    heads = set(LABELLED_HEADS) & set(checkpoint.heads)
    names, known = values.get("labels"), checkpoint.labels
    if heads and isinstance(names, list) and names:
        if known is not None and list(known) != names:
            theirs = [
                f"{name} names {first_few(list(map(excerpt, each)))}"
                for name, each in ((labels_file, known), (TASK_FILE, names))
            ]
            raise UserError(
                f"{folder}: {', and '.join(theirs)}, but the outputs of the "
                "head have one order; restore the file that was changed."
            )
        if all(isinstance(name, str) for name in names):
            changes["labels"] = tuple(names)
    kind = PROBLEM_TYPE_OF.get(str(values.get("label_kind")))
    if CLASSIFIER in heads and kind is not None:
        if checkpoint.problem_type not in (None, kind):
            raise UserError(
                f"{folder}: label_kind is {values['label_kind']} in "
                f"{TASK_FILE}, and problem_type {checkpoint.problem_type} in "
                f"{labels_file}; restore the file that was changed."
            )
        changes["problem_type"] = kind
    length = values.get("max_seq_length")
    if isinstance(length, int) and not isinstance(length, bool) and length > 0:
        longest = checkpoint.config.longest_input
        changes["max_seq_length"] = min(length, longest)
    return dataclasses.replace(checkpoint, **changes)
