"""Text classification by kind of label: classes, numbers, several labels."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.families.data.examples import (
    Example,
    Label,
    ParseLabel,
    examples_of,
)
from bert_tf.families.data.scores import pearson, spearman
from bert_tf.families.data.user_files import UserFiles, split_off_dev
from bert_tf.families.task import TaskTemplate
from bert_tf.families.text_classification import metrics
from bert_tf.families.text_classification.config import MULTI_LABEL
from bert_tf.families.text_classification.recipe import (
    MultiLabelRecipe,
    SentenceRecipe,
    UserTableRecipe,
)
from bert_tf.families.text_classification.task import (
    Metric,
    TextClassificationTask,
    unknown_label,
)
from bert_tf.tables.list_cells import entries_of
from bert_tf.tables.table import (
    Cell,
    Dialect,
    MissingColumn,
    Row,
    Table,
    named_columns,
)

if TYPE_CHECKING:
    from bert_tf.families.in_memory import DataFile

# Entries of a list or column that say whether a label holds.
_FLAGS = {
    **dict.fromkeys(("0", "0.0", "false", "False"), False),
    **dict.fromkeys(("1", "1.0", "true", "True"), True),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceTask(TextClassificationTask):
    """A task that assigns one of several classes.

    Attributes:
      labels: its classes; see `TextClassificationTask`.
      scores: scores of class indices, int [N].
    """

    scores: Mapping[str, Metric] = dataclasses.field(
        default_factory=lambda: {
            "accuracy": metrics.accuracy,
            "macro_f1": metrics.macro_f1,
        }
    )
    main_metric: str = "accuracy"

    label_kind: ClassVar[str] = "classes"

    def parse_label(self, cell: Cell, place: str) -> str:
        """Parses a cell as a class."""
        # [1] may be the name of a class.
        may_be_list = any(mark in (cell or "") for mark in "'\",")
        if isinstance(cell, tuple) or (may_be_list and entries_of(cell)):
            raise Fault(
                "a list for a label",
                f"{place}: the label is a list, {excerpt(cell)}; pass "
                "`label_kind`=multi_label, or give one label a row.",
            )
        if not cell or cell.strip().lower() in ("", "nan"):
            raise Fault(
                "no label",
                f"{place}: the label is {excerpt(cell)}; every row needs one, "
                "so fill it in or remove the row.",
            )
        _check_label_text(cell, place)
        if self.labels and cell not in self.labels:
            raise unknown_label(cell, self.labels, place)
        return cell

    def label_array(
        self, values: Sequence[Label], labels: Sequence[str]
    ) -> np.ndarray:
        """Returns the indices of classes in `labels`, int32 [N]."""
        numbers = {label: number for number, label in enumerate(labels)}
        return np.array([numbers[value] for value in values], np.int32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressionTask(TextClassificationTask):
    """A task that predicts a number.

    Attributes:
      scores: scores of numbers, float64 [N].
      value_range: the least and the largest number, to which predictions are
        clipped before they are scored and written; or None.
    """

    scores: Mapping[str, Metric] = dataclasses.field(
        default_factory=lambda: {
            "pearson": pearson,
            "spearman": spearman,
        }
    )
    main_metric: str = "spearman"
    value_range: tuple[float, float] | None = None

    label_kind: ClassVar[str] = "regression"

    def parse_label(self, cell: Cell, place: str) -> float:
        """Parses a cell as a finite number."""
        try:
            number = float(cell if isinstance(cell, str) else "")
        except ValueError:
            raise Fault(
                "a label that is no number",
                f"{place}: the label {excerpt(cell)} is not a number; correct "
                "it, or pass `label_kind`=classes.",
            ) from None
        # Training is in float32.
        if not abs(number) <= float(np.finfo(np.float32).max):
            raise Fault(
                "no finite number",
                f"{place}: the label is {cell}; every row needs a finite "
                "number, so fill it in, scale it or remove the row.",
            )
        return number

    def label_array(
        self, values: Sequence[Label], labels: Sequence[str]
    ) -> np.ndarray:
        """Returns the numbers as float64 [N]."""
        return np.array(values, np.float64)

    def comparable(self, values: Sequence[float]) -> Sequence[float]:
        """Clips numbers to `value_range`."""
        if self.value_range is None:
            return values
        return np.clip(values, *self.value_range).tolist()


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiLabelTask(TextClassificationTask):
    """A task that assigns any number of labels.

    Attributes:
      scores: scores of the labels that hold, bool [N, C].
    """

    scores: Mapping[str, Metric] = dataclasses.field(
        default_factory=lambda: {
            "micro_f1": metrics.label_micro_f1,
            "macro_f1": metrics.label_macro_f1,
            "subset_accuracy": metrics.subset_accuracy,
        }
    )
    main_metric: str = "micro_f1"

    label_kind: ClassVar[str] = "multi_label"
    recipe_type: ClassVar[type[SentenceRecipe]] = MultiLabelRecipe

    def parse_label(self, cell: Cell, place: str) -> tuple[str, ...]:
        """Parses a cell as sorted labels."""
        parts = entries_of(cell)
        if parts is None:
            text = str(cell or "")
            parts = tuple(text.split(self.separator))
            is_cut = text.lstrip()[:1] == "[" and text.count("[") == 1
            if is_cut and len(parts) > 1:
                raise Fault(
                    "a list that cannot be read",
                    f"{place}: the label {excerpt(cell)} looks like a list "
                    "and is none; write it as in JSON, or divide names by "
                    f"{self.separator!r} alone.",
                )
        names = [part.strip() for part in parts if part.strip()]
        for name in names:
            _check_label_text(name, place)
            if names.count(name) > 1:
                raise Fault(
                    "a label twice",
                    f"{place}: names the label {excerpt(name)} twice; name "
                    "each once, or give lists of 0 and 1 of one length.",
                )
            if name.lower() == "nan":
                raise Fault(
                    "nan for a label",
                    f"{place}: the label is {name}; name the labels that hold, "
                    "or leave the cell empty where none does.",
                )
            if self.labels and name not in self.labels:
                raise unknown_label(name, self.labels, place)
            if self.separator in name:
                raise Fault(
                    "a separator in a label",
                    f"{place}: the label {excerpt(name)} holds the separator "
                    f"{self.separator!r}; pass another `label_separator`.",
                )
        return tuple(sorted(names))

    def label_array(
        self, values: Sequence[Label], labels: Sequence[str]
    ) -> np.ndarray:
        """Returns which labels hold, bool [N, C]."""
        numbers = {label: number for number, label in enumerate(labels)}
        holds = np.zeros((len(values), len(labels)), bool)
        for row, names in zip(holds, values, strict=True):
            row[[numbers[name] for name in names]] = True
        return holds


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserFileTask(TaskTemplate):
    """A task on a user's files, whose kind and columns the recipe defines.

    Attributes:
      scores: scores by name that replace those of its kind (`SentenceTask`,
        `RegressionTask` or `MultiLabelTask`), and have the same arguments.
        Classes are indexed in sorted order. Scores are shown times 100.
      main_metric: the score that selects the best model; empty is the first of
        `scores`, or else the kind's.
      lower_is_better: the scores that are better if they are lower.
    """

    scores: Mapping[str, Metric] = dataclasses.field(default_factory=dict)
    main_metric: str = ""
    lower_is_better: tuple[str, ...] = ()

    recipe_type: ClassVar[type[UserTableRecipe]] = UserTableRecipe

    def stored(
        self, data: Any, name: str, settings: Mapping[str, Any]
    ) -> "DataFile":
        """Converts texts and labels to a file; see `labelled_texts`."""
        from bert_tf.families.text_classification.in_memory import (
            labelled_texts,
        )

        return labelled_texts(data, name, settings)

    def resolve(self, recipe: UserTableRecipe) -> TextClassificationTask:
        """The task that a recipe describes.

        Raises:
          UserError: the columns are not named, or a text is the label too.
        """
        texts = tuple(map(str.strip, recipe.text_columns.split(",")))
        columns = {"text_columns": texts}
        if recipe.label_column:
            columns["label_column"] = (recipe.label_column,)
        named_columns(columns)
        if len(texts) > 2:
            raise UserError(
                f"`text_columns`={recipe.text_columns}: name one column, "
                "or two of a pair, for example text_columns=question,answer."
            )
        kinds: dict[str, Callable[..., TextClassificationTask]] = {
            kind.label_kind: kind
            for kind in (SentenceTask, RegressionTask, MultiLabelTask)
        }
        own = {
            "scores": self.scores,
            "main_metric": self.main_metric or next(iter(self.scores), ""),
            "lower_is_better": self.lower_is_better,
        }
        changes: dict[str, Any] = {k: v for k, v in own.items() if v}
        # New data, so that a run reads each file once.
        return kinds[recipe.label_kind](
            name=self.name,
            data=UserTexts(texts),
            labels=recipe.stated_labels,
            text_columns=recipe.text_columns,
            separator=recipe.label_separator,
            **changes,
        )


class UserTexts(UserFiles):
    """The rows of the files that a recipe names.

    Args:
      texts: the text columns, one or two.
    """

    def __init__(self, texts: tuple[str, ...]):
        super().__init__(split_off_dev)
        self._texts = texts

    def read_file(
        self,
        path: str,
        recipe: UserTableRecipe,
        parse_label: ParseLabel,
        label_needed: bool = True,
    ) -> Iterator[Example]:
        """Reads the rows of a file; see `GlueData.read_file`."""
        required, optional = [*self._texts], [*recipe.label_columns]
        if label_needed:
            required += named_columns({"label_column": optional}, path)
        if label_needed or not recipe.label_column:
            optional = []
        table = Table(path, Dialect.of_recipe(recipe))
        rows: Iterable[Row] = table.rows(required, optional)
        if recipe.label_kind == MULTI_LABEL:
            names = _names_of_flags(table, recipe)
            rows = _with_names(rows, len(self._texts), names)
        try:
            yield from examples_of(path, rows, self._texts, recipe, parse_label)
        except MissingColumn as error:
            if "," not in error.column or error.column in self._texts:
                raise
            raise UserError(
                f"{error} Several columns of 0 and 1 need `label_kind`="
                f"{MULTI_LABEL}."
            ) from None


def _names_of_flags(table: Table, recipe: UserTableRecipe) -> tuple[str, ...]:
    """Returns the names of labels that are given by 0 and 1 each.

    They are in columns of their own, or in lists of one length in all rows;
    then rows with more than two labels have an entry twice, and are no names.

    Raises:
      UserError: there are more names or fewer than entries.
    """
    columns = recipe.label_columns
    if len(columns) > 1:
        return columns
    counts: set[int] = set()
    # A pipe is read once.
    if not all(map(os.path.isfile, table.files)):
        return ()
    rows = table.rows((), columns)
    with contextlib.closing(rows):
        for row in rows:
            if row.fault or row.cells[0] is None:
                continue
            flags = entries_of(row.cells[0]) or ()
            counts.add(len(flags))
            if len(counts) > 1 or len(flags) < 2 or {*flags} - _FLAGS.keys():
                return ()
    (count,) = counts or {0}
    names = recipe.stated_labels
    if names and count and len(names) != count:
        raise UserError(
            f"`label_names`={recipe.label_names}: are {len(names)}, and rows "
            f"of {table.name} have {count} labels; name each."
        )
    return names or tuple(map(str, range(count)))


def _with_names(
    rows: Iterable[Row], num_texts: int, names: tuple[str, ...]
) -> Iterator[Row]:
    """Replaces 0 and 1 of each label by the names of those that hold."""
    for row in rows:
        cells = row.cells[num_texts:]
        if not names or not cells or cells == (None,) * len(cells):
            yield row
            continue
        flags = cells if len(cells) > 1 else entries_of(cells[0]) or ()
        holds, fault = [], None
        for name, flag in zip(names, flags, strict=True):
            if not isinstance(flag, str) or flag not in _FLAGS:
                fault = Fault(
                    "a label that is neither 0 nor 1",
                    f"{row.place}: the label {name!r} is {excerpt(flag)}; it "
                    "takes 0 or 1.",
                )
            elif _FLAGS[flag]:
                holds.append(name)
        texts = row.cells[:num_texts]
        yield row._replace(cells=(*texts, tuple(holds)), fault=fault)


def _check_label_text(label: str, place: str) -> None:
    """Raises `Fault` if a prediction file cannot hold the label."""
    if any(character in label for character in "\t\r\n"):
        raise Fault(
            "a tab or line end in a label",
            f"{place}: the label {excerpt(label)} holds a tab or a line end; "
            "remove it.",
        )
