"""Multiple choice: SWAG and user files."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
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
from bert_tf.families.rows import CHOICE_MASK, Outputs
from bert_tf.families.task import PREDICTION, TaskTemplate
from bert_tf.families.token_estimates import tokens_of_rows
from bert_tf.tables.table import named_columns
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file does not need it.
    import tensorflow as tf

    from bert_tf.families.task_model import ChoicesObjective
    from bert_tf.text.layout import EncodedRows


@dataclasses.dataclass(frozen=True)
class EncodedChoices:
    """The choices of N examples; see `ExampleRows`.

    Attributes:
      rows: a row for each choice, grouped by example.
      starts: int64 [N + 1], the first row of each example.
    """

    rows: "EncodedRows"
    starts: np.ndarray

    @property
    def example(self) -> np.ndarray:
        """The number of each example, int64 [N]."""
        return np.arange(len(self))

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of the longest row of each example, int64 [N]."""
        lengths = self.rows.lengths.numpy()
        return np.maximum.reduceat(lengths, self.starts[:-1])

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What determines every batch, for digests."""
        return *self.rows.arrays, self.starts

    def batch(self, chosen: Any, width: Any = 0) -> "dict[str, tf.Tensor]":
        """Makes a batch of some examples; see `Rows`.

        Returns:
          The encoder's inputs, int32 [B, C, S], padded to the longest row and
          to the most choices (with a width, to the most of all examples), and
          choice_mask, float32 [B, C], 1 for a choice. Padding repeats the
          first choice, because the encoder cannot attend to an empty row.
        """
        import tensorflow as tf

        starts = self.starts.astype(np.int32)
        counts = tf.gather(np.diff(starts), chosen)
        most = tf.where(
            tf.equal(width, 0), tf.reduce_max(counts), np.diff(starts).max()
        )
        number = tf.range(most)
        mask = number < counts[:, tf.newaxis]
        begin = tf.gather(starts, chosen)[:, tf.newaxis]
        rows = tf.reshape(begin + tf.where(mask, number, 0), [-1])
        batch = {
            name: tf.reshape(values, [-1, most, tf.shape(values)[1]])
            for name, values in self.rows.batch(rows, width).items()
        }
        batch[CHOICE_MASK] = tf.cast(mask, tf.float32)
        return batch

    def __len__(self) -> int:
        return len(self.starts) - 1

    def gather(self, batches: Iterable[tuple[np.ndarray, Outputs]]) -> Outputs:
        """Collects the logits of all choices, float32 [N, C]; -inf pads."""
        counts = np.diff(self.starts)[:, np.newaxis]
        logits = np.zeros((len(self), counts.max()), np.float32)
        for chosen, outputs in batches:
            values = outputs["logits"][: len(chosen)]
            logits[chosen, : values.shape[1]] = values
        is_choice = np.arange(logits.shape[1]) < counts
        return {"logits": np.where(is_choice, logits, np.float32(-np.inf))}


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
