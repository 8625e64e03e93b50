"""A task on the user's own file, described by settings alone."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.errors import UserError
from bert_tf.finetuning.data.examples import Example
from bert_tf.finetuning.data.reading import read_examples
from bert_tf.finetuning.data.splitting import split_off_dev
from bert_tf.finetuning.data.tables import Dialect
from bert_tf.finetuning.kinds.multi_label_task import MultiLabelTask
from bert_tf.finetuning.kinds.regression_task import RegressionTask
from bert_tf.finetuning.kinds.sentence_task import Labelled, SentenceTask
from bert_tf.finetuning.recipe import FinetuningRecipe
from bert_tf.progress import notice

_FILE_SETTINGS = {"train": "train_file", "dev": "dev_file", "test": "test_file"}


@dataclasses.dataclass(frozen=True)
class OwnFileTask:
    """What `--task=sentence` names, until a recipe says what it is.

    Attributes:
      name: what the task is called.
      defaults: settings of the recipe that it changes.
    """

    name: str
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def prepared(self, recipe: FinetuningRecipe) -> SentenceTask:
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
        common = {"name": self.name, "data": OwnFiles(texts)}
        if recipe.label_kind == "regression":
            return RegressionTask(**common)
        if recipe.label_kind == "multi_label":
            return MultiLabelTask(**common, separator=recipe.label_separator)
        return SentenceTask(**common)


class OwnFiles:
    """The rows of the files that a recipe names; see `TaskData`.

    Args:
      texts: the text columns, one or two.
    """

    def __init__(self, texts: tuple[str, ...]):
        self._texts = texts
        # Both parts of a split file, for the second of them to be asked for.
        self._parts: dict[FinetuningRecipe, dict[str, list[Example]]] = {}

    def present(
        self, splits: Sequence[str], recipe: FinetuningRecipe
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
        self, split: str, recipe: FinetuningRecipe, labelled: Labelled
    ) -> list[Example]:
        """The rows of a split; see `TaskData`."""
        path = getattr(recipe, _FILE_SETTINGS[split])
        if split != "test" and recipe.train_file and not recipe.dev_file:
            return self._part(split, recipe, labelled)
        if not path:
            raise _no_file(split)
        return self._rows(_place_of(path, recipe), split, recipe, labelled)

    def read_file(
        self, path: str, recipe: FinetuningRecipe, labelled: Labelled
    ) -> list[Example]:
        """The rows of a file with labels."""
        return self._rows(path, "dev", recipe, labelled)

    def _part(
        self, split: str, recipe: FinetuningRecipe, labelled: Labelled
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
        recipe: FinetuningRecipe,
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
            path, self._texts, label, recipe, dialect, label_needed
        )
        return [labelled(example) for example in examples]


def _no_file(split: str) -> UserError:
    return UserError(
        f"--set {_FILE_SETTINGS[split]}=...: name the file; this mode reads it."
    )


def _place_of(path: str, recipe: FinetuningRecipe) -> str:
    """The path itself, or in data_dir where it is relative to that."""
    return str(pathlib.Path(recipe.data_dir) / path)
