"""Text classification of the user's own files, described by settings."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from bert_tf.errors import UserError
from bert_tf.finetuning.data.examples import Example, ParseLabel, examples_of
from bert_tf.finetuning.data.tables import Dialect, read_table
from bert_tf.finetuning.data.user_files import UserFiles, split_off_dev
from bert_tf.finetuning.recipe import UserTableRecipe
from bert_tf.finetuning.task import TaskTemplate
from bert_tf.finetuning.text_classification.kinds import (
    MultiLabelTask,
    RegressionTask,
    SentenceTask,
)
from bert_tf.finetuning.text_classification.task import TextClassificationTask


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserFileTask(TaskTemplate):
    """What the name sentence stands for, until a recipe says what it is."""

    recipe_type: ClassVar[type[UserTableRecipe]] = UserTableRecipe

    def resolve(self, recipe: UserTableRecipe) -> TextClassificationTask:
        """The task that a recipe describes.

        Raises:
          UserError: the columns are not named, or a text is the label too.
        """
        texts = tuple(map(str.strip, recipe.text_columns.split(",")))
        if len(texts) > 2 or not all(texts):
            raise UserError(
                f"`text_columns`={recipe.text_columns}: name one column, "
                "or two of a pair, for example text_columns=question,answer."
            )
        if len(set(texts)) < len(texts):
            raise UserError(
                f"`text_columns`={recipe.text_columns}: names one column twice."
            )
        if recipe.label_column in texts:
            raise UserError(
                f"`label_column`={recipe.label_column}: is one of the "
                "text_columns; the label stands in another column."
            )
        # Task and data of one run, so that a file is read once.
        common: dict[str, Any] = {
            "name": self.name,
            "data": UserTexts(texts),
            "text_columns": recipe.text_columns,
            "separator": recipe.label_separator,
        }
        if recipe.label_kind == "regression":
            return RegressionTask(**common)
        if recipe.label_kind == "multi_label":
            return MultiLabelTask(**common)
        return SentenceTask(**common)


class UserTexts:
    """The rows of the files that a recipe names; see `TextData`.

    Args:
      texts: the text columns, one or two.
    """

    def __init__(self, texts: tuple[str, ...]):
        self._texts = texts
        self._files = UserFiles(split_off_dev)

    def present(
        self, splits: Sequence[str], recipe: UserTableRecipe
    ) -> tuple[str, ...]:
        """The splits that the recipe names a file for."""
        return self._files.present(splits, recipe)

    def read(
        self, split: str, recipe: UserTableRecipe, parse_label: ParseLabel
    ) -> list[Example]:
        """The rows of a split; see `TextData`."""

        def read_rows(path: str, label_needed: bool) -> list[Example]:
            return self._rows(path, label_needed, recipe, parse_label)

        return self._files.read(split, recipe, read_rows)

    def read_file(
        self, path: str, recipe: UserTableRecipe, parse_label: ParseLabel
    ) -> list[Example]:
        """The rows of a file with labels."""
        return self._rows(path, True, recipe, parse_label)

    def _rows(
        self,
        path: str,
        label_needed: bool,
        recipe: UserTableRecipe,
        parse_label: ParseLabel,
    ) -> list[Example]:
        label = [recipe.label_column] if recipe.label_column else []
        if label_needed:
            if not label:
                raise UserError(
                    "`label_column`=...: name the column of the label in "
                    f"{path}."
                )
            required, optional = [*self._texts, *label], []
        else:
            required, optional = [*self._texts], label
        dialect = Dialect.of_recipe(recipe)
        table = read_table(path, required, optional, dialect)
        return examples_of(
            table, self._texts, bool(label), recipe.empty_text, parse_label
        )
