"""Multiple choice: SWAG, and the user's own files."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_tf.families.checks import Examination
from bert_tf.families.data.tables import named_columns
from bert_tf.families.multiple_choice.checks import examine_choices
from bert_tf.families.multiple_choice.config import MultipleChoiceConfig
from bert_tf.families.multiple_choice.files import (
    ChoiceColumns,
    ChoiceExample,
    ChoiceFiles,
    choice_names,
    choice_number,
    read_choices,
)
from bert_tf.families.recipe import ChoiceRecipe, UserChoiceRecipe
from bert_tf.families.row_task import PREDICTION, RowTask
from bert_tf.families.rows import CHOICE_MASK, Outputs
from bert_tf.families.task import (
    TaskTemplate,
)
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.families.task_model import ChoicesObjective
    from bert_tf.text.layout import EncodedRows


@dataclasses.dataclass(frozen=True)
class EncodedChoices:
    """The choices of N examples.

    Attributes:
      rows: a row for each choice, with the context as text A and the start
        and the choice as B; those of an example one after the other.
      starts: int64 [N + 1], where the rows of each example begin.
    """

    rows: "EncodedRows"
    starts: np.ndarray

    @property
    def example(self) -> np.ndarray:
        """The number of each example, int64 [N]."""
        return np.arange(len(self))

    @property
    def counts(self) -> np.ndarray:
        """Choices of each example, int64 [N]."""
        return np.diff(self.starts)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of the longest row of each example, int64 [N]."""
        lengths = self.rows.lengths.numpy()
        return np.maximum.reduceat(lengths, self.starts[:-1])

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What the rows are made of, for digests."""
        return *self.rows.arrays, self.starts

    def batch(
        self, chosen: "tf.Tensor", width: "tf.Tensor | int" = 0
    ) -> "dict[str, tf.Tensor]":
        """A batch of some examples; see `Rows`.

        Returns:
          The encoder's inputs, int32 [B, C, S], padded to the longest row and
          to the most choices (with a width, to the most of all examples), and
          choice_mask, float32 [B, C], 1 for a choice. Where an example has
          fewer, its first choice is repeated, for the encoder has no answer to
          a row of padding alone.
        """
        # TensorFlow takes seconds to import, and scoring a file needs none.
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
        """The scores of each example's choices, [N, C]; -inf for none."""
        counts = self.counts[:, None]
        logits = np.zeros((len(self), counts.max()), np.float32)
        for chosen, outputs in batches:
            found = outputs["logits"][: len(chosen)]
            logits[chosen, : found.shape[1]] = found
        is_choice = np.arange(logits.shape[1]) < counts
        return {"logits": np.where(is_choice, logits, np.float32(-np.inf))}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoiceTask(RowTask[ChoiceExample, MultipleChoiceConfig]):
    """A task whose answer is one of several texts.

    Attributes:
      data: where its rows come from.
    """

    data: ChoiceFiles
    main_metric: str = "accuracy"

    recipe_type: ClassVar[type[ChoiceRecipe]] = ChoiceRecipe
    config_type: ClassVar[type[MultipleChoiceConfig]] = MultipleChoiceConfig

    def read_file(
        self, path: str, recipe: ChoiceRecipe, labelled: bool = True
    ) -> list[ChoiceExample]:
        """See `read_choices`."""
        return read_choices(path, self.data.columns, recipe, labelled)

    def examine(
        self,
        recipe: ChoiceRecipe,
        tokenizer: Tokenizer,
        splits: Mapping[str, list[ChoiceExample]],
    ) -> Examination:
        """Counts choices, where the right ones stand, lengths, repeats."""
        return examine_choices(
            self.name, recipe.max_seq_length, tokenizer, splits
        )

    def configure(
        self, recipe: ChoiceRecipe, examples: list[ChoiceExample]
    ) -> MultipleChoiceConfig:
        """The length, and whether choices have a common beginning."""
        return MultipleChoiceConfig(
            task=self.name,
            labels=(),
            max_seq_length=recipe.max_seq_length,
            **self.fixed_config,
        )

    @property
    def fixed_config(self) -> dict[str, Any]:
        """Whether choices have a common beginning."""
        return {"has_start": self.data.columns.start is not None}

    def rows(
        self,
        examples: list[ChoiceExample],
        tokenizer: Tokenizer,
        config: MultipleChoiceConfig,
    ) -> EncodedChoices:
        """See `choice_rows`."""
        # TensorFlow takes seconds to import, and scoring a file needs none.
        import tensorflow as tf

        from bert_tf.families.multiple_choice.answers import choice_rows
        from bert_tf.text.layout import pack_rows

        most = max(len(example.choices) for example in examples)
        start = [example.start for example in examples]
        found = choice_rows(
            tf.constant([example.context for example in examples]),
            tf.constant(
                [
                    [*example.choices, *[""] * (most - len(example.choices))]
                    for example in examples
                ]
            ),
            tf.constant(start) if config.has_start else None,
            tokenizer,
            config.max_seq_length,
        )
        example = found.places[:, 0]
        packed = pack_rows(
            found.first,
            found.second,
            tokenizer.packing,
            tf.cast(example, tf.int32),
            len(examples),
        )
        begins = np.unique(example, return_index=True)[1]
        return EncodedChoices(packed, np.append(begins, len(packed)))

    def objective(self) -> "ChoicesObjective":
        """Cross-entropy over the choices of each example."""
        from bert_tf.families.task_model import ChoicesObjective

        return ChoicesObjective()

    def answers(
        self, logits: np.ndarray, config: MultipleChoiceConfig
    ) -> Mapping[str, Any]:
        """See `choice_answers`; predictions are numbers of choices."""
        from bert_tf.families.multiple_choice.answers import choice_answers

        found = choice_answers(logits)
        return found | {PREDICTION: np.asarray(found["best"]).tolist()}

    def metrics(
        self,
        references: Sequence[int],
        predictions: Sequence[int],
        labels: Sequence[str] = (),
    ) -> dict[str, float]:
        """Accuracy."""
        correct = np.array(references) == np.array(predictions)
        return {"accuracy": float(correct.mean())}

    def parse(self, cell: str, example: ChoiceExample, place: str) -> int:
        """The number of a choice that a file names."""
        form = self.data.columns.label_form
        return choice_number(cell, example.choices, form, place)

    def cell_of(self, prediction: int, example: ChoiceExample) -> str:
        """A choice as the files name it."""
        form = self.data.columns.label_form
        return choice_names(example.choices, form)[prediction]


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserChoiceTask(TaskTemplate):
    """What the name choice stands for, until a recipe says what it is."""

    recipe_type: ClassVar[type[UserChoiceRecipe]] = UserChoiceRecipe

    def resolve(self, recipe: UserChoiceRecipe) -> MultipleChoiceTask:
        """The task that a recipe describes.

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
        # Task and data of one run, so that a file is read once.
        return MultipleChoiceTask(name=self.name, data=ChoiceFiles(columns))
