"""Data in memory as the files that tasks on a user's files read."""

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from bert_tf.errors import UserError, excerpt
from bert_tf.tables.memory import is_list, is_table, plain, rows_in_memory
from bert_tf.text.given_texts import text_parts

Columns = Mapping[str, Collection[Any]]
# The form of data that every task on tables takes, in words.
A_TABLE = "a DataFrame, Dataset or mapping of columns"


class DataFile(NamedTuple):
    """A file of a data set.

    Attributes:
      ending: the end of its name.
      text: its content.
      settings: the settings of the recipe that describe its format.
    """

    ending: str
    text: str
    settings: Mapping[str, str] = {}


def is_pair(data: Any) -> bool:
    """Whether data are two lists, such as texts and labels."""
    return (
        isinstance(data, tuple) and len(data) == 2 and all(map(is_list, data))
    )


def other_form(data: Any, name: str, *forms: str) -> UserError:
    """The error of data that have none of the forms that a task takes."""
    return UserError(
        f"{name} is {excerpt(data)}; for this task give "
        f"{', '.join([*forms, 'or the path of a file'])}."
    )


def stored_table(data: Any, name: str, *others: str) -> DataFile:
    """Converts a table to JSON lines; see `rows_in_memory`.

    Args:
      data: the table.
      name: its name in errors.
      others: the other forms of data that the task takes, in words.

    Raises:
      UserError: data of another form, or an invalid cell.
    """
    if not is_table(data):
        raise other_form(data, name, A_TABLE, *others)
    return DataFile("jsonl", json_lines(data, name))


def json_lines(table: Any, name: str) -> str:
    """Converts the rows of a table to JSON lines; see `rows_in_memory`."""
    return "".join(
        json.dumps(
            {
                column: json_value(cell, f"{name}: {column}[{number}]")
                for column, cell in row.items()
            },
            ensure_ascii=False,
        )
        + "\n"
        for number, row in enumerate(rows_in_memory(table, name))
    )


def json_value(cell: Any, place: str) -> Any:
    """Converts a cell to JSON types; a missing one to None.

    Raises:
      UserError: it has another type; the line begins with `place`.
    """

    def refuse(value: Any) -> Any:
        raise UserError(
            f"{place} is {excerpt(value)}; give a text, a number, a list or "
            "mapping of them, or None."
        )

    return plain(cell, refuse, lambda text: text_parts(text, place)[0])
