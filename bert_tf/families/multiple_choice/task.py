"""Multiple choice: SWAG and user files."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_tf.families.multiple_choice.config import MultipleChoiceConfig
from bert_tf.families.multiple_choice.files import (
    ChoiceColumns,
    ChoiceExample,
    ChoiceFiles,
    choice_names,
    choice_number,
    read_choices,
)
from bert_tf.families.multiple_choice.recipe import (
    ChoiceRecipe,
    UserChoiceRecipe,
)
from bert_tf.families.row_task import RowTask
from bert_tf.families.rows import EncodedChoices
from bert_tf.families.task import PREDICTION, TaskTemplate
from bert_tf.families.token_estimates import tokens_of_rows
from bert_tf.tables.table import named_columns
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file does not need it.
    from bert_tf.families.task_model import ChoicesObjective


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoiceTask(RowTask[ChoiceExample, MultipleChoiceConfig]):
    """A task that chooses one of several texts.

    Attributes:
      data: source of its rows.
    """

    data: ChoiceFiles
    main_metric: str = "accuracy"

    recipe_type: ClassVar[type[ChoiceRecipe]] = ChoiceRecipe
    config_type: ClassVar[type[MultipleChoiceConfig]] = MultipleChoiceConfig
    data_folder: ClassVar[str] = "swag"

    def read_file(
        self, path: str, recipe: ChoiceRecipe, labelled: bool = True
    ) -> Sequence[ChoiceExample]:
        """Reads a table of choices; see `read_choices`."""
        return read_choices(path, self.data.columns, recipe, labelled)

    def estimated_tokens(
        self, examples: Sequence[ChoiceExample], recipe: ChoiceRecipe
    ) -> float:
        """Estimates the tokens of a row for every choice."""
        texts = (
            example.context + example.start + choice
            for example in examples
            for choice in example.choices
        )
        return tokens_of_rows(texts, recipe.max_seq_length)

    @property
    def fixed_config(self) -> dict[str, Any]:
        """Whether the choices have a common start."""
        return {"has_start": self.data.columns.start is not None}

    def rows(
        self,
        examples: Sequence[ChoiceExample],
        tokenizer: Tokenizer,
        config: MultipleChoiceConfig,
    ) -> EncodedChoices:
        """Encodes a row for every choice; see `choice_rows`."""
        import tensorflow as tf

        from bert_tf.families.multiple_choice.answers import choice_rows
        from bert_tf.text.layout import pack_rows

        most = max(len(example.choices) for example in examples)
        choices = [
            [*example.choices, *[""] * (most - len(example.choices))]
            for example in examples
        ]
        starts = [example.start for example in examples]
        first, second, indices = choice_rows(
            tf.constant([example.context for example in examples]),
            tf.constant(choices),
            tf.constant(starts) if config.has_start else None,
            tokenizer,
            config.max_seq_length,
        )
        example = tf.cast(indices[:, 0], tf.int32)
        rows = pack_rows(
            first, second, tokenizer.packing, example, len(examples)
        )
        begins = np.unique(example, return_index=True)[1]
        return EncodedChoices(rows, np.append(begins, len(rows)))

    def objective(self) -> "ChoicesObjective":
        """Returns the cross-entropy over the choices of each example."""
        from bert_tf.families.task_model import ChoicesObjective

        return ChoicesObjective()

    def answers(
        self, logits: np.ndarray, config: MultipleChoiceConfig
    ) -> Mapping[str, Any]:
        """Returns `choice_answers`; predictions are numbers of choices."""
        from bert_tf.families.multiple_choice.answers import choice_answers

        answers = choice_answers(logits, config.calibration_temperature)
        return answers | {PREDICTION: np.asarray(answers["best"]).tolist()}

    def metrics(
        self,
        examples: Sequence[ChoiceExample],
        predictions: Sequence[int],
        labels: Sequence[str] = (),
    ) -> dict[str, float]:
        """Computes the accuracy."""
        gold = self.references(examples)
        correct = np.array(gold) == np.array(predictions)
        return {"accuracy": float(correct.mean())}

    def parse(self, cell: str, example: ChoiceExample, place: str) -> int:
        """Returns the number of the choice that a cell names."""
        form = self.data.columns.label_form
        return choice_number(cell, example.choices, form, place)

    def cell_of(self, prediction: int, example: ChoiceExample) -> str:
        """Returns the label of a choice in the form that the files use."""
        form = self.data.columns.label_form
        return choice_names(example.choices, form)[prediction]


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserChoiceTask(TaskTemplate):
    """The task called choice, which reads user files as a recipe describes."""

    recipe_type: ClassVar[type[UserChoiceRecipe]] = UserChoiceRecipe

    def resolve(self, recipe: UserChoiceRecipe) -> MultipleChoiceTask:
        """Returns the task that a recipe describes.

        Raises:
          UserError: the columns of text and choices are not named.
        """
        choices = tuple(map(str.strip, recipe.choice_columns.split(",")))
        context = [recipe.context_column]
        named_columns({"context_column": context, "choice_columns": choices})
        columns = ChoiceColumns(
            context=recipe.context_column,
            start=recipe.start_column or None,
            choices=choices,
            label=recipe.label_column or None,
            label_form=recipe.label_form,
        )
        # A new task and data object per run, so that a file is read once.
        return MultipleChoiceTask(name=self.name, data=ChoiceFiles(columns))
