"""A task on the user's own file, described by settings alone."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import ClassVar

from bert_tf.errors import UserError
from bert_tf.finetuning.data.examples import Example
from bert_tf.finetuning.data.reading import read_examples
from bert_tf.finetuning.data.splitting import split_off_dev
from bert_tf.finetuning.data.table_formats import FORMATS
from bert_tf.finetuning.data.tables import Dialect
from bert_tf.finetuning.kinds.multi_label_task import (
    MultiLabelRecipe,
    MultiLabelTask,
)
from bert_tf.finetuning.kinds.regression_task import RegressionTask
from bert_tf.finetuning.kinds.sentence_task import SentenceTask
from bert_tf.finetuning.kinds.text_data import Labelled
from bert_tf.finetuning.kinds.text_task import TextTask
from bert_tf.finetuning.task import TaskTemplate
from bert_tf.progress import notice
from bert_tf.recipe import setting
from bert_tf.training.recipe import LARGEST_SEED

LABEL_KINDS = ("classes", "regression", "multi_label")
_FILE_SETTINGS = {"train": "train_file", "dev": "dev_file", "test": "test_file"}


@dataclasses.dataclass(frozen=True)
class OwnFileRecipe(MultiLabelRecipe):
    """What a task on own files adds: its files, columns and kind of label."""

    data_dir: str = setting("", "folder that the files' names begin in")
    train_file: str = setting(
        "", "own file to train on: .csv, .tsv or .jsonl, or one of them .gz"
    )
    dev_file: str = setting(
        "", "own file to evaluate on; empty splits it off the training file"
    )
    test_file: str = setting("", "own file to predict; needs no labels")
    text_columns: str = setting(
        "", "column of the text, or two of a pair, comma-separated"
    )
    label_column: str = setting("", "column of the label")
    label_kind: str = setting("classes", f"one of {', '.join(LABEL_KINDS)}")
    label_separator: str = setting(
        ",", "several labels a row: what stands between them in a cell"
    )
    dev_share: float = setting(
        0.1, "share of the training rows that becomes dev"
    )
    dev_seed: int = setting(12345, "seed of that split, the same for all seeds")
    format: str = setting("", f"{', '.join(FORMATS)}; empty goes by the name")
    header: bool = setting(
        True,
        "the first row names the columns; if not, they are called 0, 1, ...",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.label_kind in LABEL_KINDS
        self._check("label_kind", known, LABEL_KINDS)
        self._check("format", self.format in ("", *FORMATS), FORMATS)
        good = self.label_separator != ""
        self._check("label_separator", good, "at least one character")
        self._check("dev_share", 0 < self.dev_share < 1, "above 0, below 1")
        good = 0 <= self.dev_seed <= LARGEST_SEED
        self._check("dev_seed", good, f"0 to {LARGEST_SEED}")
        for name in ("threshold", "label_separator"):
            changed = getattr(self, name) != getattr(type(self), name)
            if changed and self.label_kind != "multi_label":
                raise UserError(
                    f"{name}={getattr(self, name)}: is of use with "
                    f"label_kind=multi_label alone, not {self.label_kind}."
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnFileTask(TaskTemplate):
    """What `--task=sentence` names, until a recipe says what it is."""

    recipe_type: ClassVar[type[OwnFileRecipe]] = OwnFileRecipe

    def prepared(self, recipe: OwnFileRecipe) -> TextTask:
        """The task that a recipe describes.

        Raises:
          UserError: the columns are not named, or a text is the label too.
        """
        texts = tuple(map(str.strip, recipe.text_columns.split(",")))
        if len(texts) > 2 or not all(texts):
            raise UserError(
                f"--set text_columns={recipe.text_columns}: name one column, "
                "or two of a pair, for example text_columns=question,answer."
            )
        if len(set(texts)) < len(texts):
            raise UserError(
                f"--set text_columns={recipe.text_columns}: names one column "
                "twice."
            )
        if recipe.label_column in texts:
            raise UserError(
                f"--set label_column={recipe.label_column}: is one of the "
                "text_columns; the label stands in another column."
            )
        # Task and data of one run, so that a file is read once.
        common = {
            "name": self.name,
            "data": OwnFiles(texts),
            "text_columns": recipe.text_columns,
            "separator": recipe.label_separator,
        }
        if recipe.label_kind == "regression":
            return RegressionTask(**common)
        if recipe.label_kind == "multi_label":
            return MultiLabelTask(**common)
        return SentenceTask(**common)


class OwnFiles:
    """The rows of the files that a recipe names; see `TaskData`.

    Args:
      texts: the text columns, one or two.
    """

    def __init__(self, texts: tuple[str, ...]):
        self._texts = texts
        # Both parts of a split file, for the second of them to be asked for.
        self._parts: dict[OwnFileRecipe, dict[str, list[Example]]] = {}

    def present(
        self, splits: Sequence[str], recipe: OwnFileRecipe
    ) -> tuple[str, ...]:
        """The splits that the recipe names a file for."""
        there = tuple(
            split
            for split in splits
            if getattr(recipe, _FILE_SETTINGS[split])
            or (split == "dev" and recipe.train_file)
        )
        if not there:
            raise _no_file(splits[0])
        return there

    def read(
        self, split: str, recipe: OwnFileRecipe, labelled: Labelled
    ) -> list[Example]:
        """The rows of a split; see `TaskData`."""
        path = getattr(recipe, _FILE_SETTINGS[split])
        if split != "test" and recipe.train_file and not recipe.dev_file:
            return self._part(split, recipe, labelled)
        if not path:
            raise _no_file(split)
        return self._rows(_place_of(path, recipe), split, recipe, labelled)

    def read_file(
        self, path: str, recipe: OwnFileRecipe, labelled: Labelled
    ) -> list[Example]:
        """The rows of a file with labels."""
        return self._rows(path, "dev", recipe, labelled)

    def _part(
        self, split: str, recipe: OwnFileRecipe, labelled: Labelled
    ) -> list[Example]:
        """The training or the dev rows of a file that is split in two."""
        if recipe not in self._parts:
            path = _place_of(recipe.train_file, recipe)
            rows = self._rows(path, "train", recipe, labelled)
            train, dev = split_off_dev(rows, recipe.dev_share, recipe.dev_seed)
            notice(
                f"{path}: no dev_file, so {len(dev)} of {len(rows)} rows are "
                f"kept for dev (dev_share={recipe.dev_share}, "
                f"dev_seed={recipe.dev_seed})."
            )
            self._parts = {recipe: {"train": train, "dev": dev}}
        return self._parts[recipe][split]

    def _rows(
        self,
        path: str,
        split: str,
        recipe: OwnFileRecipe,
        labelled: Labelled,
    ) -> list[Example]:
        label_needed = split != "test"
        if label_needed and not recipe.label_column:
            raise UserError(
                "--set label_column=...: name the column of the label in "
                f"{path}."
            )
        dialect = Dialect(
            format=recipe.format,
            header=recipe.header,
            encoding_errors=recipe.encoding_errors,
            skip_bad_rows=recipe.bad_rows == "skip",
        )
        label = recipe.label_column or None
        examples = read_examples(
            path,
            self._texts,
            label,
            recipe.empty_text,
            dialect,
            label_needed,
        )
        return [labelled(example) for example in examples]


def _no_file(split: str) -> UserError:
    return UserError(
        f"--set {_FILE_SETTINGS[split]}=...: name the file; this mode reads it."
    )


def _place_of(path: str, recipe: OwnFileRecipe) -> str:
    """The path itself, or in data_dir where it is relative to that."""
    return str(pathlib.Path(recipe.data_dir) / path)
