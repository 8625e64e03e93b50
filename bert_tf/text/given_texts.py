"""Checks texts that are passed by programs: strings or pairs of strings."""

from collections.abc import Iterable, Mapping, Set
from typing import Any, TypeAlias

from bert_tf.errors import UserError, excerpt, first_few
from bert_tf.files import whole_text

Text: TypeAlias = str | tuple[str, str]
# The one or two strings of a text.
Parts: TypeAlias = tuple[str, ...]


def text_parts(text: Any, place: str) -> Parts:
    """Returns the strings of a text.

    Args:
      text: a string, or a tuple or list of two.
      place: its name in errors, such as texts[3].

    Raises:
      UserError: it has another type or contains a lone surrogate.
    """
    parts = (text,) if isinstance(text, str) else text
    is_text = isinstance(parts, tuple | list) and (
        len(parts) == 2 or parts is not text
    )
    if not is_text or not all(isinstance(part, str) for part in parts):
        raise UserError(
            f"{place} is {excerpt(text)}; give a string or a pair of strings."
        )
    return tuple(whole_text(part, place) for part in parts)


def members(value: Any, place: str) -> Iterable[Any]:
    """Returns the elements of a list-like argument in their order.

    Args:
      value: a list or another sequence, an iterator, a column (Series) or a
        table (DataFrame) of one column, of pandas, polars or another library.
      place: its name in errors, such as `texts`.

    Raises:
      UserError: it is a string, unordered, or a table of several columns.
    """
    columns = getattr(value, "columns", None)
    if columns is not None and not isinstance(value, Mapping):
        # A table iterates over the names of its columns.
        names = list(columns)
        if len(names) == 1:
            return list(value[names[0]])
        shown = [*map(str, names), "name"]
        raise UserError(
            f"{place} is a table with the columns "
            f"{first_few(shown[:-1]) or '(none)'}; "
            f"give one column of it, table[{shown[0]!r}]."
        )
    if isinstance(value, Mapping):
        keys = [*map(repr, value)]
        raise UserError(
            f"{place} is a mapping with the keys {first_few(keys) or '(none)'};"
            " give the list of one of them."
        )
    if isinstance(value, str | bytes):
        raise UserError(
            f"{place} is one string, {excerpt(value)}; give a list of them."
        )
    if isinstance(value, Set) or not isinstance(value, Iterable):
        raise UserError(f"{place} is {excerpt(value)}; give a list of strings.")
    return value


def text_columns(texts: Iterable[Text], name: str) -> list[list[str]]:
    """Splits N texts into columns of first and, for pairs, second texts.

    Args:
      texts: N strings, or N pairs of them.
      name: their name in errors, such as `x`.

    Returns:
      One or two lists of N strings.

    Raises:
      UserError: there are none, one is no text, or only some are pairs.
    """
    given = enumerate(members(texts, name))
    rows = [text_parts(text, f"{name}[{i}]") for i, text in given]
    if not rows:
        raise UserError(f"{name}: is empty; give at least one text.")
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise UserError(
                f"{name}[{number}] has {len(row)} texts and {name}[0] has "
                f"{len(rows[0])}; give only strings or only pairs."
            )
    return [list(column) for column in zip(*rows, strict=True)]
