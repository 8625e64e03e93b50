"""Names of the labels of a fine-tuned head: labels.json."""

import json
import pathlib
from collections.abc import Sequence

from bert_tf.errors import UserError
from bert_tf.files import write_text

LABELS_FILE = "labels.json"


def read_labels(folder: pathlib.Path) -> tuple[str, ...] | None:
    """The names in order, or None where the folder does not tell.

    Raises:
      UserError: the file holds no list of strings.
    """
    path = folder / LABELS_FILE
    if not path.exists():
        return None
    try:
        labels = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON ({error}).") from None
    if not isinstance(labels, list) or not all(
        isinstance(label, str) for label in labels
    ):
        raise UserError(f"{path}: holds no list of strings.")
    check_labels(labels, str(path))
    return tuple(labels)


def check_labels(labels: Sequence[str], source: str) -> None:
    """Refuses names that no file can hold, or that are not told apart.

    Raises:
      UserError: a name holds half a surrogate pair or occurs twice.
    """
    for number, label in enumerate(labels):
        try:
            label.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(
                f"{source}: label {number} is {label!r}, which is no text."
            ) from None
        if label in labels[:number]:
            raise UserError(f"{source}: the label {label!r} occurs twice.")


def write_labels(folder: pathlib.Path, labels: Sequence[str] | None) -> None:
    """Writes the names, or nothing where there are none."""
    if labels is not None:
        text = json.dumps(list(labels), ensure_ascii=False, indent=2)
        write_text(folder / LABELS_FILE, text + "\n")
