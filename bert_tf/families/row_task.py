"""Tasks whose examples are rows with a label each."""

import abc
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from bert_tf.families.data.examples import (
    commonest,
    known_label,
    read_predictions,
    write_predictions,
)
from bert_tf.families.task import Config, Prediction, Task, refuse_null_odds

Example = TypeVar("Example")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowTask(
    Task[list[Example], Config, Prediction],
    Generic[Example, Config, Prediction],
):
    """A task whose prediction files have a row's index and its prediction.

    Its `prediction_lines` have the identifier of the row and the prediction, in
    the form of a label.

    Attributes:
      data: where its examples come from; see `UserFiles`.
    """

    data: Any

    def splits(self, names: Sequence[str], recipe: Any) -> tuple[str, ...]:
        """The splits of `data` that are there."""
        return self.data.present(names, recipe)

    def load(self, split: str, recipe: Any) -> list[Example]:
        """The examples of a split of `data`; those to predict need no label."""

        def read_rows(path: str, labelled: bool) -> list[Example]:
            return self.read_file(path, recipe, labelled)

        return self.data.read(split, recipe, read_rows)

    @abc.abstractmethod
    def metrics(
        self, references: Sequence[Any], values: Sequence[Any]
    ) -> dict[str, float]:
        """The official scores by name, of labels and as many predictions."""

    @abc.abstractmethod
    def parse(self, cell: str, example: Example, place: str) -> Any:
        """A prediction in a file, in the form of a label.

        Args:
          cell: what `cell_of` wrote.
          example: what was predicted.
          place: file and row, for errors.

        Raises:
          UserError: it is none.
        """

    def cell_of(self, value: Any, example: Example) -> str:
        """A prediction as a file has it."""
        del example
        return str(value)

    def references(self, examples: list[Example]) -> Any:
        """What predictions are scored by, of types that JSON knows."""
        return [known_label(example) for example in examples]

    def guess(self, labels: Sequence[Any]) -> Any:
        """The prediction without a model: the commonest of these labels."""
        return commonest(labels)

    def baseline(
        self, train: list[Example], examples: list[Example]
    ) -> dict[str, float]:
        """What the `guess` of the training labels scores; see `Task`."""
        references = self.references(examples)
        guess = self.guess(self.references(train))
        return self.metrics(references, [guess] * len(references))

    def write_predictions(
        self,
        folder: pathlib.Path,
        split: str,
        examples: list[Example],
        predictions: Prediction,
        config: Config,
    ) -> pathlib.Path:
        """Writes the predictions of a split: index and prediction of each row.

        Returns:
          The file to show the user.
        """
        lines = self.prediction_lines(examples, predictions, config)
        cells = {
            line["identifier"]: self.cell_of(line["prediction"], example)
            for line, example in zip(lines, examples, strict=True)
        }
        path = folder / f"predictions_{split}.tsv"
        write_predictions(path, cells)
        return path

    def score_file(
        self,
        recipe: Any,
        references: str,
        predictions: str,
        null_odds: str = "",
    ) -> dict[str, Any]:
        """Scores a file that `write_predictions` wrote; see `Task`."""
        refuse_null_odds(self.name, null_odds)
        examples = self.read_file(references, recipe)
        values = [
            self.parse(cell, example, place)
            for example, cell, place in read_predictions(
                predictions, examples, references
            )
        ]
        return self.metrics(self.references(examples), values)

    @abc.abstractmethod
    def read_file(
        self, path: str, recipe: Any, labelled: bool = True
    ) -> list[Example]:
        """The examples of a file that is laid out as the dev file is.

        Args:
          path: the file.
          recipe: how to read it.
          labelled: whether every row must have a label.
        """
