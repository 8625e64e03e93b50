"""`RowTask`, the base of tasks whose examples are rows with one label each."""

import abc
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from bert_tf.families.data.examples import (
    LOCATION,
    read_predictions,
    write_predictions,
)
from bert_tf.families.rows import LabelledRows, Outputs, Rows
from bert_tf.families.task import (
    PREDICTION,
    Answered,
    Config,
    RunSplit,
    Split,
    Task,
)
from bert_tf.families.token_estimates import tokens_of_rows
from bert_tf.text.tokenizer_protocol import Tokenizer

Example = TypeVar("Example", bound=Any)
RowAnswers = Answered[Sequence[Example], Config]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowTask(Task[Sequence[Example], Config], Generic[Example, Config]):
    """A task whose rows have one label each, predicted from the row's logits.

    Its predictions are a dict: the logits, the answers of a served model by
    name, arrays of N rows, and a list of `PREDICTION`. A prediction file has
    the index of each row and its prediction.
    """

    def estimated_tokens(
        self, examples: Sequence[Example], recipe: Any
    ) -> float:
        """Estimates the tokens of rows of `texts`; see `Task`."""
        texts = ("".join(example.texts) for example in examples)
        return tokens_of_rows(texts, recipe.max_seq_length)

    @abc.abstractmethod
    def rows(
        self, examples: Sequence[Example], tokenizer: Tokenizer, config: Config
    ) -> Any:
        """Encodes examples as `ExampleRows` with the `example` of each row."""

    @abc.abstractmethod
    def answers(self, logits: np.ndarray, config: Config) -> Mapping[str, Any]:
        """Decodes logits [N, C].

        Returns:
          The answers of a served model by name, and as `PREDICTION` a list of
          N predictions in the form of labels.
        """

    @abc.abstractmethod
    def objective(self) -> Any:
        """Returns the objective without settings, a `LogitsObjective`."""

    def loss(
        self, recipe: Any, examples: Sequence[Example], config: Config
    ) -> Any:
        """Returns the objective of a training; by default `objective`."""
        del recipe, examples, config
        return self.objective()

    @abc.abstractmethod
    def parse(self, cell: str, example: Example, place: str) -> Any:
        """Parses what `cell_of` wrote; errors name the file and row `place`.

        Raises:
          UserError: it is no label.
        """

    def cell_of(self, prediction: Any, example: Example) -> str:
        """Formats a prediction for a prediction file."""
        del example
        return str(prediction)

    def targets(
        self, examples: Sequence[Example], labels: Sequence[str]
    ) -> np.ndarray:
        """Returns the labels of N examples as an array [N, ...]."""
        del labels
        return np.array(self.references(examples), np.int32)

    def encode(
        self,
        examples: Sequence[Example],
        tokenizer: Tokenizer,
        config: Config,
        labelled: bool = False,
        run: RunSplit | None = None,
    ) -> Rows:
        """Encodes examples; with labels, an example's windows weigh 1."""
        rows = self.rows(examples, tokenizer, config)
        if not labelled:
            return rows
        example = np.asarray(rows.example)
        weights = (1 / np.bincount(example))[example].astype(np.float32)
        targets = self.targets(examples, config.labels)[example]
        return LabelledRows(
            rows, weights, {self.objective().label_name: targets}
        )

    def decode(
        self, outputs: Outputs, split: Split, config: Config
    ) -> dict[str, Any]:
        """Returns logits, answers and predictions; see `answers`."""
        found = self.answers(outputs["logits"], config)
        return outputs | {
            name: value if name == PREDICTION else np.asarray(value)
            for name, value in found.items()
        }

    def mean_loss(self, answered: RowAnswers[Example, Config]) -> float:
        """Computes the mean loss of an example."""
        return self.objective().mean_loss(*self.gold_logits(answered))

    def gold_logits(
        self, answered: RowAnswers[Example, Config]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the logits and targets of all rows; see `Task`."""
        examples, predictions, config = answered
        return predictions["logits"], self.targets(examples, config.labels)

    def with_config(
        self, answered: RowAnswers[Example, Config], config: Config
    ) -> RowAnswers[Example, Config]:
        """Decodes the logits again; see `Task`."""
        split = Split(answered.examples, None)
        decoded = self.decode(answered.predictions, split, config)
        return Answered(answered.examples, decoded, config)

    def prediction_lines(
        self, answered: RowAnswers[Example, Config]
    ) -> Iterator[dict[str, Any]]:
        """Yields each row with label, prediction and probabilities."""
        examples, predictions, config = answered
        shares = predictions.get("scores", predictions.get("probabilities"))
        for number, example in enumerate(examples):
            content = {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in example._asdict().items()
                if name not in (*LOCATION, "label")
            }
            line = {
                "identifier": example.identifier,
                "row": example.row,
                **content,
                "label": example.label,
                PREDICTION: predictions[PREDICTION][number],
            }
            if shares is not None:
                # Choices that an example lacks have logits of -inf.
                logits = predictions["logits"][number]
                is_choice = ~np.isneginf(logits)
                line["probabilities"] = shares[number][is_choice].tolist()
                if config.summary().get("calibration_temperature"):
                    line["logits"] = logits[is_choice].tolist()
            yield line

    def write_predictions(
        self, folder: pathlib.Path, split: str, answered: RowAnswers
    ) -> pathlib.Path:
        """Writes index and prediction of each row; see `Task`."""
        cells = {
            example.identifier: self.cell_of(value, example)
            for example, value in zip(
                answered.examples, answered.predictions[PREDICTION], strict=True
            )
        }
        path = folder / f"predictions_{split}.tsv"
        write_predictions(path, cells)
        return path

    def read_predictions(
        self,
        path: str,
        examples: Sequence[Example],
        recipe: Any,
        null_odds: str,
    ) -> list[Any]:
        """Parses what `write_predictions` wrote; see `Task`."""
        del recipe, null_odds
        return [
            self.parse(cell, example, place)
            for example, cell, place in read_predictions(path, examples)
        ]
