"""The params.yaml that Model Garden's trainer writes."""

import pathlib
from collections.abc import Iterable
from typing import Any

from bert_tf.errors import UserError
from bert_tf.foreign_files import read_text

# Far more than any run has.
_MOST_PARAMETERS = 1_000_000


def load_params(path: pathlib.Path) -> Any:
    """The values of a params.yaml.

    Raises:
      UserError: it is no YAML, or its aliases stand for too many values.
    """
    # Only this family's users need the package.
    import yaml

    try:
        values = yaml.safe_load(read_text(path))
        size = _expanded_size(values, {})
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not valid YAML ({reason}).") from None
    if size > _MOST_PARAMETERS:
        raise UserError(
            f"{path}: its aliases stand for {size:,} values, which no "
            "parameters are."
        )
    return values


def _expanded_size(value: Any, sizes: dict[int, int]) -> int:
    """How many values there are where each alias is written out."""
    if id(value) not in sizes:
        parts: Iterable[Any] = ()
        if isinstance(value, dict):
            parts = value.values()
        elif isinstance(value, list):
            parts = value
        sizes[id(value)] = 1 + sum(_expanded_size(p, sizes) for p in parts)
    return sizes[id(value)]
