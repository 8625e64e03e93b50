"""Reads the rows of a file for prediction, including malformed ones."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_tf.config import AUTO, PRECISION_HELP, PRECISIONS
from bert_tf.errors import Fault, UserError, did_you_mean, excerpt
from bert_tf.families.multiple_choice.recipe import UserChoiceRecipe
from bert_tf.families.question_answering.recipe import UserQuestionRecipe
from bert_tf.families.recipe import UserFilesRecipe
from bert_tf.families.usage_options import ZERO_SHOT_TEMPLATE, pair_task
from bert_tf.files import STANDARD_STREAM, unpacked_name, whole_text
from bert_tf.inference.cells import CHOICES
from bert_tf.libraries import RUNTIME_HELP
from bert_tf.recipe import Settings, like, read_json_object, setting
from bert_tf.tables.delimited import Cell, has_column, listed
from bert_tf.tables.table import (
    FORMATS,
    TXT,
    Dialect,
    MissingColumn,
    Row,
    Table,
    text_of,
    texts_of,
)
from bert_tf.text.given_texts import text_columns

if TYPE_CHECKING:
    # `--help` does not import TensorFlow.
    from bert_tf.families.text_model import TextModel

START = "start"
ALL_COLUMNS = "*"
# Names of columns that identify rows.
_IDS = ("id", "idx", "index", "guid")
# Columns of models, and the settings that name them in a file.
_SETTINGS = {
    "text": "text_column",
    "text_b": "text_b_column",
    "question": "question_column",
    "context": "context_column",
    CHOICES: "choice_columns",
    START: "start_column",
}


@dataclasses.dataclass(frozen=True)
class PredictSettings(Settings):
    """How to read a file of texts, and how to compute its answers."""

    text_column: str = setting(
        "",
        "column of the text, by name or index; empty is the column of the "
        "model's training, if its folder states it, or text",
    )
    text_b_column: str = setting("", "column of the second text of a pair")
    question_column: str = like(
        UserQuestionRecipe, "question_column", default=""
    )
    context_column: str = like(
        UserQuestionRecipe,
        "context_column",
        default="",
        help_text="column of the context",
    )
    choice_columns: str = like(UserChoiceRecipe, "choice_columns")
    start_column: str = like(UserChoiceRecipe, "start_column")
    candidate_labels: str = setting(
        "",
        "zero-shot classification by a model of natural language inference: "
        "the labels to choose from, comma-separated",
    )
    template: str = setting(
        ZERO_SHOT_TEMPLATE,
        "zero-shot: a sentence with {} in the place of the label",
        requires="candidate_labels",
    )
    multi_label: bool = setting(
        False,
        "zero-shot: each label holds or not by itself; otherwise exactly one "
        "does",
        requires="candidate_labels",
    )
    keep_columns: str = setting(
        "",
        "columns to copy to the answers, comma-separated; * is all that the "
        f"model does not read; empty is columns named {' or '.join(_IDS)}",
    )
    format: str = like(
        UserFilesRecipe,
        "format",
        help_text=f"{', '.join(FORMATS)}, or txt, a text per line; empty "
        "infers it from the name, and standard input is txt",
        choices=("", *FORMATS, TXT),
    )
    header: bool = like(UserFilesRecipe, "header")
    encoding_errors: str = like(UserFilesRecipe, "encoding_errors")
    escape_formulas: bool = setting(
        False,
        "CSV and TSV: writes ' before texts that begin with =, +, - or @, "
        "which spreadsheets would compute",
    )
    batch_size: int = setting(32, "rows per batch", at_least=1)
    precision: str = setting(AUTO, PRECISION_HELP, choices=(AUTO, *PRECISIONS))
    runtime: str = setting(AUTO, RUNTIME_HELP)
    device: str = setting(
        "", "device: cpu, gpu or gpu:1; empty is a GPU if there is one"
    )


@dataclasses.dataclass(frozen=True)
class Columns:
    """Maps the columns of a model to those of a file.

    Attributes:
      columns: file columns of each model column; several for choices.
      header: whether the first row names the columns.
    """

    columns: Mapping[str, tuple[str, ...]]
    header: bool

    @classmethod
    def of_model(
        cls, model: "TextModel", folder: pathlib.Path, settings: PredictSettings
    ) -> "Columns":
        """Takes column names from the settings, the folder or the model.

        Args:
          model: the model.
          folder: its folder, with the recipe of its training if there is one.
          settings: names of columns, and whether there is a header.

        Raises:
          UserError: the settings name a column that the model does not take.
        """
        for name, field in _SETTINGS.items():
            value = getattr(settings, field)
            if value and name not in model.columns:
                pairs = pair_task(model.task) if name == "text_b" else ""
                raise UserError(
                    f"`{field}`={value}: this model, of {model.task}, takes "
                    f"{' and '.join(model.columns)}."
                    + (f" Give `task`={pairs} for pairs." if pairs else "")
                )
        stated = _stated(folder)
        known = model.file_columns(stated)
        names = {
            name: str(known.get(name) or stated.get(_SETTINGS[name]) or name)
            for name in model.columns
        }
        return cls._of_names(names, stated, settings)

    @classmethod
    def of_folder(
        cls, folder: pathlib.Path, settings: PredictSettings
    ) -> "Columns":
        """Takes the columns that a folder states, before its model is loaded.

        Those of other folders are none.
        """
        stated = _stated(folder)
        first, _, second = str(stated.get("text_columns", "")).partition(",")
        names = {"text": first, "text_b": second}
        for name in ("question", "context", CHOICES, START):
            names[name] = str(stated.get(_SETTINGS[name], ""))
        if _SETTINGS[CHOICES] in stated:
            names["text"] = names.pop("context")
        names = {name: value for name, value in names.items() if value}
        return cls._of_names(names, stated, settings)

    @classmethod
    def _of_names(
        cls,
        names: Mapping[str, str],
        stated: Mapping[str, Any],
        settings: PredictSettings,
    ) -> "Columns":
        """Replaces the names that a folder states by those of the settings."""
        columns = {}
        for name, value in names.items():
            value = getattr(settings, _SETTINGS[name]) or value
            several = value.split(",") if name == CHOICES else [value]
            columns[name] = tuple(map(str.strip, several))
        header = settings.header and stated.get("header", True) is not False
        return cls(columns, header)

    def table(self, source: Any, settings: PredictSettings) -> Table:
        """Opens the table that the settings describe; see `Table`.

        A list of texts, or of pairs of texts, is a table too.
        """
        # NumPy, which the help of commands does not need.
        from bert_tf.tables.memory import is_table

        if not isinstance(source, str | os.PathLike) and not is_table(source):
            cells = text_columns(source, "`input`")
            if list(self.columns) != ["text", "text_b"][: len(cells)]:
                raise UserError(
                    f"`input`: has {len(cells)} text(s) a row, and this model "
                    f"takes {' and '.join(self.columns)}; give a table."
                )
            names = (name for name, *_ in self.columns.values())
            source = dict(zip(names, cells, strict=True))
        name = settings.format
        if not name and is_txt(source):
            name = TXT
        dialect = Dialect(
            name, self.header, settings.encoding_errors, chosen=True
        )
        return Table(source, dialect)

    def inputs(self, row: Row) -> tuple[Cell, ...]:
        """Returns the model's inputs; raises `Fault` if a row is malformed."""
        place = row.place
        cells = iter(row.cells)
        inputs: list[Cell] = []
        for name, columns in self.columns.items():
            values = [next(cells) for _ in columns]
            if name == CHOICES:
                inputs.append(texts_of(values, columns, place))
                continue
            text = text_of(values[0], columns[0], place)
            inputs.append(text)
            if name != START and not text.strip():
                raise Fault(
                    "an empty text",
                    f"{place}: the text in {columns[0]!r} is empty "
                    f"({excerpt(text)}).",
                )
        return tuple(inputs)

    def read(
        self,
        table: Table,
        settings: PredictSettings,
        same_columns: bool = False,
    ) -> Generator[Row, None, None]:
        """Yields the rows of a table; see `Table.rows`.

        Args:
          table: the table.
          settings: how to read it.
          same_columns: whether all rows keep the columns of the first row.

        Yields:
          Rows, whose cells are the model's inputs, and whose columns are those
          to keep.

        Raises:
          UserError: the table has no rows, lacks a column, or is no text.
        """
        keep = _names(settings.keep_columns)
        names: Sequence[str]
        names = [name for names in self.columns.values() for name in names]
        if table.dialect.format == TXT:
            if list(self.columns) != ["text"]:
                raise UserError(
                    f"`format`={TXT}: {table.name} has one text a line, and "
                    f"this model takes {' and '.join(self.columns)}; give "
                    f"{', '.join(FORMATS)} with such columns."
                )
            if keep and keep != [ALL_COLUMNS]:
                raise UserError(
                    f"`keep_columns`={settings.keep_columns}: {table.name} has "
                    "a text a line, and no columns."
                )
        rows = table.rows(names, whole=True)
        kept: list[str] | None = None
        try:
            for row in rows:
                place = f"{row.place}: "
                values: dict[str, Any] = {}
                if not row.fault:
                    chosen = self._chosen(row, keep, kept is None)
                    kept = chosen if kept is None else kept
                    new = set(chosen).difference(kept)
                    if same_columns and new and keep == [ALL_COLUMNS]:
                        raise UserError(
                            f"{place}has columns that the first row has not, "
                            f"{listed(sorted(new))}; name those to keep with "
                            "`keep_columns`, or write a .jsonl."
                        )
                    names = kept if same_columns else chosen
                    values = {name: row.columns.get(name) for name in names}
                read = row._replace(cells=(), columns={})
                try:
                    if row.fault:
                        raise row.fault
                    text = whole_text(
                        json.dumps(values, ensure_ascii=False),
                        f"{place}what `keep_columns` keeps",
                        settings.encoding_errors,
                    )
                    read = read._replace(columns=json.loads(text))
                    read = read._replace(cells=self.inputs(row))
                except Fault as fault:
                    read = read._replace(fault=fault)
                yield read
        except MissingColumn as error:
            field = next(
                _SETTINGS[name]
                for name, names in self.columns.items()
                if error.column in names
            )
            raise UserError(f"{error} Choose one with `{field}`.") from None
        finally:
            # An exception in this function would leave its file open.
            rows.close()

    def _chosen(
        self, row: Row, keep: Sequence[str], is_first: bool
    ) -> list[str]:
        """Returns the columns of a row to keep; the first row must have all."""
        columns = list(row.columns)
        if not keep:
            return [name for name in columns if name.lower() in _IDS]
        if keep == [ALL_COLUMNS]:
            read = {n for names in self.columns.values() for n in names}
            read = {_column(columns, name) for name in read}
            return [name for name in columns if name not in read]
        for name in keep:
            if is_first and _column(columns, name) not in columns:
                raise UserError(
                    f"`keep_columns`={name}: {row.path} has no such column."
                    f"{did_you_mean(name, columns, repr)} Its columns are "
                    f"{listed(columns)}."
                )
        return [_column(columns, name) for name in keep]


def _stated(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the recipe of a model's training, and its task.json."""
    stated: dict[str, Any] = {}
    for file in ("recipe.json", "task.json"):
        stated |= read_json_object(folder / file, missing_ok=True)
    return stated


def _names(columns: str) -> list[str]:
    return [name for name in map(str.strip, columns.split(",")) if name]


def _column(columns: Sequence[str], name: str) -> str:
    """Returns the name of a column that is given by name or number."""
    if name not in columns and has_column(columns, name):
        return columns[int(name)]
    return name


def is_txt(source: Any) -> bool:
    """Whether a source without a format has a text a line, by its name."""
    if not isinstance(source, str | os.PathLike):
        return False
    name = unpacked_name(source)
    return name == STANDARD_STREAM or name.endswith(f".{TXT}")
