"""Checks of the settings in the files of sentence-transformers' modules."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.errors import UserError, excerpt, first_few
from bert_tf.recipe import Limits, value_of_key

HINT = "With `pooling`=mean, embed reads only the Transformer."
# The shortest row: a token between two special ones.
MIN_LENGTH = 3


def expect(
    values: Mapping[str, Any], key: str, expected: Any, path: pathlib.Path
) -> None:
    """Refuses another value than the only supported one."""
    if (value := values.get(key)) not in (None, expected):
        raise UserError(
            f"{path}: {key} is {excerpt(value)}, which is not supported; it "
            f"takes {expected!r}. {HINT}"
        )


def refuse_unknown(
    values: Mapping[str, Any], known: Sequence[str], path: pathlib.Path
) -> None:
    """Refuses settings of a module that are not read."""
    known = (*known, "module_input_name", "module_output_name")
    if unknown := [key for key in values if key not in known]:
        raise UserError(
            f"{path}: has the unknown setting {first_few(unknown)}; it takes "
            f"{', '.join(known)}. {HINT}"
        )


def read_size(
    values: Mapping[str, Any], key: str, path: pathlib.Path
) -> int | None:
    """Returns a number of 1 or more; None if it is not stated."""
    size = value_of_key(values, key, int, str(path))
    if size is not None:
        Limits(at_least=1).check(f"{path}: {key}", size)
    return size
