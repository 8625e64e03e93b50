"""A fine-tuned model on disk: a model folder, and task.json beside it."""

import dataclasses
import json
import os
import pathlib
from typing import Any

from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.encoder import BertEncoder
from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.finetuning.sentence_model import SentenceModel
from bert_tf.models import model_arrays, restore
from bert_tf.recipe import check_kind, read_json_object
from bert_tf.text.tokenizer import BertTokenizer

TASK_FILE = "task.json"


@dataclasses.dataclass(frozen=True)
class TaskFacts:
    """What it takes to use a fine-tuned model as it was trained.

    Attributes:
      task: the task's name.
      label_kind: classes, regression or multi_label.
      labels: the labels in the order of the outputs; none for regression.
      num_outputs: C.
      num_texts: 1, or 2 where the rows are pairs.
      text_columns: columns of an own file, as the recipe has them.
      label_separator: between several labels in a cell.
      max_seq_length: S at most.
      long_inputs: cut or windows.
      doc_stride: tokens from the start of a window to that of the next.
      threshold: above which one of several labels holds.
    """

    task: str
    label_kind: str
    labels: tuple[str, ...]
    num_outputs: int
    num_texts: int
    text_columns: str
    label_separator: str
    max_seq_length: int
    long_inputs: str
    doc_stride: int
    threshold: float


def save_sentence_model(
    folder: str | os.PathLike,
    model: SentenceModel,
    tokenizer: BertTokenizer,
    facts: TaskFacts,
) -> None:
    """Writes a fine-tuned model.

    Args:
      folder: the folder, made if it is not there.
      model: the model.
      tokenizer: its tokenizer.
      facts: how it was trained.
    """
    checkpoint = Checkpoint(
        model.encoder.config,
        model_arrays(model.classifier),
        tokenizer.vocabulary,
        tokenizer.lower_case,
        # A regression has an output and no labels.
        facts.labels or None,
    )
    save_checkpoint(folder, checkpoint)
    text = json.dumps(dataclasses.asdict(facts), indent=2)
    write_text(pathlib.Path(folder) / TASK_FILE, text + "\n")


def read_task_facts(folder: str | os.PathLike) -> TaskFacts | None:
    """Reads task.json; None where a folder has none.

    Raises:
      UserError: the file does not hold what `save_sentence_model` writes.
    """
    path = pathlib.Path(folder) / TASK_FILE
    if not path.is_file():
        return None
    values = read_json_object(path)
    # KerasHub calls a file of its own by that name.
    if "registered_name" in values:
        return None
    kinds = {field.name: field.type for field in dataclasses.fields(TaskFacts)}
    if set(values) != set(kinds):
        different = sorted(set(values) ^ set(kinds))
        raise UserError(
            f"{path}: the keys {', '.join(different)} are missing or too many; "
            "fine-tune the model again with this version."
        )
    checked: dict[str, Any] = {
        name: check_kind(name, kinds[name], value, str(path))
        for name, value in values.items()
        if name != "labels"
    }
    labels = check_kind("labels", list, values["labels"], str(path))
    for label in labels:
        check_kind("labels", str, label, str(path))
    return TaskFacts(labels=tuple(labels), **checked)


def load_sentence_model(
    folder: str | os.PathLike, precision: str = "float32"
) -> tuple[SentenceModel, BertTokenizer, TaskFacts]:
    """Reads what `save_sentence_model` wrote.

    Args:
      folder: the folder.
      precision: a Keras dtype policy.

    Raises:
      UserError: the folder is not a fine-tuned model of ours.
    """
    facts = read_task_facts(folder)
    if facts is None:
        raise UserError(
            f"{folder}: has no {TASK_FILE}, so it is no model that was "
            "fine-tuned; run --mode=train first."
        )
    checkpoint = load_checkpoint(folder)
    encoder = BertEncoder(checkpoint.config, dtype=precision)
    model = SentenceModel(encoder, facts.num_outputs)
    restore(model.classifier, checkpoint)
    tokenizer = BertTokenizer(checkpoint.vocabulary, checkpoint.lower_case)
    return model, tokenizer, facts
