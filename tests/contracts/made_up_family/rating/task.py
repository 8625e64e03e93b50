"""Rating texts: files, loss, answers and scores."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from bert_tf.families.rating.answers import rating_answers, rating_rows
from bert_tf.families.rating.config import RatingConfig

from bert_tf.errors import Fault
from bert_tf.families.data.examples import (
    Example,
    examples_of,
)
from bert_tf.families.data.user_files import UserFiles, split_off_dev
from bert_tf.families.recipe import UserFilesRecipe
from bert_tf.families.row_task import RowTask
from bert_tf.families.rows import TextRows
from bert_tf.families.task import PREDICTION
from bert_tf.families.task_model import MultiLabelObjective
from bert_tf.tables.table import Dialect, Table
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class RatingTask(RowTask[Example, RatingConfig]):
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
        table = Table(path, Dialect.of_recipe(recipe))
        rows = table.rows(["text"], ["rating"])
        return list(examples_of(path, rows, ("text",), recipe, self._rating))

    def _rating(self, cell: Any, place: str) -> int | None:
        if cell in (None, ""):
            return None
        if not str(cell).isdecimal() or int(cell) > self.steps:
            raise Fault(
                "no rating",
                f"{place}: the rating is {cell!r}; it takes 0 to {self.steps}.",
            )
        return int(cell)

    @property
    def fixed_config(self) -> dict[str, Any]:
        """How many steps a rating has."""
        return {"steps": self.steps}

    def rows(
        self,
        examples: list[Example],
        tokenizer: Tokenizer,
        config: RatingConfig,
    ) -> TextRows:
        """See `rating_rows`."""
        texts = tf.constant([example.text_a for example in examples])
        first = rating_rows(texts, tokenizer, config.max_seq_length)
        return TextRows(pack_rows(first, None, tokenizer.packing))

    def objective(self) -> RatingObjective:
        """See `RatingObjective`."""
        return RatingObjective()

    def answers(
        self, logits: np.ndarray, config: RatingConfig
    ) -> Mapping[str, Any]:
        """See `rating_answers`."""
        found = rating_answers(logits)
        return found | {PREDICTION: np.asarray(found["rating"]).tolist()}

    def metrics(
        self, examples: list[Example], predictions: Any, labels: Any = ()
    ) -> dict[str, float]:
        """The closeness and the accuracy of ratings."""
        gold = self.references(examples)
        errors = np.abs(np.array(gold) - np.array(predictions))
        return {
            "closeness": float(1 - errors.mean() / self.steps),
            "accuracy": float((errors == 0).mean()),
        }

    def prediction_lines(self, answered: Any) -> Iterator[dict[str, Any]]:
        """Every row with its rating and the predicted one."""
        for line in super().prediction_lines(answered):
            yield {"rated": line.pop("text_a"), **line}

    def parse(self, cell: str, example: Example, place: str) -> int | None:
        """The rating in a cell."""
        return self._rating(cell, place)
