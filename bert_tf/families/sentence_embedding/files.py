"""Tables of texts and what is known of their similarity."""

import contextlib
import re
from typing import NamedTuple

import numpy as np

from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.families.data.user_files import UserFiles, split_off_dev
from bert_tf.families.sentence_embedding.recipe import (
    CONTRASTIVE,
    COSENT,
    KL_DIVERGENCE,
    MARGIN_MSE,
    MULTIPLE_NEGATIVES,
    ONLINE_CONTRASTIVE,
    SIMCSE,
    SYMMETRIC,
    TEACHER_COSINE,
    TEACHER_MSE,
    TRIPLET,
    EmbeddingRecipe,
)
from bert_tf.tables.delimited import has_column, listed
from bert_tf.tables.faults import Faults
from bert_tf.tables.list_cells import entries_of
from bert_tf.tables.table import (
    Cell,
    Dialect,
    Row,
    Table,
    convert_rows,
    handle_empty_texts,
    text_of,
)

# What a row says of its texts besides that some are similar.
SCORE, LABEL, TEACHER, NOTHING = "score", "label", "teacher", ""
_LABELS = {
    **dict.fromkeys(("0", "0.0", "false", "False"), 0.0),
    **dict.fromkeys(("1", "1.0", "true", "True"), 1.0),
}


class EmbeddingExample(NamedTuple):
    """A row of texts.

    Attributes:
      texts: the anchor, and if there are, the positive and negatives; or both
        texts of a pair.
      label: the score or label of a pair; None without.
      teacher: the numbers of a teacher, float32 as bytes; empty without.
      identifier: the name of the row in prediction files.
      row: its line in the file, counted from 1, for errors.
      path: its file, for errors.
    """

    texts: tuple[str, ...]
    label: float | None
    teacher: bytes
    identifier: str
    row: int
    path: str = ""

    @property
    def text_key(self) -> tuple[str, ...]:
        """The texts without blanks at their ends, by which rows are equal."""
        return tuple(text.strip() for text in self.texts)


class Columns(NamedTuple):
    """The columns of a file.

    Attributes:
      texts: the columns of texts, the anchor first.
      target: SCORE, LABEL, TEACHER or NOTHING.
      target_column: its column; empty for NOTHING.
    """

    texts: tuple[str, ...]
    target: str
    target_column: str

    @property
    def losses(self) -> tuple[str, ...]:
        """The losses of such rows, the default one first."""
        count = len(self.texts)
        if self.target == TEACHER:
            if count == 2:
                return ()
            if count == 1:
                return TEACHER_COSINE, TEACHER_MSE
            return MARGIN_MSE, KL_DIVERGENCE
        if self.target in (SCORE, LABEL):
            by_score = (COSENT,)
            if self.target == SCORE:
                return by_score
            return CONTRASTIVE, ONLINE_CONTRASTIVE, *by_score
        if count == 1:
            return (SIMCSE,)
        positives = (MULTIPLE_NEGATIVES, SYMMETRIC)
        return (*positives, TRIPLET) if count == 3 else positives

    def __str__(self) -> str:
        target = f" with {self.target_column}" if self.target else ""
        return f"{' and '.join(self.texts)}{target}"


def find_columns(path: str, recipe: EmbeddingRecipe) -> Columns:
    """Finds the columns of a file by its first row.

    Raises:
      UserError: see `Table`; or scores or labels are not of two texts.
    """
    table = Table(path, Dialect.of_recipe(recipe))
    if not table.is_stored:
        raise UserError(f"{path}: is read twice, so it must be a file.")
    with contextlib.closing(table.rows((), whole=True)) as rows:
        good = (list(row.columns) for row in rows if not row.fault)
        names = next(good, [])
    if not has_column(names, recipe.anchor_column):
        raise UserError(
            f"{path}: has no column {recipe.anchor_column!r}; its columns are "
            f"{listed(names) or 'none'}. Name that of the texts as "
            "`anchor_column`."
        )
    texts = [recipe.anchor_column]
    if has_column(names, recipe.positive_column):
        texts.append(recipe.positive_column)
        negatives = [n for n in names if re.fullmatch(r"negative(_\d+)?", n)]
        if recipe.negative_columns:
            negatives = [*map(str.strip, recipe.negative_columns.split(","))]
        texts += negatives
    targets = {
        target: column
        for target in (SCORE, LABEL, TEACHER)
        if has_column(names, column := getattr(recipe, f"{target}_column"))
        and column not in texts
    }
    if len(targets) > 1:
        first, second, *_ = targets.values()
        raise UserError(
            f"{path}: has the columns {first!r} and {second!r}, and one of "
            f"them is learned; pass `{[*targets][1]}_column`= to ignore it."
        )
    target, column = next(iter(targets.items()), (NOTHING, ""))
    if target in (SCORE, LABEL) and len(texts) != 2:
        raise UserError(
            f"{path}: has {column!r} and the texts {', '.join(texts)}; a "
            f"{target} is of two texts, so name these as `anchor_column` and "
            f"`positive_column`, or pass `{target}_column`= to ignore it."
        )
    return Columns(tuple(texts), target, column)


class EmbeddingFiles(UserFiles):
    """The files that a recipe names; each may have other columns."""

    def __init__(self) -> None:
        super().__init__(split_off_dev)

    def read_file(
        self, path: str, recipe: EmbeddingRecipe, labelled: bool
    ) -> list[EmbeddingExample]:
        """Reads the rows of a file.

        Args:
          path: the file.
          recipe: names the columns and the range of scores.
          labelled: whether cells of scores and labels may not be empty.

        Raises:
          UserError: see `find_columns`; or rows are malformed.
        """
        columns = find_columns(path, recipe)
        dialect = Dialect.of_recipe(recipe)
        sizes: dict[str, int] = {}

        def make(row: Row) -> EmbeddingExample:
            texts = _texts(row, columns)
            label, teacher = None, b""
            if columns.target == TEACHER:
                numbers = _numbers(row.cells[-1], columns, row.place)
                _check_size(sizes, "numbers", len(numbers), row.place)
                teacher = numbers.tobytes()
            elif columns.target and (labelled or row.cells[-1]):
                label = _label(row.cells[-1], columns, recipe, row.place)
            _check_size(sizes, "texts", len(texts), row.place)
            identifier = str(row.position)
            return EmbeddingExample(
                texts, label, teacher, identifier, row.number, row.path
            )

        target = [columns.target_column] if columns.target else []
        rows = handle_empty_texts(
            path,
            Table(path, dialect).rows([*columns.texts, *target]),
            columns.texts,
            recipe.empty_text,
        )
        return list(convert_rows(rows, make, Faults(path, dialect.bad_rows)))


def _texts(row: Row, columns: Columns) -> tuple[str, ...]:
    """Returns the texts of a row; one column of negatives may hold lists."""
    *cells, last = row.cells[: len(columns.texts)]
    # A text may be in parentheses.
    has_list = isinstance(last, tuple) or str(last).startswith("[")
    negatives: tuple[str, ...] = ()
    if len(columns.texts) != 3 or not has_list:
        cells.append(last)
    else:
        negatives = entries_of(last) or ()
        if not negatives or not all(map(str.strip, negatives)):
            raise Fault(
                "no list of texts",
                f"{row.place}: the list in {columns.texts[2]!r} is "
                f"{excerpt(last)}; it takes one text or more, none of them "
                "empty.",
            )
    pairs = zip(cells, columns.texts, strict=False)
    return *(text_of(c, name, row.place) for c, name in pairs), *negatives


def _check_size(
    sizes: dict[str, int], what: str, size: int, place: str
) -> None:
    """Raises `Fault` if a row has another size than those before it."""
    expected = sizes.setdefault(what, size)
    if size != expected:
        raise Fault(
            f"another number of {what}",
            f"{place}: has {size} {what}, and the rows before it {expected}; "
            "all rows need as many.",
        )


def _numbers(cell: Cell, columns: Columns, place: str) -> np.ndarray:
    """Parses a list of a teacher's numbers, float32."""
    entries = entries_of(cell)
    if entries is None:
        entries = (str(cell),)
    try:
        found = np.array(entries, np.float32)
    except ValueError:
        found = np.array([np.nan], np.float32)
    if not found.size or not np.isfinite(found).all():
        raise Fault(
            "no list of numbers",
            f"{place}: {columns.target_column!r} is {excerpt(cell)}; it takes "
            "a list of finite numbers.",
        )
    return found


def _label(
    cell: Cell, columns: Columns, recipe: EmbeddingRecipe, place: str
) -> float:
    """Parses a score or label."""
    name = columns.target_column
    if columns.target == LABEL:
        if cell in _LABELS:
            return _LABELS[str(cell)]
        raise Fault(
            "a label that is neither 0 nor 1",
            f"{place}: the label in {name!r} is {excerpt(cell)}; it takes 0 "
            "or 1. Name a column of other numbers as `score_column`.",
        )
    least, most = recipe.limits_of_scores
    try:
        score = float(str(cell))
    except ValueError:
        score = np.nan
    if not least <= score <= most:
        raise Fault(
            "a score out of range",
            f"{place}: the score in {name!r} is {excerpt(cell)}; it takes a "
            f"number from {least:g} to {most:g}. Correct it, or pass the "
            "range of the file, for example `score_range`=0,5.",
        )
    return score
