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
    kind = settings.get("label_kind")
    label_columns = [label_column]
    if kind == "multi_label":
        label_columns = [each.strip() for each in label_column.split(",")]
    stated = settings.get("text_columns") or ""
    names = [each.strip() for each in stated.split(",") if each.strip()]
    if isinstance(data, tuple):
        texts, *columns = data
    else:
        rows = list(rows_in_memory(data, name))
        data = {key: [row.get(key) for row in rows] for key in rows[0]}
        names = names or ["text"]
        given = [_column(data, each, "text_columns", name) for each in names]
        texts = [*zip(*given, strict=True)] if len(given) > 1 else given[0]
        columns = [
            _column(data, each, "label_column", name) for each in label_columns
        ]
    place = f"{name}: texts"
    parts = text_columns(map(_filled, members(texts, place)), place)
    names = names or ["text", "text_b"][: len(parts)]
    if len(names) != len(parts):
        raise UserError(
            f"{name}: has {len(parts)} text(s) a row, and "
            f"`text_columns`={stated} names {len(names)}."
        )
    table = dict(zip(names, parts, strict=True))
    for column, labels in zip(label_columns, columns, strict=True):
        table[column] = [
            _label(label, f"{name}: labels[{number}]", kind == "regression")
            for number, label in enumerate(labels)
        ]
    found = {"text_columns": ",".join(names), "label_column": label_column}
    return DataFile("jsonl", json_lines(table, name), found)


def _filled(text: Any) -> Any:
    """Replaces missing texts by empty ones, which `empty_text` applies to."""
    if isinstance(text, tuple | list):
        return tuple("" if is_missing(part) else part for part in text)
    return "" if is_missing(text) else text


def _label(label: Any, place: str, is_number: bool) -> Any:
    """Converts a label to JSON types; a missing one to None.

    Whole numbers become floats in columns in which others are missing.
    """
    found = json_value(label, place)
    if found is None or is_number and isinstance(found, float):
        return found
    parts = found if isinstance(found, list) else [found]
    whole = [
        int(p) if isinstance(p, float) and p.is_integer() else p for p in parts
    ]
    if all(isinstance(p, str | int) for p in whole):
        return whole if isinstance(found, list) else whole[0]
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
