"""`TextClassificationConfig`, the task.json of text classification."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from bert_tf.checkpoints import CLASSIFIER
from bert_tf.checkpoints.checkpoint import num_labels
from bert_tf.checkpoints.sentence_modules import TORCH_ACTIVATIONS
from bert_tf.checkpoints.task_file import PROBLEM_TYPE_OF
from bert_tf.errors import UserError, check_choice
from bert_tf.families.config import (
    CalibratedConfig,
    HeadInFolder,
    added_later,
)
from bert_tf.families.usage_options import CLASSIFIER_TASKS, OF_CLASSIFIERS

# Kinds of labels, and the handling of long inputs.
CLASSES, REGRESSION, MULTI_LABEL = PROBLEM_TYPE_OF
CUT, WINDOWS = "cut", "windows"
_KINDS = {theirs: ours for ours, theirs in PROBLEM_TYPE_OF.items()}


@dataclasses.dataclass(frozen=True)
class TextClassificationConfig(CalibratedConfig):
    """The content of task.json of a text classifier.

    Attributes:
      label_kind: classes, regression or multi_label.
      num_outputs: C.
      num_texts: 1, or 2 for pairs.
      text_columns: the setting `text_columns` of the recipe.
      label_separator: the separator of several labels in a cell.
      long_inputs: cut or windows.
      doc_stride: tokens from the start of a window to that of the next.
      threshold: the probability above which one of several labels holds.
      activation: of a number, see `sentence_modules.TORCH_ACTIVATIONS`.
    """

    label_kind: str
    num_outputs: int
    num_texts: int
    text_columns: str = ""
    label_separator: str = ","
    long_inputs: str = CUT
    doc_stride: int = 128
    threshold: float = 0.5
    activation: str = added_later("linear")

    pipeline_tag: ClassVar[str] = "text-classification"
    builder: ClassVar[str] = "bert_classifier"
    head: ClassVar[str] = CLASSIFIER
    tasks: ClassVar[tuple[str, ...]] = tuple(OF_CLASSIFIERS)

    def __post_init__(self) -> None:
        """Raises `UserError` for an unknown kind, handling or activation."""
        for name, known in (
            ("label_kind", tuple(PROBLEM_TYPE_OF)),
            ("long_inputs", (CUT, WINDOWS)),
            ("activation", tuple(TORCH_ACTIVATIONS.values())),
        ):
            check_choice(name, getattr(self, name), known)

    @classmethod
    def of_head(cls, head: HeadInFolder) -> Self:
        """Derives the config of a classifier; see `TaskConfig`."""
        outputs = num_labels(head.checkpoint, CLASSIFIER)
        kind, num_texts = _kind(head, outputs)
        task = CLASSIFIER_TASKS[kind, num_texts]
        labels: tuple[str, ...] = ()
        if kind == REGRESSION:
            head.refuse(task, "labels")
        else:
            labels = head.labels(CLASSIFIER)
        if kind != MULTI_LABEL:
            head.refuse(task, "threshold")
        threshold = head.options.threshold
        if threshold is not None and not 0 < threshold < 1:
            raise UserError(
                f"`threshold`={threshold}: is a probability of {task}; give a "
                "number above 0 and below 1."
            )
        return cls(
            task=task,
            labels=labels,
            max_seq_length=head.length(num_texts, 1),
            label_kind=kind,
            num_outputs=outputs,
            num_texts=num_texts,
            threshold=0.5 if threshold is None else float(threshold),
        )

    @property
    def head_sizes(self) -> tuple[int, ...]:
        """C."""
        return (self.num_outputs,)

    def sample(self) -> dict[str, Any]:
        """A text, or a pair of them."""
        if self.num_texts == 2:
            return {"text": "It rains.", "text_b": "It is wet."}
        return {"text": "A lovely film."}

    @property
    def problem_type(self) -> str:
        """The problem type of the kind of label."""
        return PROBLEM_TYPE_OF[self.label_kind]

    @property
    def texts_per_row(self) -> int:
        """The texts of a row."""
        return self.num_texts

    @property
    def is_nli(self) -> bool:
        """Whether it is of natural language inference, by its labels."""
        is_of_pairs = self.label_kind == CLASSES and self.num_texts == 2
        return is_of_pairs and any(map(_is_entailment, self.labels))

    def summary(self) -> dict[str, Any]:
        """The threshold of several labels, and the temperature."""
        if self.label_kind != MULTI_LABEL:
            return super().summary()
        return {"threshold": self.threshold, **super().summary()}

    def stated(self) -> dict[str, Any]:
        """See `TaskConfig`; a classifier's head has several uses."""
        task = CLASSIFIER_TASKS[self.label_kind, self.num_texts]
        return super().stated() | {"task": task}


def _is_entailment(label: str) -> bool:
    # As transformers: pipelines/zero_shot_classification.py, entailment_id.
    return label.lower().startswith("entail")


def entailment_of(labels: Sequence[str]) -> tuple[int, int]:
    """The numbers of the labels of entailment and of its opposite.

    The opposite is the one that begins with contra. Without it, it is the first
    label or, after entailment, the last, as in transformers.

    Args:
      labels: those of a model of natural language inference.
    """
    entailment = [*map(_is_entailment, labels)].index(True)
    opposites = [
        number
        for number, label in enumerate(labels)
        if label.lower().startswith("contra")
    ]
    last = 0 if entailment else len(labels) - 1
    return entailment, (*opposites, last)[0]


def _kind(head: HeadInFolder, outputs: int) -> tuple[str, int]:
    """Returns the kind of label of a classifier, and the texts of a row."""
    problem_type = head.checkpoint.problem_type
    # As transformers: modeling_bert.py, BertForSequenceClassification.forward.
    kind = REGRESSION if outputs == 1 else CLASSES
    if problem_type is not None:
        kind = _KINDS[problem_type]
    if kind == CLASSES and outputs == 1:
        # The softmax of one output is always 1; transformers' pipelines take
        # the sigmoid (text_classification.py).
        kind = MULTI_LABEL
    num_texts = 1
    task = head.options.task
    if task is not None:
        stated = kind if problem_type is not None and outputs > 1 else None
        kind, num_texts = OF_CLASSIFIERS[task]
        if stated not in (None, kind):
            raise UserError(
                f"`task`={task}: {head.folder} states the problem_type "
                f"{problem_type}; leave it out."
            )
        if kind == CLASSES and outputs == 1:
            raise UserError(
                f"`task`={task}: {head.folder} has one output, which is "
                "no choice between classes; give text_regression, or "
                "text_multi_label_classification for a probability."
            )
    if kind == REGRESSION and outputs > 1:
        why = f"`task`={task}" if task else f"problem_type {problem_type}"
        raise UserError(
            f"{head.folder}: has {outputs} outputs, but {why} is read as "
            "one number for each text."
        )
    return kind, num_texts
