"""Tasks whose examples are rows with a label each."""

import abc
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from bert_tf.families.data.examples import (
    commonest,
    known_label,
    read_predictions,
    write_predictions,
)
from bert_tf.families.rows import LabelledRows, Outputs, Rows
from bert_tf.families.task import Answered, Config, RunSplit, Score, Split, Task
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file needs none of it.
    from bert_tf.families.task_model import LogitsObjective

Example = TypeVar("Example", bound=Any)
# The answer to each row in the form of a label, among those of `answers`.
PREDICTION = "prediction"
RowAnswers = Answered[list[Example], dict[str, Any], Config]
# What makes a row the same in two files is all but its place.
PLACE = ("identifier", "row", "path")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowTask(
    Task[list[Example], Config, dict[str, Any]], Generic[Example, Config]
):
    """A task whose rows have a label each, and logits from which it follows.

    Its predictions are the answers of a served model by name, arrays of N
    rows, the logits and a list of predictions. A prediction file has the index
    of each row and its prediction.

    Attributes:
      data: where its examples come from; see `UserFiles`.
    """

    data: Any

    @abc.abstractmethod
    def objective(self) -> "LogitsObjective":
        """What a model is trained for."""

    @abc.abstractmethod
    def rows(
        self, examples: list[Example], tokenizer: Tokenizer, config: Config
    ) -> Any:
        """The examples as `ExampleRows` with the `example` of each row."""

    @abc.abstractmethod
    def answers(self, logits: np.ndarray, config: Config) -> Mapping[str, Any]:
        """The answers of a served model, by name, from logits [N, C]."""

    @abc.abstractmethod
    def predictions(
        self, answers: Mapping[str, np.ndarray], config: Config
    ) -> list[Any]:
        """The answers in the form of labels."""

    @abc.abstractmethod
    def metrics(
        self,
        references: Sequence[Any],
        predictions: Sequence[Any],
        labels: Sequence[str] = (),
    ) -> dict[str, float]:
        """The official scores by name, of labels and as many predictions.

        Args:
          references: the labels.
          predictions: in the form of labels.
          labels: the names of the model's outputs, where these are scored.
        """

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

    def cell_of(self, prediction: Any, example: Example) -> str:
        """A prediction as a file has it."""
        del example
        return str(prediction)

    def guess(self, labels: Sequence[Any]) -> Any:
        """The prediction without a model: the commonest of these labels."""
        return commonest(labels)

    def targets(
        self, examples: Sequence[Example], labels: Sequence[str]
    ) -> np.ndarray:
        """What the model is to learn of N examples, [N, ...]."""
        del labels
        return np.array(self.references(examples), np.int32)

    def encode(
        self,
        examples: list[Example],
        tokenizer: Tokenizer,
        config: Config,
        labelled: bool = False,
        run: RunSplit | None = None,
    ) -> Rows:
        """The rows; labelled, the windows on an example weigh 1 together."""
        rows = self.rows(examples, tokenizer, config)
        if not labelled:
            return rows
        example = np.asarray(rows.example)
        weights = (1 / np.bincount(example))[example].astype(np.float32)
        targets = self.targets(examples, config.labels)[example]
        return LabelledRows(
            rows, weights, {self.objective().label_name: targets}
        )

    def loss(self, recipe: Any, examples: list[Example], config: Config) -> Any:
        """The objective."""
        return self.objective()

    def decode(
        self,
        outputs: Outputs,
        split: Split,
        tokenizer: Tokenizer,
        config: Config,
    ) -> dict[str, Any]:
        """The answers that a served model gives, and the predictions."""
        found = self.answers(outputs["logits"], config)
        answers = {name: np.asarray(value) for name, value in found.items()}
        predictions = self.predictions(answers, config)
        return outputs | answers | {PREDICTION: predictions}

    def score(self, answered: RowAnswers[Example, Config]) -> Score:
        """The official scores, and the mean loss of an example."""
        examples, predictions, config = answered
        labels = config.labels
        values = self.metrics(
            self.references(examples), predictions[PREDICTION], labels
        )
        targets = self.targets(examples, labels)
        loss = self.objective().mean_loss(predictions["logits"], targets)
        return Score(values, loss)

    def prediction_lines(
        self, answered: RowAnswers[Example, Config]
    ) -> Iterator[dict[str, Any]]:
        """Every row with its label, the prediction and the probabilities."""
        examples, predictions, _ = answered
        shares = predictions.get("scores", predictions.get("probabilities"))
        for number, example in enumerate(examples):
            content = {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in example._asdict().items()
                if name not in (*PLACE, "label")
            }
            line = {
                "identifier": example.identifier,
                "row": example.row,
                **content,
                "label": example.label,
                PREDICTION: predictions[PREDICTION][number],
            }
            if shares is not None:
                # An example with fewer choices than others has logits of -inf.
                there = ~np.isneginf(predictions["logits"][number])
                line["probabilities"] = shares[number][there].tolist()
            yield line

    def references(self, examples: Sequence[Example]) -> Any:
        """What predictions are scored by, of types that JSON knows."""
        return [known_label(example) for example in examples]

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
        answered: RowAnswers[Example, Config],
    ) -> pathlib.Path:
        """Writes the predictions of a split: index and prediction of each row.

        Returns:
          The file to show the user.
        """
        cells = {
            example.identifier: self.cell_of(value, example)
            for example, value in zip(
                answered.examples,
                answered.predictions[PREDICTION],
                strict=True,
            )
        }
        path = folder / f"predictions_{split}.tsv"
        write_predictions(path, cells)
        return path

    def file_scores(
        self, recipe: Any, references: str, predictions: str, null_odds: str
    ) -> dict[str, Any]:
        """Scores a file that `write_predictions` wrote; see `Task`."""
        examples = self.read_file(references, recipe)
        values = [
            self.parse(cell, example, place)
            for example, cell, place in read_predictions(
                predictions, examples, references
            )
        ]
        return self.metrics(self.references(examples), values)
