"""The rows of a file of new texts, one after the other, broken ones too."""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_tf.errors import Fault, UserError, did_you_mean, excerpt
from bert_tf.families.data.delimited import has_column, listed
from bert_tf.families.data.tables import (
    FORMATS,
    Dialect,
    MissingColumn,
    Row,
    iterate_rows,
    text_of,
    texts_of,
)
from bert_tf.families.recipe import (
    UserChoiceRecipe,
    UserFilesRecipe,
    UserQuestionRecipe,
)
from bert_tf.families.usage_options import pair_task
from bert_tf.files import STANDARD_STREAM, read_faulty_lines, whole_text
from bert_tf.inference.cells import CHOICES, Question
from bert_tf.recipe import Settings, like, read_json_object, setting

if TYPE_CHECKING:
    # A command that shows its help needs no TensorFlow.
    from bert_tf.families.text_model import TextModel

START = "start"
TXT = "txt"
ALL_COLUMNS = "*"
# What columns are called that tell rows apart.
_IDS = ("id", "idx", "index", "guid")
# The columns that models take, and the settings that name them in a file.
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
    """How a file of new texts is read, and what computes its answers."""

    text_column: str = setting(
        "",
        "column of the text, by name, or by number from 0; empty is the one "
        "that the model was trained with, if its folder says so, or text",
    )
    text_b_column: str = setting("", "of a pair: that of the second text")
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
    keep_columns: str = setting(
        "",
        "columns to write beside the answers, comma-separated; * is all that "
        f"the model does not read; empty is those called {' or '.join(_IDS)}",
    )
    format: str = like(
        UserFilesRecipe,
        "format",
        help_text=f"{', '.join(FORMATS)}, or txt, a text a line; empty goes by "
        "the name, and standard input is txt",
        choices=("", *FORMATS, TXT),
    )
    header: bool = like(UserFilesRecipe, "header")
    encoding_errors: str = like(UserFilesRecipe, "encoding_errors")
    batch_size: int = setting(32, "rows that are computed together", at_least=1)
    precision: str = like(UserFilesRecipe, "precision")
    device: str = setting(
        "", "where to compute: cpu, gpu, gpu:1; empty is a GPU if there is one"
    )


class InputRow(NamedTuple):
    """A row of a file.

    Attributes:
      number: the line that it begins on, counted from 1.
      position: how many rows come before it, broken ones included.
      asked: what is asked; None where the row is broken.
      fault: why it is.
      kept: what the row has in the columns to keep.
    """

    number: int
    position: int
    asked: Question | None
    fault: str = ""
    kept: Mapping[str, Any] = {}


@dataclasses.dataclass(frozen=True)
class Columns:
    """Where a file has what a model takes.

    Attributes:
      places: the model's columns, and those of the file, several of choices.
      header: whether the first row names the columns.
    """

    places: Mapping[str, tuple[str, ...]]
    header: bool

    @classmethod
    def of_model(
        cls,
        model: "TextModel",
        folder: pathlib.Path,
        settings: PredictSettings,
    ) -> "Columns":
        """What the settings say, or else the model's folder, or the names.

        Args:
          model: what is asked.
          folder: its folder, with what a training left.
          settings: names of columns, and whether there is a header.

        Raises:
          UserError: the settings name a column of another kind of model.
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
        stated: dict[str, Any] = {}
        for file in ("recipe.json", "task.json"):
            stated |= read_json_object(folder / file, missing_ok=True)
        known = model.file_columns(stated)
        places = {}
        for name in model.columns:
            field = _SETTINGS[name]
            value = getattr(settings, field) or known.get(name)
            value = str(value or stated.get(field) or name)
            several = value.split(",") if name == CHOICES else [value]
            places[name] = tuple(map(str.strip, several))
        header = settings.header and stated.get("header", True) is not False
        return cls(places, header)

    def asked(self, row: Row, path: str) -> Question:
        """What a row asks; raises `Fault` where it cannot be asked."""
        place = f"{path}, row {row.number}"
        cells = iter(row.cells)
        asked: dict[str, str | tuple[str, ...]] = {}
        for name, columns in self.places.items():
            own = [next(cells) for _ in columns]
            if name == CHOICES:
                asked[name] = texts_of(own, columns, place)
                continue
            asked[name] = text = text_of(own[0], columns[0], place)
            if name != START and not text.strip():
                raise Fault(
                    "an empty text",
                    f"{place}: the text in {columns[0]!r} is empty "
                    f"({excerpt(text)}).",
                )
        return asked

    def read(
        self,
        path: str,
        file: Iterable[bytes],
        settings: PredictSettings,
        alike: bool = False,
    ) -> Iterator[InputRow]:
        """The rows of a file; see `iterate_rows`.

        Args:
          path: its name, for its format and for errors.
          file: the lines.
          settings: how to read it.
          alike: whether every row keeps the columns of the first one.

        Raises:
          UserError: the file has no rows, lacks a column, or is none of text.
        """
        encoding_errors = settings.encoding_errors
        keep = _names(settings.keep_columns)
        rows: Iterable[Row]
        if is_txt(path, settings):
            if list(self.places) != ["text"]:
                raise UserError(
                    f"`format`={TXT}: {path} has one text a line, and this "
                    f"model takes {' and '.join(self.places)}; give "
                    f"{', '.join(FORMATS)} with such columns."
                )
            if keep and keep != [ALL_COLUMNS]:
                raise UserError(
                    f"`keep_columns`={settings.keep_columns}: {path} has a "
                    "text a line, and no columns."
                )
            rows = _lines(path, file, encoding_errors)
        else:
            names = [name for names in self.places.values() for name in names]
            dialect = Dialect(
                settings.format, self.header, encoding_errors, chosen=True
            )
            rows = iterate_rows(path, names, (), dialect, file, whole=True)
        kept: list[str] | None = None
        try:
            for row in rows:
                place = f"{path}, row {row.number}: "
                values: dict[str, Any] = {}
                if not row.fault:
                    chosen = self._chosen(row, keep, path, kept is None)
                    kept = chosen if kept is None else kept
                    new = set(chosen).difference(kept)
                    if alike and new and keep == [ALL_COLUMNS]:
                        raise UserError(
                            f"{place}has columns that the first row has not, "
                            f"{listed(sorted(new))}; name those to keep with "
                            "`keep_columns`, or write a .jsonl."
                        )
                    names = kept if alike else chosen
                    values = {name: row.columns.get(name) for name in names}
                found = InputRow(row.number, row.position, None)
                try:
                    if row.fault:
                        raise row.fault
                    written = whole_text(
                        json.dumps(values, ensure_ascii=False),
                        f"{place}what `keep_columns` keeps",
                        encoding_errors,
                    )
                    found = found._replace(kept=json.loads(written))
                    found = found._replace(asked=self.asked(row, path))
                except Fault as error:
                    fault = str(error).removeprefix(place)
                    found = found._replace(fault=fault)
                yield found
        except MissingColumn as error:
            field = next(
                _SETTINGS[name]
                for name, names in self.places.items()
                if error.column in names
            )
            raise UserError(f"{error} Choose one with `{field}`.") from None

    def _chosen(
        self, row: Row, keep: Sequence[str], path: str, is_first: bool
    ) -> list[str]:
        """The columns of a row that are kept; the first one has all named."""
        columns = list(row.columns)
        if not keep:
            return [name for name in columns if name.lower() in _IDS]
        if keep == [ALL_COLUMNS]:
            read = {n for names in self.places.values() for n in names}
            read = {_column(columns, name) for name in read}
            return [name for name in columns if name not in read]
        for name in keep:
            if is_first and _column(columns, name) not in columns:
                raise UserError(
                    f"`keep_columns`={name}: {path} has no such column."
                    f"{did_you_mean(name, columns, repr)} Its columns are "
                    f"{listed(columns)}."
                )
        return [_column(columns, name) for name in keep]


def _names(columns: str) -> list[str]:
    return [name for name in map(str.strip, columns.split(",")) if name]


def _column(columns: Sequence[str], name: str) -> str:
    """What a column is called that is named or numbered."""
    if name not in columns and has_column(columns, name):
        return columns[int(name)]
    return name


def is_txt(path: str, settings: PredictSettings) -> bool:
    """Whether a file has a text a line."""
    if settings.format:
        return settings.format == TXT
    name = path.removesuffix(".gz").lower()
    return name == STANDARD_STREAM or name.endswith(f".{TXT}")


def _lines(
    path: str, file: Iterable[bytes], encoding_errors: str
) -> Iterator[Row]:
    """The lines of a file as rows of one cell."""
    number = 0
    for number, text, fault in read_faulty_lines(
        path, encoding_errors, file, whole_lines=True
    ):
        if fault:
            yield Row(number, number - 1, fault=fault)
        else:
            line = text.removesuffix("\n").removesuffix("\r")
            yield Row(number, number - 1, (line,))
    if not number:
        raise UserError(f"{path}: is empty.")
