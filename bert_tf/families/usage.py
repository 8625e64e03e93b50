"""How a model with a head is used: which texts it takes and what it answers.

The task.json of a fine-tuning states it. Where there is none, as in folders of
transformers, Google's code and Model Garden, it follows from the checkpoint's
head, labels, problem_type and lengths, and from the caller's `UsageOptions`.
"""

import dataclasses
import os
from typing import Any

from bert_tf.checkpoints import (
    CLASSIFIER,
    MASKED_LM,
    MULTIPLE_CHOICE,
    SPAN,
    TASK_HEADS,
    TOKEN_CLASSIFIER,
    Checkpoint,
)
from bert_tf.checkpoints.checkpoint import num_labels
from bert_tf.checkpoints.hugging_face_labels import default_labels
from bert_tf.checkpoints.task_file import PROBLEM_TYPE_OF
from bert_tf.errors import UserError, first_few
from bert_tf.families.model_folder import (
    TASK_FILE,
    read_config_as,
    task_of,
)
from bert_tf.families.multiple_choice.task import MultipleChoiceConfig
from bert_tf.families.question_answering.task import QuestionAnsweringConfig
from bert_tf.families.task import TaskConfig
from bert_tf.families.text_classification.task import TextClassificationConfig
from bert_tf.families.token_classification.task import (
    TokenClassificationConfig,
)
from bert_tf.families.usage_options import (
    CHOICE_TASK,
    CLASSIFIER_TASKS,
    EMBEDDINGS,
    FILL_MASK,
    OF_CLASSIFIERS,
    QUESTION_ANSWERING,
    TOKEN_CLASSIFICATION,
    UsageOptions,
)
from bert_tf.text.packing import Tokenizer

# The tasks of each head; those of None are of models without one.
_TASKS: dict[str | None, tuple[str, ...]] = {
    CLASSIFIER: tuple(OF_CLASSIFIERS),
    TOKEN_CLASSIFIER: (TOKEN_CLASSIFICATION,),
    SPAN: (QUESTION_ANSWERING,),
    MULTIPLE_CHOICE: (CHOICE_TASK,),
    None: (FILL_MASK, EMBEDDINGS),
}
_CONFIGS: dict[str, type[TaskConfig]] = {
    CLASSIFIER: TextClassificationConfig,
    TOKEN_CLASSIFIER: TokenClassificationConfig,
    SPAN: QuestionAnsweringConfig,
    MULTIPLE_CHOICE: MultipleChoiceConfig,
}
_KINDS = {theirs: ours for ours, theirs in PROBLEM_TYPE_OF.items()}
# google-research/bert, run_squad.py, which most models of questions follow.
_LONGEST_WINDOW, _DOC_STRIDE = 384, 128
_MAX_QUERY_LENGTH, _MAX_ANSWER_LENGTH, _N_BEST_SIZE = 64, 30, 20


def usage_of(
    folder: str | os.PathLike,
    checkpoint: Checkpoint,
    options: UsageOptions,
    tokenizer: Tokenizer,
) -> TaskConfig | None:
    """How the model in a folder is used.

    Args:
      folder: the model folder.
      checkpoint: what `load_checkpoint` read from it.
      options: what the caller states.
      tokenizer: that of the model.

    Returns:
      The config of the head's family, read from task.json or derived; None of
      a pre-trained model, which has no head of a task.

    Raises:
      UserError: the folder has several heads, or a head and a task.json that
        do not belong together; or an option does not apply to the model, or
        contradicts what its folder states.
    """
    place = f"`folder`={folder}"
    heads = [head for head in checkpoint.heads if head in TASK_HEADS]
    if len(heads) > 1:
        raise UserError(
            f"{place}: has the heads {', '.join(heads)}; it takes a model of "
            "one task."
        )
    head = heads[0] if heads else None
    trained_for = task_of(folder)
    if head is None and trained_for is not None:
        raise UserError(
            f"{place}: was fine-tuned for {trained_for}, whose model has no "
            "head on the encoder (a tagger on its features, for example) and "
            "cannot be served; fine-tune the encoder itself."
        )
    if options.task is not None and options.task not in _TASKS[head]:
        has = f"its head is a {head}" if head else "it has no head of a task"
        raise UserError(
            f"`task`={options.task}: {folder} cannot be used for it: {has}, "
            f"which takes {' or '.join(_TASKS[head])}."
        )
    if head is None:
        check_pretrained(place, checkpoint, options)
        return None
    if trained_for is not None:
        config = read_config_as(folder, _CONFIGS[head])
        _check_agreement(f"{folder}/{TASK_FILE}", config, options)
        return config
    derived = _Derived(place, checkpoint, options, tokenizer)
    config = {
        CLASSIFIER: derived.text_classification,
        TOKEN_CLASSIFIER: derived.token_classification,
        SPAN: derived.question_answering,
        MULTIPLE_CHOICE: derived.multiple_choice,
    }[head]()
    if config.num_segments > checkpoint.config.segment_limit:
        raise UserError(
            f"{place}: type_vocab_size is {checkpoint.config.type_vocab_size}, "
            "so it cannot tell the two texts of a row apart, which "
            f"{config.task} needs."
        )
    return config


def check_pretrained(
    place: str, checkpoint: Checkpoint, options: UsageOptions
) -> None:
    """Refuses options that a model without a head of a task does not take.

    Args:
      place: the folder, for errors.
      checkpoint: what it holds.
      options: what the caller states.

    Raises:
      UserError: there is such an option.
    """
    fills_masks = MASKED_LM in checkpoint.heads and not checkpoint.config.causal
    if options.task == FILL_MASK and not fills_masks:
        raise UserError(
            f"`task`={FILL_MASK}: {place} has no masked-LM head that reads "
            f"both sides of a mask; it takes {EMBEDDINGS}."
        )
    for name in ("labels", "threshold"):
        if name in options.given:
            raise UserError(
                f"{options.shown(name)}: {place} was not "
                "fine-tuned for a task and has no labels; leave it out."
            )
    _check_length(place, checkpoint, options, 3)


def _check_length(
    place: str, checkpoint: Checkpoint, options: UsageOptions, least: int
) -> int:
    """The longest row, checked against the model's positions."""
    longest = checkpoint.config.max_position_embeddings
    length = options.max_seq_length
    if length is None:
        return checkpoint.max_seq_length or longest
    if not least <= length <= longest:
        raise UserError(
            f"`max_seq_length`={length}: {place} takes {least} to {longest} "
            "(max_position_embeddings)."
        )
    return length


def _check_agreement(
    source: str, config: TaskConfig, options: UsageOptions
) -> None:
    """Refuses options that differ from what task.json states."""
    stated: dict[str, Any] = {
        "labels": config.labels,
        "max_seq_length": config.max_seq_length,
        "threshold": config.summary().get("threshold"),
    }
    if isinstance(config, TextClassificationConfig):
        stated["task"] = CLASSIFIER_TASKS[config.label_kind, config.num_texts]
    for name, given in options.given.items():
        if name in stated and given != stated[name]:
            there = stated[name]
            if name == "labels":
                there = ",".join(there)
            there = "none" if there in (None, "") else there
            raise UserError(
                f"{options.shown(name)}: {source} states how this model is "
                f"used, with {name} {there}; leave it out."
            )


@dataclasses.dataclass(frozen=True)
class _Derived:
    """The configs of models without task.json.

    Attributes:
      place: the folder, for errors.
      checkpoint: what it holds.
      options: what the caller states.
      tokenizer: that of the model.
    """

    place: str
    checkpoint: Checkpoint
    options: UsageOptions
    tokenizer: Tokenizer

    def text_classification(self) -> TextClassificationConfig:
        """Classes, several labels or a number, of one text or a pair."""
        outputs = num_labels(self.checkpoint, CLASSIFIER)
        kind, num_texts = self._kind(outputs)
        task = CLASSIFIER_TASKS[kind, num_texts]
        labels: tuple[str, ...] = ()
        if kind == "regression":
            self._refuse(task, "labels")
        else:
            labels = self._labels(outputs)
        if kind != "multi_label":
            self._refuse(task, "threshold")
        threshold = self.options.threshold
        if threshold is not None and not 0 < threshold < 1:
            raise UserError(
                f"`threshold`={threshold}: is a probability of {task}; give a "
                "number above 0 and below 1."
            )
        return TextClassificationConfig(
            task=task,
            labels=labels,
            max_seq_length=self._length(num_texts, 1),
            label_kind=kind,
            num_outputs=outputs,
            num_texts=num_texts,
            text_columns="",
            label_separator=",",
            long_inputs="cut",
            doc_stride=_DOC_STRIDE,
            threshold=0.5 if threshold is None else float(threshold),
        )

    def token_classification(self) -> TokenClassificationConfig:
        """Entities of words; without names LABEL_0 and so on."""
        task = TOKEN_CLASSIFICATION
        self._refuse(task, "threshold")
        return TokenClassificationConfig(
            task=task,
            labels=self._labels(num_labels(self.checkpoint, TOKEN_CLASSIFIER)),
            max_seq_length=self._length(1, 1),
            context="sentence",
            doc_stride=0,
        )

    def question_answering(self) -> QuestionAnsweringConfig:
        """Answers in windows of run_squad.py's sizes, where they fit."""
        task = QUESTION_ANSWERING
        self._refuse(task, "labels")
        length = self._length(2, 2)
        if self.options.max_seq_length is None:
            length = min(length, _LONGEST_WINDOW)
        room = length - self.tokenizer.packing.num_special(2)
        threshold = self.options.threshold
        return QuestionAnsweringConfig(
            task=task,
            labels=(),
            max_seq_length=length,
            # A third of a window, as of 384 tokens.
            doc_stride=max(min(_DOC_STRIDE, length // 3), 1),
            max_query_length=min(_MAX_QUERY_LENGTH, room // 2),
            max_answer_length=_MAX_ANSWER_LENGTH,
            n_best_size=_N_BEST_SIZE,
            with_null=threshold is not None,
            null_threshold=float(threshold or 0),
        )

    def multiple_choice(self) -> MultipleChoiceConfig:
        """The best of the texts that may follow one."""
        task = CHOICE_TASK
        self._refuse(task, "labels", "threshold")
        return MultipleChoiceConfig(task, (), self._length(2, 2), False)

    def _kind(self, outputs: int) -> tuple[str, int]:
        """The kind of answers of a classifier, and the texts of a row."""
        problem_type = self.checkpoint.problem_type
        # As transformers trains (modeling_bert.py,
        # BertForSequenceClassification.forward).
        kind = "regression" if outputs == 1 else "classes"
        if problem_type is not None:
            kind = _KINDS[problem_type]
        if kind == "classes" and outputs == 1:
            # The softmax of one output is 1 whatever the text;
            # text_classification.py of transformers' pipelines takes the
            # sigmoid.
            kind = "multi_label"
        num_texts = 1
        task = self.options.task
        if task is not None:
            stated = kind if problem_type is not None and outputs > 1 else None
            kind, num_texts = OF_CLASSIFIERS[task]
            if stated not in (None, kind):
                raise UserError(
                    f"`task`={task}: {self.place} states the problem_type "
                    f"{problem_type}; leave it out."
                )
            if kind == "classes" and outputs == 1:
                raise UserError(
                    f"`task`={task}: {self.place} has one output, which is "
                    "no choice between classes; give text_regression, or "
                    "text_multi_label_classification for a probability."
                )
        if kind == "regression" and outputs > 1:
            why = f"`task`={task}" if task else f"problem_type {problem_type}"
            raise UserError(
                f"{self.place}: has {outputs} outputs, but {why} is read as "
                "one number for each text."
            )
        return kind, num_texts

    def _labels(self, outputs: int) -> tuple[str, ...]:
        """The names of the outputs."""
        known, given = self.checkpoint.labels, self.options.labels
        if given is None:
            return known or default_labels(outputs)
        if len(given) != outputs:
            raise UserError(
                f"`labels`: are {len(given)} ({first_few(given)}), but "
                f"{self.place} has {outputs} outputs; name each."
            )
        if known is not None and tuple(given) != known:
            raise UserError(
                f"{self.options.shown('labels')}: {self.place} names its "
                f"outputs {first_few(known)}; leave it out."
            )
        return tuple(given)

    def _length(self, num_texts: int, least: int) -> int:
        """The longest row, with room for `least` tokens of text."""
        special = self.tokenizer.packing.num_special(num_texts)
        return _check_length(
            self.place, self.checkpoint, self.options, special + least
        )

    def _refuse(self, task: str, *names: str) -> None:
        """Refuses options that do not apply to a task."""
        for name in names:
            if name in self.options.given:
                raise UserError(
                    f"{self.options.shown(name)}: does not apply "
                    f"to {task}, as which {self.place} is used; leave it out."
                )
