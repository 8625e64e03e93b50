"""Where the rows of tasks on choices come from: SWAG's files and own ones."""

import dataclasses
import pathlib
from collections.abc import Sequence

from bert_tf.errors import UserError
from bert_tf.finetuning.choices.choice_file import (
    SWAG_COLUMNS,
    ChoiceColumns,
    ChoiceExample,
    read_choices,
)
from bert_tf.finetuning.data.user_files import (
    UserFiles,
    path_of,
    split_off_dev,
)
from bert_tf.finetuning.recipe import ChoiceRecipe
from bert_tf.progress import notice


class ChoiceFiles:
    """The rows of the files that a recipe names.

    Args:
      columns: where they have what.
    """

    def __init__(self, columns: ChoiceColumns):
        self.columns = columns
        self._files = UserFiles(split_off_dev)

    def present(
        self, splits: Sequence[str], recipe: ChoiceRecipe
    ) -> tuple[str, ...]:
        """The splits that the recipe names a file for; see `UserFiles`."""
        return self._files.present(splits, recipe)

    def read(self, split: str, recipe: ChoiceRecipe) -> list[ChoiceExample]:
        """The rows of a split; see `UserFiles`."""

        def rows(path: str, label_needed: bool) -> list[ChoiceExample]:
            return self._rows(path, recipe, label_needed)

        return self._files.read(split, recipe, rows)

    def read_file(self, path: str, recipe: ChoiceRecipe) -> list[ChoiceExample]:
        """The rows of a file with labels."""
        return self._rows(path, recipe, True)

    def _rows(
        self, path: str, recipe: ChoiceRecipe, label_needed: bool
    ) -> list[ChoiceExample]:
        if label_needed and self.columns.label is None:
            raise UserError(
                "`label_column`=...: name the column of the right choice "
                f"in {path}."
            )
        return read_choices(
            path,
            self.columns,
            recipe.dialect,
            recipe.empty_text,
            label_needed,
        )


class SwagFiles(ChoiceFiles):
    """SWAG's official files; with one of two alone, dev is split off it."""

    def __init__(self) -> None:
        super().__init__(SWAG_COLUMNS)

    def present(
        self, splits: Sequence[str], recipe: ChoiceRecipe
    ) -> tuple[str, ...]:
        """See `ChoiceFiles`."""
        return super().present(splits, self._there(splits[0], recipe))

    def read(self, split: str, recipe: ChoiceRecipe) -> list[ChoiceExample]:
        """See `ChoiceFiles`."""
        return super().read(split, self._there(split, recipe))

    def _there(self, split: str, recipe: ChoiceRecipe) -> ChoiceRecipe:
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
            notice(
                f"{recipe.data_dir}: holds {there[0]} alone of "
                f"{' and '.join(names)}; it is split for training and dev."
            )
        return dataclasses.replace(recipe, train_file=there[0], dev_file="")
