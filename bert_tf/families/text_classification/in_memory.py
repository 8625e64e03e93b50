"""Texts and labels in memory as a file; see `bert_tf.finetune`."""

from collections.abc import Mapping
from typing import Any

from bert_tf.errors import UserError, did_you_mean, excerpt, first_few
from bert_tf.families.in_memory import (
    A_TABLE,
    Columns,
    DataFile,
    is_pair,
    json_lines,
    json_value,
    other_form,
)
from bert_tf.tables.memory import is_missing, is_table, rows_in_memory
from bert_tf.text.given_texts import members, text_columns


def labelled_texts(
    data: Any, name: str, settings: Mapping[str, Any]
) -> DataFile:
    """Converts texts, or pairs of texts, with one label each.

    Args:
      data: (texts, labels) or a table; see `rows_in_memory`.
      name: the name of the argument, for errors.
      settings: the settings that are given.

    Raises:
      UserError: data of another form, or an invalid text or label; the line
        names the row, counted from 0.
    """
    if not is_pair(data) and not is_table(data):
        raise other_form(data, name, "(texts, labels)", A_TABLE)
    label_column = settings.get("label_column") or "label"
    given = settings.get("text_columns") or ""
    names = [each.strip() for each in given.split(",") if each.strip()]
    if isinstance(data, tuple):
        texts, labels = data
    else:
        rows = list(rows_in_memory(data, name))
        data = {key: [row.get(key) for row in rows] for key in rows[0]}
        names = names or ["text"]
        parts = [_column(data, each, "text_columns", name) for each in names]
        texts = [*zip(*parts, strict=True)] if len(parts) > 1 else parts[0]
        labels = _column(data, label_column, "label_column", name)
    place = f"{name}: texts"
    columns = text_columns(map(_filled, members(texts, place)), place)
    names = names or ["text", "text_b"][: len(columns)]
    if len(names) != len(columns):
        raise UserError(
            f"{name}: has {len(columns)} text(s) a row, and "
            f"`text_columns`={given} names {len(names)}."
        )
    allowed = float if settings.get("label_kind") == "regression" else int
    labels = [
        _label(label, f"{name}: labels[{number}]", allowed)
        for number, label in enumerate(labels)
    ]
    table = dict(zip(names, columns, strict=True)) | {label_column: labels}
    found = {"text_columns": ",".join(names), "label_column": label_column}
    return DataFile("jsonl", json_lines(table, name), found)


def _filled(text: Any) -> Any:
    """Replaces missing texts by empty ones, which `empty_text` applies to."""
    if isinstance(text, tuple | list):
        return tuple("" if is_missing(part) else part for part in text)
    return "" if is_missing(text) else text


def _label(label: Any, place: str, allowed: type[int] | type[float]) -> Any:
    """Converts a label to JSON types; a missing one to None."""
    found = json_value(label, place)
    parts = found if isinstance(found, list) else [found]
    if found is None or all(isinstance(p, str | int | allowed) for p in parts):
        return found
    raise UserError(
        f"{place} is {excerpt(label)}; give a name or a whole number, a list "
        "of them for several labels, or any number with "
        "`label_kind`=regression."
    )


def _column(table: Columns, column: str, setting: str, name: str) -> Any:
    if column in table:
        return table[column]
    columns = [str(each) for each in table]
    near = did_you_mean(column, columns, repr)
    raise UserError(
        f"{name}: has no column {column!r}.{near} Its columns are "
        f"{first_few(columns)}; choose one with `{setting}`."
    )
