"""Saves and loads fine-tuned models: a model folder with task.json."""

import dataclasses
import json
import os
import pathlib
from typing import TYPE_CHECKING, Any

from bert_tf.checkpoints import (
    LABELLED_HEADS,
    Checkpoint,
    head_shapes,
    load_checkpoint,
    place_labels,
    save_adapter,
    save_checkpoint,
)
from bert_tf.checkpoints.recognition import is_stanford_colbert
from bert_tf.checkpoints.task_file import TASK_FILE, read_task_file
from bert_tf.encoders import encoder_class
from bert_tf.errors import UserError
from bert_tf.families.config import HeadInFolder, TaskConfig
from bert_tf.families.usage_options import UsageOptions
from bert_tf.files import write_text
from bert_tf.layers.initialization import assigned_later
from bert_tf.models import restore
from bert_tf.recipe import check_kind
from bert_tf.sources import local_folder, read_module_list
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    import keras

    from bert_tf.families.task import Task
    from bert_tf.families.task_model import TaskModel

# The scores of a training.
RESULTS_FILE = "results.json"


def save_model(
    folder: str | os.PathLike,
    model: "TaskModel",
    tokenizer: Tokenizer,
    config: TaskConfig,
    base: Checkpoint | None = None,
) -> None:
    """Writes a fine-tuned model into a folder.

    Args:
      folder: the folder, created if it does not exist.
      model: the model.
      tokenizer: its tokenizer.
      config: its config.
      base: the checkpoint that the training of low-rank updates (LoRA) started
        from, to write them and the head as an adapter; None writes the whole
        model, as is done in other layouts than bert_tf.
    """
    checkpoint = Checkpoint(
        model.encoder.config,
        model.arrays(),
        # Some tasks have outputs and no labels.
        labels=(config.labels or None) if model.in_checkpoint else None,
    ).with_tokenizer(tokenizer.data)
    if base is None or model.layout != "bert_tf":
        save_checkpoint(folder, checkpoint, model.layout, replace=True)
    else:
        save_adapter(folder, checkpoint, base)
    model.save_beside(pathlib.Path(folder))
    text = json.dumps(config.to_dict(), indent=2)
    write_text(pathlib.Path(folder) / TASK_FILE, text + "\n")


def task_of(folder: str | os.PathLike) -> str | None:
    """Returns the task of a fine-tuned model; None of other folders.

    Raises:
      UserError: its task.json is malformed.
    """
    values = read_task_file(folder)
    if values is None:
        return None
    source = str(pathlib.Path(folder) / TASK_FILE)
    return check_kind("task", str, values.get("task"), source)


def read_config(folder: str | os.PathLike, task: "Task") -> Any:
    """Reads the task.json of a model as the task's `config_type`.

    Raises:
      UserError: it is missing, malformed or of another task, unless the task
        scores any model; or it holds a value that a recipe would refuse.
    """
    name = task_of(folder)
    if name is None and task.scores_any_model:
        checkpoint = load_checkpoint(folder)
        tokenizer = text_tokenizer(checkpoint)
        options = UsageOptions()
        head = HeadInFolder(f"{folder}", checkpoint, options, tokenizer)
        return task.config_type.of_head(head)
    if name not in (None, task.name) and not task.scores_any_model:
        raise UserError(
            f"{folder}: was fine-tuned for {name}, not {task.name}; give that "
            "task as `task`."
        )
    config = read_config_as(folder, task.config_type)
    # Its lengths and strides have the names and limits of a recipe.
    kinds = task.recipe_type.kinds()
    values = dataclasses.asdict(config)
    given = {key: value for key, value in values.items() if key in kinds}
    task.recipe_type.from_dict(given, str(pathlib.Path(folder) / TASK_FILE))
    for key, value in task.fixed_config.items():
        if values[key] != value:
            raise UserError(
                f"{folder}: was fine-tuned with {key} {values[key]}, and this "
                f"task has {value}; describe the data as in its training."
            )
    return config


def read_config_as(
    folder: str | os.PathLike, config_type: type[TaskConfig]
) -> Any:
    """Reads the task.json of a model as a config of a given type.

    Raises:
      UserError: it is missing, or its keys or types are others.
    """
    values = read_task_file(folder)
    if values is None:
        raise UserError(
            f"{folder}: has no {TASK_FILE}, so it is no fine-tuned model; "
            "train it first."
        )
    source = str(pathlib.Path(folder) / TASK_FILE)
    fields = dataclasses.fields(config_type)
    kinds: dict[str, Any] = {field.name: field.type for field in fields}
    later = {f.name for f in fields if "added_later" in f.metadata}
    if different := sorted((set(values) ^ set(kinds)) - (later - set(values))):
        raise UserError(
            f"{source}: the keys {', '.join(different)} are missing or too "
            "many; fine-tune the model again with this version."
        )
    checked: dict[str, Any] = {
        name: check_kind(name, kinds[name], value, source)
        for name, value in values.items()
    }
    return config_type(**checked)


def load_model(
    folder: str | os.PathLike,
    task: "Task",
    precision: str = "float32",
    unpadded: bool = True,
    labels: tuple[str, ...] = (),
) -> "tuple[TaskModel, Tokenizer, Any]":
    """Reads the model, tokenizer and config that `save_model` wrote.

    Args:
      folder: the folder.
      task: the task of the model.
      precision: a Keras dtype policy.
      unpadded: see `Task.build`.
      labels: the order of the outputs, if the model's labels are the same in
        another order.

    Raises:
      UserError: the folder is not a model that was fine-tuned for the task.
    """
    config = read_config(folder, task)
    checkpoint = load_checkpoint(folder)
    if config.head in LABELLED_HEADS and set(labels) == set(config.labels):
        checkpoint = place_labels(checkpoint, config.head, labels) or checkpoint
        config = dataclasses.replace(config, labels=labels)
    model = build_model(task, config, checkpoint, precision, unpadded)
    model.load_beside(pathlib.Path(folder))
    return model, checkpoint.make_tokenizer(), config


def build_model(
    task: "Task",
    config: Any,
    checkpoint: Checkpoint,
    precision: str,
    unpadded: bool = True,
) -> "TaskModel":
    """Builds the model of a task with the weights of a checkpoint."""
    with assigned_later():
        encoder = encoder_class(checkpoint.config)(
            checkpoint.config, dtype=precision
        )
        model = task.build(encoder, config, unpadded)
        model.restore(checkpoint)
    return model


def restore_read_heads(
    model: "keras.Model", checkpoint: Checkpoint, *unread: str
) -> None:
    """Assigns weights; heads in `unread` may be absent without a message."""
    absent = set(unread) - set(checkpoint.heads)
    # Not every architecture has a next_sentence head.
    absent &= set(head_shapes(checkpoint.config))
    restore(model, checkpoint, fresh=sorted(absent))


def text_tokenizer(
    checkpoint: Checkpoint, split_special_tokens: bool | None = None
) -> Tokenizer:
    """Makes the tokenizer of a model that takes texts.

    In folders of sentence-transformers and of Stanford's ColBERT it recognizes
    special tokens in texts, as transformers does; see `UsageOptions` for
    another choice.
    """
    if split_special_tokens is None:
        folder = local_folder(checkpoint.source)
        split_special_tokens = read_module_list(
            folder
        ) is None and not is_stanford_colbert(folder)
    return checkpoint.make_tokenizer(split_special_tokens)
