"""Reads the params.yaml that Model Garden's trainer writes."""

import pathlib
from collections.abc import Iterable
from typing import Any

from bert_tf.errors import UserError, one_line
from bert_tf.foreign_files import read_text

# Far more than any run has.
_MOST_PARAMETERS = 1_000_000


def load_params(path: pathlib.Path) -> Any:
    """Reads the values of a params.yaml.

    Raises:
      UserError: the file is no YAML, or its aliases expand to too many values.
    """
    import yaml

    try:
        values = yaml.safe_load(read_text(path))
        size = _expanded_size(values, {})
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(
            f"{path}: not valid YAML ({one_line(error)})."
        ) from None
    if size > _MOST_PARAMETERS:
        raise UserError(
            f"{path}: its aliases expand to {size:,} values; at most "
            f"{_MOST_PARAMETERS:,} are read."
        )
    return values


def _expanded_size(value: Any, sizes: dict[int, int]) -> int:
    """Returns the number of values with all aliases expanded."""
    if id(value) not in sizes:
        parts: Iterable[Any] = ()
        if isinstance(value, dict):
            parts = value.values()
        elif isinstance(value, list):
            parts = value
        sizes[id(value)] = 1 + sum(_expanded_size(p, sizes) for p in parts)
    return sizes[id(value)]
