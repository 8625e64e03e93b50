"""Tasks that choose one of several texts: SWAG, and own files."""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_tf.checkpoints import MULTIPLE_CHOICE, Checkpoint
from bert_tf.errors import UserError
from bert_tf.finetuning.choices.choice_answers import (
    ChoiceAnswers,
    choice_answers,
    write_choice_lines,
)
from bert_tf.finetuning.choices.choice_data import ChoiceFiles
from bert_tf.finetuning.choices.choice_file import (
    ChoiceColumns,
    ChoiceExample,
    choice_name,
    choice_number,
)
from bert_tf.finetuning.data.predictions import (
    read_predictions,
    write_predictions,
)
from bert_tf.finetuning.kinds.labels import commonest, known_label
from bert_tf.finetuning.legacy_task import (
    Outputs,
    Split,
    Task,
    TaskFacts,
    TaskTemplate,
)
from bert_tf.finetuning.recipe import ChoiceRecipe, OwnChoiceRecipe
from bert_tf.finetuning.rows import LabelledRows
from bert_tf.finetuning.task import Examination

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file needs none of it.
    from bert_tf.finetuning.choices.choice_encoding import EncodedChoices
    from bert_tf.text.tokenizer import BertTokenizer


@dataclasses.dataclass(frozen=True)
class ChoiceFacts(TaskFacts):
    """What task.json holds of a model of choices.

    Attributes:
      has_start: whether choices have a common beginning in a column of its
        own.
    """

    has_start: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoiceTask(Task):
    """A task whose answer is one of several texts.

    Attributes:
      data: where its rows come from.
    """

    data: ChoiceFiles
    main_metric: str = "accuracy"

    recipe_type: ClassVar[type[ChoiceRecipe]] = ChoiceRecipe
    facts_type: ClassVar[type[ChoiceFacts]] = ChoiceFacts
    head: ClassVar[str] = MULTIPLE_CHOICE

    def present_splits(
        self, splits: Sequence[str], recipe: ChoiceRecipe
    ) -> tuple[str, ...]:
        """See `Task.present_splits`."""
        return self.data.present(splits, recipe)

    def read(self, split: str, recipe: ChoiceRecipe) -> list[ChoiceExample]:
        """See `Task.read`."""
        return self.data.read(split, recipe)

    def examine(
        self,
        recipe: ChoiceRecipe,
        tokenizer: "BertTokenizer",
        splits: Mapping[str, Sequence[ChoiceExample]],
    ) -> Examination:
        """See `examine_choices`."""
        from bert_tf.finetuning.checks import examine_choices

        return examine_choices(
            self.name, recipe.max_seq_length, tokenizer, splits
        )

    def facts_of(
        self, recipe: ChoiceRecipe, examples: Sequence[ChoiceExample]
    ) -> ChoiceFacts:
        """See `Task.facts_of`."""
        return ChoiceFacts(
            task=self.name,
            labels=(),
            max_seq_length=recipe.max_seq_length,
            has_start=self.data.columns.start is not None,
        )

    def check_model(
        self, initial: Checkpoint, recipe: ChoiceRecipe, facts: ChoiceFacts
    ) -> None:
        """Refuses models of one segment."""
        self.refuse_one_segment(initial, recipe)

    def check_facts(
        self, facts: ChoiceFacts, folder: str | pathlib.Path
    ) -> None:
        """Refuses models whose choices were told otherwise."""
        if facts.has_start != (self.data.columns.start is not None):
            word = "a" if facts.has_start else "no"
            raise UserError(
                f"{folder}: was fine-tuned with {word} start_column; name "
                "columns as in its training."
            )

    def keeps_head(
        self, initial: Checkpoint, trained_for: str | None, facts: ChoiceFacts
    ) -> bool:
        """A head that scores choices serves all of them."""
        return True

    def encode(
        self,
        examples: Sequence[ChoiceExample],
        tokenizer: "BertTokenizer",
        facts: ChoiceFacts,
    ) -> "EncodedChoices":
        """See `encode_choices`."""
        from bert_tf.finetuning.choices.choice_encoding import encode_choices

        return encode_choices(examples, tokenizer, facts.max_seq_length)

    def labelled(
        self, split: Split, tokenizer: "BertTokenizer", facts: ChoiceFacts
    ) -> LabelledRows:
        """See `Task.labelled`."""
        from bert_tf.finetuning.choices.choice_objective import ChoicesObjective

        labels = np.array(self.references(split.examples), np.int32)
        weights = np.ones(len(labels), np.float32)
        name = ChoicesObjective.label_name
        return LabelledRows(split.rows, weights, {name: labels})

    def make_network(self, encoder: Any, facts: ChoiceFacts) -> Any:
        """See `bert_multiple_choice`."""
        from bert_tf.models import bert_multiple_choice

        return bert_multiple_choice(encoder)

    def make_objective(
        self,
        recipe: ChoiceRecipe,
        examples: Sequence[ChoiceExample],
        facts: ChoiceFacts,
    ) -> Any:
        """See `Task.make_objective`."""
        from bert_tf.finetuning.choices.choice_objective import ChoicesObjective

        return ChoicesObjective()

    def collect(
        self,
        rows: "EncodedChoices",
        batches: Iterable[tuple[np.ndarray, Outputs]],
    ) -> Outputs:
        """The scores of each example's choices, [N, C]."""
        logits = np.zeros((len(rows), rows.counts.max()), np.float32)
        for chosen, outputs in batches:
            found = outputs["logits"][: len(chosen)]
            logits[chosen, : found.shape[1]] = found
        return {"logits": logits}

    def answer(
        self,
        outputs: Outputs,
        split: Split,
        tokenizer: "BertTokenizer",
        facts: ChoiceFacts,
    ) -> ChoiceAnswers:
        """See `choice_answers`."""
        return choice_answers(outputs["logits"], split.rows.counts)

    def evaluate(
        self,
        examples: Sequence[ChoiceExample],
        answers: ChoiceAnswers,
        facts: ChoiceFacts,
    ) -> dict[str, float]:
        """See `Task.evaluate`."""
        return _scores(self.references(examples), answers.values)

    def loss(
        self,
        examples: Sequence[ChoiceExample],
        answers: ChoiceAnswers,
        facts: ChoiceFacts,
    ) -> float:
        """See `ChoiceAnswers.mean_loss`."""
        return answers.mean_loss(self.references(examples))

    def baseline(
        self,
        train: Sequence[ChoiceExample],
        examples: Sequence[ChoiceExample],
    ) -> dict[str, float]:
        """What the position that is right most often in training scores."""
        references = self.references(examples)
        common = commonest(self.references(train))
        return _scores(references, [common] * len(references))

    def references(self, examples: Sequence[ChoiceExample]) -> list[int]:
        """The right choices by number."""
        return [known_label(example) for example in examples]

    def write_predictions(
        self,
        folder: pathlib.Path,
        split: str,
        examples: Sequence[ChoiceExample],
        answers: ChoiceAnswers,
        facts: ChoiceFacts,
    ) -> pathlib.Path:
        """Writes index and prediction, named as the files name choices."""
        form = self.data.columns.label_form
        cells = {
            example.identifier: choice_name(value, example.choices, form)
            for example, value in zip(examples, answers.values, strict=True)
        }
        path = folder / f"predictions_{split}.tsv"
        write_predictions(path, cells)
        return path

    def write_answers(
        self,
        path: pathlib.Path,
        examples: Sequence[ChoiceExample],
        answers: ChoiceAnswers,
        facts: ChoiceFacts,
    ) -> None:
        """Writes every row with its label and the answer, a JSON line each."""
        write_choice_lines(path, examples, answers)

    def score_file(
        self,
        recipe: ChoiceRecipe,
        references: str,
        predictions: str,
        null_odds: str = "",
    ) -> dict[str, float]:
        """Scores a file with the columns index and prediction."""
        self.refuse_null_odds(null_odds)
        examples = self.data.read_file(references, recipe)
        form = self.data.columns.label_form
        answers = [
            choice_number(cell, example.choices, form, place)
            for example, cell, place in read_predictions(
                predictions, examples, references
            )
        ]
        return _scores(self.references(examples), answers)


def _scores(
    references: Sequence[int], answers: Sequence[int]
) -> dict[str, float]:
    right = np.array(references) == np.array(answers)
    return {"accuracy": float(right.mean())}


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserChoiceTask(TaskTemplate):
    """What the name choice stands for, until a recipe says what it is."""

    recipe_type: ClassVar[type[OwnChoiceRecipe]] = OwnChoiceRecipe

    def prepared(self, recipe: OwnChoiceRecipe) -> MultipleChoiceTask:
        """The task that a recipe describes.

        Raises:
          UserError: the columns of text and choices are not named.
        """
        for name, example in (
            ("context_column", "question"),
            ("choice_columns", "a,b,c"),
        ):
            if not getattr(recipe, name):
                raise UserError(
                    f"`{name}`=...: name it, for example {name}={example}."
                )
        columns = ChoiceColumns(
            context=recipe.context_column,
            start=recipe.start_column or None,
            choices=tuple(map(str.strip, recipe.choice_columns.split(","))),
            label=recipe.label_column or None,
            label_form=recipe.label_form,
        )
        # Task and data of one run, so that a file is read once.
        return MultipleChoiceTask(name=self.name, data=ChoiceFiles(columns))
