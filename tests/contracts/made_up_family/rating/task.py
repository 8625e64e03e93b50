"""Rating texts: files, loss, answers and scores."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from bert_tf.families.rating.answers import rating_answers, rating_rows
from bert_tf.families.rating.config import RatingConfig

from bert_tf.errors import Fault
from bert_tf.families.checks import SPLIT, Examination, Finding
from bert_tf.families.data.examples import (
    Example,
    examples_of,
)
from bert_tf.families.data.tables import Dialect, iterate_rows
from bert_tf.families.data.user_files import UserFiles, split_off_dev
from bert_tf.families.recipe import UserFilesRecipe
from bert_tf.families.row_task import RowTask
from bert_tf.families.rows import LabelledRows, Outputs, RowsAround
from bert_tf.families.task import Score, Split
from bert_tf.families.task_model import MultiLabelObjective
from bert_tf.text.layout import pack_rows
from bert_tf.text.tokenizer_protocol import Tokenizer


class RatingObjective(MultiLabelObjective):
    """Cross-entropy of each step, which is reached or not."""

    label_name = "ratings"
    metric = "step_accuracy"

    def of_rows(self, logits: Any, labels: Any) -> tuple[Any, Any]:
        """Labels are ratings, int32 [B]."""
        reached = tf.range(logits.shape[-1]) < labels[:, tf.newaxis]
        return super().of_rows(logits, tf.cast(reached, tf.float32))


@dataclasses.dataclass(frozen=True)
class RatedRows(RowsAround):
    """A row for each text."""

    rows: Any

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row."""
        return self.rows.lengths.numpy()

    def gather(self, batches: Iterable[tuple[np.ndarray, Outputs]]) -> Outputs:
        """The logits of all texts, [N, K]."""
        parts = [(rows, found["logits"]) for rows, found in batches]
        order = np.argsort(np.concatenate([rows for rows, _ in parts]))
        found = np.concatenate([logits[: len(r)] for r, logits in parts])
        return {"logits": found[order]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RatingTask(RowTask[Example, RatingConfig, Outputs]):
    """Texts with a rating from 0 to `steps` in a column of that name."""

    steps: int = 10
    data: UserFiles = UserFiles(split_off_dev)
    main_metric: str = "closeness"

    recipe_type: ClassVar[type[UserFilesRecipe]] = UserFilesRecipe
    config_type: ClassVar[type[RatingConfig]] = RatingConfig

    def read_file(
        self, path: str, recipe: UserFilesRecipe, labelled: bool = True
    ) -> list[Example]:
        """The rows of a file with the columns text and rating."""
        rows = iterate_rows(
            path, ["text"], ["rating"], Dialect.of_recipe(recipe)
        )
        return examples_of(path, rows, ("text",), recipe, self._rating)

    def _rating(self, cell: Any, place: str) -> int | None:
        if cell in (None, ""):
            return None
        if not str(cell).isdecimal() or int(cell) > self.steps:
            raise Fault(
                "no rating",
                f"{place}: the rating is {cell!r}; it takes 0 to {self.steps}.",
            )
        return int(cell)

    def examine(
        self,
        recipe: UserFilesRecipe,
        tokenizer: Tokenizer,
        splits: Mapping[str, list[Example]],
    ) -> Examination:
        """Counts rows."""
        parts = {
            name: {"file": examples[0].path, "rows": len(examples)}
            for name, examples in splits.items()
        }
        numbers: dict[str, Any] = {"task": self.name, "splits": parts}
        examination = Examination.of(
            numbers,
            [
                Finding(SPLIT, f"{name}: {part['rows']} rows", name)
                for name, part in parts.items()
            ],
        )
        numbers["lines"] = examination.lines
        return examination

    def configure(
        self, recipe: UserFilesRecipe, examples: list[Example]
    ) -> RatingConfig:
        """The length and the steps."""
        return RatingConfig(self.name, (), recipe.max_seq_length, self.steps)

    def encode(
        self,
        examples: list[Example],
        tokenizer: Tokenizer,
        config: RatingConfig,
        labelled: bool = False,
    ) -> RatedRows | LabelledRows:
        """See `rating_rows`."""
        texts = tf.constant([example.text_a for example in examples])
        first = rating_rows(texts, tokenizer, config.max_seq_length)
        rows = RatedRows(pack_rows(first, None, tokenizer.packing))
        if not labelled:
            return rows
        ratings = np.array(self.references(examples), np.int32)
        weights = np.ones(len(ratings), np.float32)
        return LabelledRows(
            rows, weights, {RatingObjective.label_name: ratings}
        )

    def loss(
        self,
        recipe: UserFilesRecipe,
        examples: list[Example],
        config: RatingConfig,
    ) -> RatingObjective:
        """See `RatingObjective`."""
        return RatingObjective()

    def decode(
        self,
        outputs: Outputs,
        split: Split,
        tokenizer: Tokenizer,
        config: RatingConfig,
    ) -> Outputs:
        """See `rating_answers`."""
        answers = rating_answers(tf.constant(outputs["logits"]))
        return outputs | {n: value.numpy() for n, value in answers.items()}

    def score(
        self,
        examples: list[Example],
        predictions: Outputs,
        config: RatingConfig,
    ) -> Score:
        """How close ratings are, and the mean loss."""
        gold = np.array(self.references(examples), np.int32)
        loss = RatingObjective().mean_loss(predictions["logits"], gold)
        return Score(self.metrics(gold, predictions["rating"]), loss)

    def metrics(self, references: Any, values: Any) -> dict[str, float]:
        """How close ratings are, and how many are right."""
        errors = np.abs(np.array(references) - np.array(values))
        return {
            "closeness": float(1 - errors.mean() / self.steps),
            "accuracy": float((errors == 0).mean()),
        }

    def prediction_lines(
        self,
        examples: list[Example],
        predictions: Outputs,
        config: RatingConfig,
    ) -> Iterator[dict[str, Any]]:
        """Every row with its rating and the predicted one."""
        ratings = predictions["rating"].tolist()
        for example, rating in zip(examples, ratings, strict=True):
            yield {
                "rated": example.text_a,
                "identifier": example.identifier,
                "row": example.row,
                "label": example.label,
                "prediction": rating,
            }

    def parse(self, cell: str, example: Example, place: str) -> int | None:
        """The rating in a cell."""
        return self._rating(cell, place)
