"""Files of choices: a text, several that may follow it, and the right one.

SWAG's files, and users' own: CSV, TSV or JSON lines, the choices in several
columns or, in JSON, in one that is a list.
"""

import dataclasses
import pathlib
import string
from collections.abc import Sequence
from typing import NamedTuple

from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.families.data.faults import Faults
from bert_tf.families.data.tables import (
    Cell,
    Dialect,
    Row,
    collect,
    handle_empty_texts,
    iterate_rows,
    named_columns,
    text_of,
    texts_of,
)
from bert_tf.families.data.user_files import (
    ReadRows,
    UserFiles,
    path_of,
    split_off_dev,
)
from bert_tf.families.recipe import LABEL_FORMS, ChoiceRecipe, FilesRecipe
from bert_tf.progress import log

_MIN_CHOICES = 2
_LETTERS = string.ascii_uppercase


class ChoiceExample(NamedTuple):
    """One row of a file of choices.

    Attributes:
      context: the text.
      start: what every choice begins with; empty where there is no such thing.
      choices: the texts to choose from, at least two.
      label: the right one by number, from 0; None in test files.
      identifier: the row's own name, for prediction files.
      row: its line in the file, counted from 1, for errors.
      path: the file it is from, for errors.
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
        """What makes two rows the same text: the context but for blanks."""
        return self.context.strip()


@dataclasses.dataclass(frozen=True)
class ChoiceColumns:
    """Where a file has what, its columns by name or number.

    Attributes:
      context: the column of the text.
      choices: the columns of the choices, or one that has lists of them.
      label: the column of the right choice; None where the file has none.
      start: the column of what every choice begins with, or None.
      label_form: how the file names the right choice: by a "number" from 0,
        a "number_from_1", a "letter" from A on, or its "text".
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


def _choices(
    cells: list[Cell], columns: ChoiceColumns, place: str
) -> tuple[str, ...]:
    choices = texts_of(cells, columns.choices, place)
    names = [repr(name) for name in columns.choices]
    if len(names) == 1:
        names = [f"{names[0]}, number {n}," for n in range(len(choices))]
    if len(choices) < _MIN_CHOICES:
        raise Fault(
            "too few choices",
            f"{place}: has {len(choices)} choice{'s' * (len(choices) != 1)}; "
            f"it takes {_MIN_CHOICES} or more.",
        )
    if columns.label_form == "letter" and len(choices) > len(_LETTERS):
        raise Fault(
            "too many choices",
            f"{place}: has {len(choices)} choices, and there are "
            f"{len(_LETTERS)} letters; name the right ones by number, with "
            "`label_form`=number.",
        )
    for name, choice in zip(names, choices, strict=True):
        if not choice.strip():
            raise Fault(
                "an empty choice",
                f"{place}: the choice in {name} is empty "
                f"({excerpt(choice)}); correct the row.",
            )
    return choices


def choice_names(choices: Sequence[str], form: str) -> list[str]:
    """What files call the choices of a row; see `ChoiceColumns.label_form`."""
    if form == "text":
        # Texts with line ends are to fit in a cell as well.
        return [" ".join(choice.split()) for choice in choices]
    if form == "letter":
        return list(_LETTERS[: len(choices)])
    first = int(form == "number_from_1")
    return [str(first + number) for number in range(len(choices))]


def choice_number(
    cell: str, choices: Sequence[str], form: str, place: str
) -> int:
    """The number, from 0, of the first choice that a cell names.

    Raises:
      UserError: it names none of them.
    """
    names = choice_names(choices, form)
    name = " ".join(cell.split())
    if form == "text":
        if name not in names:
            raise Fault(
                "an unknown label",
                f"{place}: the label {excerpt(cell)} is the text of 0 of its "
                f"{len(names)} choices; it must be that of one.",
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
    """Reads a file; rows may have different numbers of choices.

    An example's identifier is its place in the file, from 0, so it stays when
    others are dropped.

    Args:
      path: a TSV, CSV or JSON-lines file; .gz is unpacked.
      columns: where it has what.
      recipe: how to read it.
      label_needed: whether the label's column must be there.

    Raises:
      UserError: see `read_table`; a row with an empty choice, with fewer than
        two or with a label that names none of them has a fault too.
    """
    dialect = Dialect.of_recipe(recipe)
    named = {"context_column": [columns.context]}
    if columns.start is not None:
        named["start_column"] = [columns.start]
    named["choice_columns"] = [*columns.choices]
    label = [columns.label] if columns.label is not None else []
    if label or label_needed:
        named["label_column"] = label
    required = named_columns(named, path)
    if not label_needed and label:
        required.remove(label[0])
    label = [] if label_needed else label
    rows = handle_empty_texts(
        path,
        iterate_rows(path, required, label, dialect),
        (columns.context,),
        recipe.empty_text,
    )

    def example(row: Row) -> ChoiceExample:
        place = f"{path}, row {row.number}"
        cells = iter(row.cells)
        context = text_of(next(cells), columns.context, place)
        start = ""
        if columns.start is not None:
            start = text_of(next(cells), columns.start, place)
        choices = _choices(
            [next(cells) for _ in columns.choices], columns, place
        )
        label = None
        # A column that is not needed may be missing or have empty cells.
        cell = next(cells, None)
        if cell is not None and (label_needed or cell):
            text = text_of(cell, str(columns.label), place)
            label = choice_number(text, choices, columns.label_form, place)
            names = choice_names(choices, columns.label_form)
            count = names.count(names[label])
            if count > 1:
                raise Fault(
                    "a label of several choices",
                    f"{place}: the label {excerpt(text)} is the text of "
                    f"{count} of its {len(choices)} choices; it must be "
                    "that of one.",
                )
        return ChoiceExample(
            context,
            start,
            choices,
            label,
            str(row.position),
            row.number,
            path,
        )

    return collect(rows, example, Faults(path, dialect.bad_rows))


class ChoiceFiles(UserFiles):
    """The files that a recipe names, and where they have what.

    Args:
      columns: where they have what.
    """

    def __init__(self, columns: ChoiceColumns):
        super().__init__(split_off_dev)
        self.columns = columns


class SwagFiles(ChoiceFiles):
    """SWAG's official files; with one of two alone, dev is split off it."""

    def __init__(self) -> None:
        super().__init__(SWAG_COLUMNS)

    def present(
        self, splits: Sequence[str], recipe: FilesRecipe
    ) -> tuple[str, ...]:
        """See `UserFiles`."""
        return super().present(splits, self._there(splits[0], recipe))

    def read(
        self, split: str, recipe: FilesRecipe, read_rows: ReadRows
    ) -> list[ChoiceExample]:
        """See `UserFiles`."""
        return super().read(split, self._there(split, recipe), read_rows)

    def _there(self, split: str, recipe: FilesRecipe) -> FilesRecipe:
        """The recipe, with those of its files that are there.

        Raises:
          UserError: neither the training nor the dev file is.
        """
        names = (recipe.train_file, recipe.dev_file)
        if split == "test" or not all(names):
            return recipe
        there = [
            name
            for name in names
            if pathlib.Path(path_of(name, recipe)).exists()
        ]
        if not there:
            raise UserError(
                f"`data_dir`={recipe.data_dir}: holds neither {names[0]} nor "
                f"{names[1]}; give the folder of SWAG's files, or name one "
                "with `train_file`=..."
            )
        if len(there) == 2:
            return recipe
        if split == "train":
            log(
                f"{recipe.data_dir}: holds {there[0]} alone of "
                f"{' and '.join(names)}; it is split for training and dev."
            )
        return dataclasses.replace(recipe, train_file=there[0], dev_file="")
