"""`UsageOptions`, by which a caller states how a model is used.

It does not import NumPy, which a command that shows its help does not need.
"""

import dataclasses
import math
import numbers
from collections.abc import Sequence
from typing import Any

from bert_tf.errors import UserError, did_you_mean, excerpt, whole_number

# The input that holds a list of texts in each row.
CHOICES = "choices"
# The tasks of a sequence classifier: the kind of label and the number of texts
# of a row, as in task.json.
OF_CLASSIFIERS = {
    "text_classification": ("classes", 1),
    "text_pair_classification": ("classes", 2),
    "text_multi_label_classification": ("multi_label", 1),
    "text_pair_multi_label_classification": ("multi_label", 2),
    "text_regression": ("regression", 1),
    "text_pair_regression": ("regression", 2),
}
CLASSIFIER_TASKS = {used: task for task, used in OF_CLASSIFIERS.items()}
TOKEN_CLASSIFICATION = "token_classification"
QUESTION_ANSWERING = "question_answering"
CHOICE_TASK = "multiple_choice"
# How a label becomes a hypothesis in zero-shot classification.
ZERO_SHOT_TEMPLATE = "This text is about {}."
FILL_MASK, EMBEDDINGS = "fill_mask", "embeddings"
TASKS = (
    *OF_CLASSIFIERS,
    TOKEN_CLASSIFICATION,
    QUESTION_ANSWERING,
    CHOICE_TASK,
    FILL_MASK,
    EMBEDDINGS,
)


def pair_task(task: str) -> str:
    """Returns the task on pairs of texts; empty if there is none.

    Args:
      task: one of `TASKS`, with underscores, hyphens or blanks.
    """
    kind, num_texts = OF_CLASSIFIERS.get(_in_one_form(task), ("", 2))
    return CLASSIFIER_TASKS[kind, 2] if num_texts == 1 else ""


def _in_one_form(task: str) -> str:
    """A task's name with underscores, as in `TASKS`."""
    return task.strip().lower().replace("-", "_").replace(" ", "_")


@dataclasses.dataclass(frozen=True)
class UsageOptions:
    """How to use a model whose folder does not state it.

    Attributes:
      task: one of `TASKS`, with underscores, hyphens or blanks; None is the
        task of the head on single texts.
      labels: the names of the outputs in their order; None takes the folder's.
      max_seq_length: the longest row in tokens, special ones included; None
        takes the folder's.
      threshold: for multi-label models the probability above which a label
        holds, by default 0.5; for questions the margin by which no answer must
        outscore the best answer, by default every question has an answer.
      split_special_tokens: whether special tokens in texts, such as [MASK] or
        </s>, are split like other text; None splits them, except in folders of
        sentence-transformers.

    Raises:
      UserError: a value of a wrong type or out of range.
    """

    task: str | None = None
    labels: Sequence[str] | None = None
    max_seq_length: int | None = None
    threshold: float | None = None
    split_special_tokens: bool | None = None

    def __post_init__(self) -> None:
        if self.task is not None:
            name = _in_one_form(str(self.task))
            if name not in TASKS:
                hint = did_you_mean(name, TASKS)
                raise UserError(
                    f"`task`={self.task}: unknown.{hint} It takes one of "
                    f"{', '.join(TASKS)}."
                )
            object.__setattr__(self, "task", name)
        if self.labels is not None:
            labels = self.labels
            listed = isinstance(labels, list | tuple) and bool(labels)
            if not listed or not all(isinstance(x, str) and x for x in labels):
                raise UserError(
                    f"`labels`={excerpt(labels)}: give a list of names, one "
                    "for each output of the model."
                )
            if len(set(labels)) < len(labels):
                raise UserError(
                    f"`labels`={excerpt(labels)}: a name occurs twice."
                )
            object.__setattr__(self, "labels", tuple(labels))
        length = self.max_seq_length
        if length is not None:
            length = whole_number("max_seq_length", length, 1)
            object.__setattr__(self, "max_seq_length", length)
        threshold = self.threshold
        if threshold is not None and (
            not isinstance(threshold, numbers.Real)
            or isinstance(threshold, bool)
            or not math.isfinite(threshold)
        ):
            raise UserError(f"`threshold`={excerpt(threshold)}: give a number.")
        split = self.split_special_tokens
        if not isinstance(split, bool | None):
            raise UserError(
                f"`split_special_tokens`={excerpt(split)}: give True or False."
            )

    @property
    def given(self) -> dict[str, Any]:
        """The options that are not None, by name."""
        values = vars(self).items()
        return {name: value for name, value in values if value is not None}

    def shown(self, name: str) -> str:
        """Formats an option for an error."""
        value = self.given[name]
        value = ",".join(value) if name == "labels" else value
        return f"`{name}`={value}"


NO_OPTIONS = UsageOptions()
