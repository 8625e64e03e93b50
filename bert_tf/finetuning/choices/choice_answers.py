"""What a model chose, and the lines in which a report reads of it."""

import dataclasses
import json
import os
from collections.abc import Sequence

import numpy as np

from bert_tf.files import write_text
from bert_tf.finetuning.choices.choice_file import ChoiceExample


@dataclasses.dataclass(frozen=True)
class ChoiceAnswers:
    """A model's answers to N examples of up to C choices.

    Attributes:
      log_probabilities: float64 [N, C], of each choice; -inf where an example
        has fewer.
    """

    log_probabilities: np.ndarray

    @property
    def values(self) -> list[int]:
        """The choices by number, from 0."""
        return self.log_probabilities.argmax(axis=1).tolist()

    def probabilities(self, example: int, count: int) -> list[float]:
        """The probabilities of an example's choices, of which it has `count`.

        Args:
          example: its number.
          count: how many choices it has.
        """
        return np.exp(self.log_probabilities[example, :count]).tolist()

    def mean_loss(self, labels: Sequence[int]) -> float:
        """The mean of -log of the probability of the right choice."""
        rows = np.arange(len(labels))
        return float(-self.log_probabilities[rows, list(labels)].mean())


def choice_answers(logits: np.ndarray, counts: np.ndarray) -> ChoiceAnswers:
    """Turns scores into answers.

    Args:
      logits: float32 [N, C].
      counts: int64 [N], how many choices each example has.
    """
    is_choice = np.arange(logits.shape[1]) < counts[:, None]
    shown = np.where(is_choice, logits.astype(np.float64), -np.inf)
    shown -= shown.max(axis=1, keepdims=True)
    total = np.log(np.exp(shown).sum(axis=1, keepdims=True))
    return ChoiceAnswers(shown - total)


def write_choice_lines(
    path: str | os.PathLike,
    examples: Sequence[ChoiceExample],
    answers: ChoiceAnswers,
) -> None:
    """Writes every row with its label and the answer, a JSON line each."""
    lines = []
    for number, (example, value) in enumerate(
        zip(examples, answers.values, strict=True)
    ):
        line = {
            "identifier": example.identifier,
            "row": example.row,
            "context": example.context,
            "start": example.start,
            "choices": list(example.choices),
            "label": example.label,
            "prediction": value,
            "probabilities": answers.probabilities(
                number, len(example.choices)
            ),
        }
        lines.append(json.dumps(line))
    write_text(path, "\n".join(lines) + "\n")
