"""Data in memory as the files that tasks on a user's files read."""

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from bert_tf.errors import UserError, did_you_mean, excerpt, first_few
from bert_tf.families.question_answering.recipe import UserQuestionRecipe
from bert_tf.families.recipe import FinetuningRecipe, UserFilesRecipe
from bert_tf.families.text_classification.recipe import UserTableRecipe
from bert_tf.families.token_classification.recipe import UserTagRecipe
from bert_tf.tables.memory import (
    is_list,
    is_missing,
    is_table,
    plain,
    rows_in_memory,
)
from bert_tf.text.given_texts import members, text_columns, text_parts

Columns = Mapping[str, Collection[Any]]


class DataFile(NamedTuple):
    """A file of a data set.

    Attributes:
      ending: the end of its name.
      text: its content.
      settings: the settings of the recipe that describe its format.
    """

    ending: str
    text: str
    settings: Mapping[str, str]


def file_of(
    data: Any,
    name: str,
    recipe_type: type[FinetuningRecipe],
    settings: Mapping[str, Any],
) -> DataFile:
    """Converts data in memory to a file.

    Args:
      data: (texts, labels), for tagged words (sentences, tags), or a table: a
        mapping of columns, a DataFrame of pandas or polars, a Table of pyarrow
        or a Dataset of datasets; for questions also the content of a JSON
        file, see `question_answering.squad_files.read_questions`.
      name: the name of the argument, for errors.
      recipe_type: the settings of the task.
      settings: the settings that are given.

    Raises:
      UserError: data of another form, or an invalid text or label; the line
        names the row, counted from 0.
    """
    is_questions = issubclass(recipe_type, UserQuestionRecipe)
    is_json = isinstance(data, list) or (
        isinstance(data, Mapping) and is_list(data.get("data"))
    )
    if is_questions and is_json:
        text = json.dumps(_cell(data, name), ensure_ascii=False)
        return DataFile("json", text, {})
    is_pair = isinstance(data, tuple) and len(data) == 2
    is_pair = is_pair and all(map(is_list, data))
    forms = {}
    if issubclass(recipe_type, UserTagRecipe):
        forms["(sentences, tags)"] = is_pair
    if issubclass(recipe_type, UserTableRecipe):
        forms["(texts, labels)"] = is_pair
    if issubclass(recipe_type, UserFilesRecipe):
        forms["a DataFrame, Dataset or mapping of columns"] = is_table(data)
    if is_questions:
        forms["a list of questions"] = False
    if not any(forms.values()):
        raise UserError(
            f"{name} is {excerpt(data)}; for this task give "
            f"{', '.join([*forms, 'or the path of a file'])}."
        )
    if is_table(data):
        data = _columns_of(data, name)
    if issubclass(recipe_type, UserTagRecipe):
        sentences, tags = data
        return DataFile("txt", _tagged(sentences, tags, name), {})
    if issubclass(recipe_type, UserTableRecipe):
        return _labelled(data, name, settings)
    return DataFile("jsonl", _json_lines(data, name), {})


def _columns_of(table: Any, name: str) -> Columns:
    """The columns of a table; see `rows_in_memory`."""
    rows = list(rows_in_memory(table, name))
    return {column: [row.get(column) for row in rows] for column in rows[0]}


def _labelled(
    data: Columns | tuple[Any, Any], name: str, settings: Mapping[str, Any]
) -> DataFile:
    """Converts texts, or pairs of texts, with one label each."""
    label_column = settings.get("label_column") or "label"
    given = settings.get("text_columns") or ""
    names = [each.strip() for each in given.split(",") if each.strip()]
    if isinstance(data, tuple):
        texts, labels = data
    else:
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
    rows = dict(zip(names, columns, strict=True)) | {label_column: labels}
    found = {"text_columns": ",".join(names), "label_column": label_column}
    return DataFile("jsonl", _json_lines(rows, name), found)


def _filled(text: Any) -> Any:
    """Replaces missing texts by empty ones, which `empty_text` applies to."""
    if isinstance(text, tuple | list):
        return tuple("" if is_missing(part) else part for part in text)
    return "" if is_missing(text) else text


def _label(label: Any, place: str, allowed: type[int] | type[float]) -> Any:
    """Converts a label to JSON types; a missing one to None."""
    found = _cell(label, place)
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


def _json_lines(columns: Columns, name: str) -> str:
    """Converts the rows of a table to JSON lines."""
    return "".join(
        json.dumps(
            {
                column: _cell(cell, f"{name}: {column}[{number}]")
                for column, cell in row.items()
            },
            ensure_ascii=False,
        )
        + "\n"
        for number, row in enumerate(rows_in_memory(columns, name))
    )


def _cell(cell: Any, place: str) -> Any:
    """Converts a cell to JSON types; a missing one to None."""

    def refuse(value: Any) -> Any:
        raise UserError(
            f"{place} is {excerpt(value)}; give a text, a number, a list or "
            "mapping of them, or None."
        )

    return plain(cell, refuse, lambda text: text_parts(text, place)[0])


def _tagged(sentences: Any, tags: Any, name: str) -> str:
    """Converts tagged words to the format of CoNLL, one word per line."""
    if not len(sentences) == len(tags) > 0:
        raise UserError(
            f"{name}: has {len(sentences)} sentences and {len(tags)} lists of "
            "tags; give as many of each, at least one."
        )
    text = ""
    for number, both in enumerate(zip(sentences, tags, strict=True)):
        place = f"{name}: sentences[{number}]"
        if not all(map(is_list, both)):
            raise UserError(f"{place} and its tags are no lists; give words.")
        words, its_tags = map(list, both)
        if not len(words) == len(its_tags) > 0:
            raise UserError(
                f"{place} has {len(words)} words and {len(its_tags)} tags; "
                "give each word one."
            )
        for cell in (*words, *its_tags):
            parts = cell.splitlines() if isinstance(cell, str) else []
            if parts != [cell] or "\t" in cell or not cell.strip():
                raise UserError(
                    f"{place} holds {excerpt(cell)}; words and tags are "
                    "strings of one line, without tabs."
                )
            text_parts(cell, place)
        lines = map("\t".join, zip(words, its_tags, strict=True))
        text += "".join(f"{line}\n" for line in lines) + "\n"
    return text
