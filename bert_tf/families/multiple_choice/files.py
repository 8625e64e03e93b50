"""Files of multiple choice: a text, its choices and the correct one.

Reads SWAG's files and user files in CSV, TSV or JSON lines, with the choices in
several columns or, in JSON, in one column of lists.
"""

import dataclasses
import pathlib
import string
from collections.abc import Sequence
from typing import NamedTuple

from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.families.data.user_files import (
    ReadRows,
    UserFiles,
    path_of,
    split_off_dev,
)
from bert_tf.families.multiple_choice.recipe import LABEL_FORMS, ChoiceRecipe
from bert_tf.families.recipe import FilesRecipe
from bert_tf.progress import log
from bert_tf.tables.faults import Faults
from bert_tf.tables.table import (
    Dialect,
    Row,
    Table,
    convert_rows,
    handle_empty_texts,
    named_columns,
    text_of,
    texts_of,
)

_MIN_CHOICES = 2
_LETTERS = string.ascii_uppercase


class ChoiceExample(NamedTuple):
    """A text with its choices.

    Attributes:
      context: the text.
      start: the common start of all choices; empty if there is none.
      choices: two or more texts.
      label: number of the correct choice, from 0; None in test files.
      identifier: the name of the row in prediction files.
      row: line of the file, from 1, for errors.
      path: the file, for errors.
    """

    context: str
    start: str
    choices: tuple[str, ...]
    label: int | None
    identifier: str
    row: int
    path: str = ""

    @property
    def text_key(self) -> str:
        """Key by which two rows have the same text."""
        return self.context.strip()


@dataclasses.dataclass(frozen=True)
class ChoiceColumns:
    """Columns of a file, by name or number.

    Attributes:
      context: column of the text.
      choices: columns of the choices, or one column of lists.
      label: column of the correct choice; None if the file has none.
      start: column of the common start of the choices, or None.
      label_form: form of the labels: "number" from 0, "number_from_1",
        "letter" from A, or "text".
    """

    context: str
    choices: tuple[str, ...]
    label: str | None = "label"
    start: str | None = None
    label_form: str = "number"


# Zellers et al. 2018; train.csv, val.csv and, without labels, test.csv.
SWAG_COLUMNS = ChoiceColumns(
    context="sent1",
    start="sent2",
    choices=tuple(f"ending{number}" for number in range(4)),
)


def choice_names(choices: Sequence[str], form: str) -> list[str]:
    """Returns the labels of all choices, by `ChoiceColumns.label_form`."""
    if form == "text":
        # A cell of a prediction file holds no line ends.
        return [" ".join(choice.split()) for choice in choices]
    if form == "letter":
        return list(_LETTERS[: len(choices)])
    first = int(form == "number_from_1")
    return [str(first + number) for number in range(len(choices))]


def choice_number(
    cell: str,
    choices: Sequence[str],
    form: str,
    place: str,
    unique: bool = False,
) -> int:
    """Returns the number, from 0, of the first choice with this label.

    Args:
      cell: the label.
      choices: the choices of the row.
      form: see `ChoiceColumns.label_form`.
      place: file and row, for errors.
      unique: whether a text that several choices have is an error.

    Raises:
      Fault: no choice has the label, or several do.
    """
    names = choice_names(choices, form)
    name = " ".join(cell.split())
    if form == "text":
        count = names.count(name)
        if not count or (unique and count > 1):
            raise Fault(
                "a label of several choices" if count else "an unknown label",
                f"{place}: the label {excerpt(cell)} is the text of {count} of "
                f"its {len(names)} choices; it must be that of one.",
            )
    elif (name := name.upper()) not in names:
        raise Fault(
            "an unknown label",
            f"{place}: the label {excerpt(cell)} is none of {names[0]} to "
            f"{names[-1]} for its {len(names)} choices (label_form={form}; "
            f"it takes {', '.join(LABEL_FORMS)}).",
        )
    return names.index(name)


def read_choices(
    path: str,
    columns: ChoiceColumns,
    recipe: ChoiceRecipe,
    label_needed: bool = True,
) -> list[ChoiceExample]:
    """Reads a table whose rows may differ in their number of choices.

    The identifier of an example is its position in the file, from 0, counting
    rows that are dropped.

    Args:
      path: the table; see `Table`.
      columns: columns of the file.
      recipe: dialect of the file.
      label_needed: whether the label column is required.

    Raises:
      UserError: see `Table`; or a row has an empty choice, fewer than two
        choices, or a label that names none of them.
    """
    label = [] if columns.label is None else [columns.label]
    named = {"context_column": [columns.context]}
    if columns.start is not None:
        named["start_column"] = [columns.start]
    named["choice_columns"] = [*columns.choices]
    if label or label_needed:
        named["label_column"] = label
    required, optional = named_columns(named, path), []
    if label and not label_needed:
        required.remove(label[0])
        optional = label

    def make(row: Row) -> ChoiceExample:
        place = row.place
        cells = iter(row.cells)
        context = text_of(next(cells), columns.context, place)
        start = ""
        if columns.start is not None:
            start = text_of(next(cells), columns.start, place)
        choices = texts_of(
            [next(cells) for _ in columns.choices], columns.choices, place
        )
        _check_choices(choices, columns, place)
        number = None
        # An optional column may be missing or have empty cells.
        cell = next(cells, None)
        if cell is not None and (label_needed or cell):
            text = text_of(cell, str(columns.label), place)
            form = columns.label_form
            number = choice_number(text, choices, form, place, unique=True)
        position = str(row.position)
        return ChoiceExample(
            context, start, choices, number, position, row.number, row.path
        )

    dialect = Dialect.of_recipe(recipe)
    rows = handle_empty_texts(
        path,
        Table(path, dialect).rows(required, optional),
        (columns.context,),
        recipe.empty_text,
    )
    faults = Faults(path, dialect.bad_rows)
    return list(convert_rows(rows, make, faults))


def _check_choices(
    choices: Sequence[str], columns: ChoiceColumns, place: str
) -> None:
    count = len(choices)
    if count < _MIN_CHOICES:
        raise Fault(
            "too few choices",
            f"{place}: has {count} choice{'s' * (count != 1)}; it takes "
            f"{_MIN_CHOICES} or more.",
        )
    if columns.label_form == "letter" and count > len(_LETTERS):
        raise Fault(
            "too many choices",
            f"{place}: has {count} choices, and there are {len(_LETTERS)} "
            "letters; name the right ones by number, with `label_form`=number.",
        )
    names = [repr(name) for name in columns.choices]
    if len(names) == 1:
        names = [f"{names[0]}, number {n}," for n in range(count)]
    for name, choice in zip(names, choices, strict=True):
        if not choice.strip():
            raise Fault(
                "an empty choice",
                f"{place}: the choice in {name} is empty "
                f"({excerpt(choice)}); correct the row.",
            )


class ChoiceFiles(UserFiles):
    """The files that a recipe names.

    Args:
      columns: columns of the files.
    """

    def __init__(self, columns: ChoiceColumns):
        super().__init__(split_off_dev)
        self.columns = columns


class SwagFiles(ChoiceFiles):
    """SWAG's official files; dev is split off if only one of two exists."""

    def __init__(self) -> None:
        super().__init__(SWAG_COLUMNS)

    def present(
        self, splits: Sequence[str], recipe: FilesRecipe
    ) -> tuple[str, ...]:
        """Returns the splits whose files exist; see `UserFiles`."""
        return super().present(splits, self._existing(splits[0], recipe))

    def read(
        self, split: str, recipe: FilesRecipe, read_rows: ReadRows
    ) -> list[ChoiceExample]:
        """Reads the examples of a split; see `UserFiles`."""
        return super().read(split, self._existing(split, recipe), read_rows)

    def _existing(self, split: str, recipe: FilesRecipe) -> FilesRecipe:
        """Returns the recipe without the one of its two files that is missing.

        Raises:
          UserError: both files are missing.
        """
        names = (recipe.train_file, recipe.dev_file)
        if split == "test" or not all(names):
            return recipe
        existing = [
            name
            for name in names
            if pathlib.Path(path_of(name, recipe)).exists()
        ]
        if not existing:
            raise UserError(
                f"`data_dir`={recipe.data_dir}: holds neither {names[0]} nor "
                f"{names[1]}; give the folder of SWAG's files, or name one "
                "with `train_file`=..."
            )
        if len(existing) == 2:
            return recipe
        (name,) = existing
        if split == "train":
            log(
                f"{recipe.data_dir}: holds only {name} of "
                f"{' and '.join(names)}, which is split into training and dev."
            )
        return dataclasses.replace(recipe, train_file=name, dev_file="")
