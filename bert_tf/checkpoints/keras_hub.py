"""Reads KerasHub (keras_nlp) presets of its BertBackbone and relatives.

config.json          the architecture, as Keras writes an object's arguments
model.weights.h5     the encoder with its pooler; or model.weights.json, the
                     index of several model_*.weights.h5
task.json            BertMaskedLM, BertTextClassifier or a relative's, if any
task.weights.h5      its head

Keras names a variable by the classes of the layers above it and by its number:
the first Dense of the backbone is the pooler, that of a task computes its
logits. No model is built.

A RoBERTa of KerasHub has no segments, and its positions begin with those of the
first token; our tables begin with the rows that are missing, as zeros.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.architecture_list import ARCHITECTURES, find_architecture
from bert_tf.architectures.parts import Architecture, Kind
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.h5_file import open_h5_arrays
from bert_tf.checkpoints.layout import all_parts, names_of
from bert_tf.checkpoints.recognition import KERAS_HUB_WEIGHTS
from bert_tf.checkpoints.stored import Stored, read_stored, refuse_projection
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, check_choice, refuse_faults
from bert_tf.foreign_files import file_beside
from bert_tf.lazy_arrays import LazyArrays, changed_arrays
from bert_tf.recipe import check_kind, read_json_object, value_of_key

CONFIG_FILE = "config.json"
WEIGHTS_FILE, SHARDS_FILE = KERAS_HUB_WEIGHTS
TASK_FILE = "task.json"
TASK_WEIGHTS_FILE = "task.weights.h5"
# Arguments of every Keras layer.
_LAYER_ARGUMENTS = ("name", "trainable", "dtype")
_IGNORED = (
    r"(model|task)/optimizer/.*",
    # Seeds of dropout layers, in older files.
    r"(model|task)/(.*/)?seed_generators?(_\d+)?/.*",
)


def read(folder: pathlib.Path, ignore: str = "") -> Checkpoint:
    """Reads the configuration and the weights of a preset."""
    config = _read_config(folder / CONFIG_FILE)
    found = _model_arrays(folder)
    labels = None
    if (folder / TASK_FILE).exists():
        labels = _read_task(folder, names_of(config).keras_hub.tasks)
    if (folder / TASK_WEIGHTS_FILE).exists():
        head = _read_file(folder / TASK_WEIGHTS_FILE)
        found = _joined(found, head, folder)
    table = _table(config, labels)
    found = _with_first_rows(found, table, config)
    unread = names_of(config).keras_hub.unread
    for part in names_of(config).embeddings_project:
        name = f"{part.keras_hub}/vars/0"
        # The pooler of an ELECTRA has this name, too.
        if not re.fullmatch(unread, name):
            refuse_projection(config, name, found, str(folder))
    arrays, left_out = read_stored(
        config, table, found, (*_IGNORED, unread), str(folder), ignore
    )
    checkpoint = Checkpoint(config, arrays, left_out=left_out)
    if "masked_lm" in checkpoint.heads:
        config = dataclasses.replace(
            config, **names_of(config).keras_hub.masked_lm
        )
    return dataclasses.replace(checkpoint, config=config)


def _read_object(path: pathlib.Path) -> tuple[str, dict[str, Any]]:
    values = read_json_object(path)
    name, arguments = values.get("class_name"), values.get("config")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise UserError(
            f"{path}: holds no class_name and config, as KerasHub writes them."
        )
    return name, arguments


def _read_config(path: pathlib.Path) -> BertConfig:
    name, arguments = _read_object(path)
    backbones: dict[str, Architecture] = {}
    for model_type in ARCHITECTURES:
        architecture = find_architecture(model_type, str(path))
        if backbone := architecture.names.keras_hub.backbone:
            backbones[backbone] = architecture
        # Later architectures are not imported.
        if name in backbones:
            break
    check_choice(f"{path}: class_name", name, backbones)
    config, form = architecture.config, architecture.names.keras_hub
    known = {*form.arguments, *_LAYER_ARGUMENTS}
    faults = {
        "missing": sorted(set(form.arguments) - set(arguments)),
        "unknown": sorted(set(arguments) - known),
    }
    refuse_faults(f"{path}: other arguments than {name}'s", faults)
    policy = arguments.get("dtype")
    if isinstance(policy, dict) and policy.get("class_name") != "DTypePolicy":
        raise UserError(
            f"{path}: dtype is a {policy.get('class_name')}; quantized "
            "presets cannot be read, only floating-point ones."
        )
    values: dict[str, Any] = {}
    for argument, (kind, fields) in form.arguments.items():
        value = check_kind(argument, kind, arguments[argument], str(path))
        values |= dict.fromkeys(fields, value)
    values["max_position_embeddings"] += config.first_position
    try:
        return config(**values, **form.computation)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _read_task(folder: pathlib.Path, tasks: Sequence[str]) -> int | None:
    """Returns the number of labels of a classifier; None for other tasks."""
    path = folder / TASK_FILE
    name, arguments = _read_object(path)
    if name in tasks and not (folder / TASK_WEIGHTS_FILE).exists():
        raise UserError(
            f"{path}: exists for a {name}, but not its {TASK_WEIGHTS_FILE}."
        )
    activation = arguments.get("activation")
    if activation not in (None, "linear"):
        raise UserError(
            f"{path}: activation is {json.dumps(activation)}; a head "
            "computes logits, so save the preset with activation=None."
        )
    return value_of_key(arguments, "num_classes", int, str(path))


def _model_arrays(folder: pathlib.Path) -> LazyArrays:
    # In the order of KerasHub.
    if (folder / WEIGHTS_FILE).exists():
        return _read_file(folder / WEIGHTS_FILE)
    index = folder / SHARDS_FILE
    listed = read_json_object(index)
    files = check_kind("weight_map", dict, listed.get("weight_map"), str(index))
    names = set()
    for file in files.values():
        names |= set(file if isinstance(file, list) else [file])
    arrays = LazyArrays({}, dict[str, Any]().__getitem__)
    for name in sorted(names, key=str):
        shard = _read_file(file_beside(index, name))
        arrays = _joined(arrays, shard, folder)
    return arrays


def _read_file(path: pathlib.Path) -> LazyArrays:
    """Reads the arrays of a file, named model/... or task/....

    Keras 2.13 wrote `_layer_checkpoint_dependencies` for `layers`, and early
    Keras 3 an underscore before the layers inside MultiHeadAttention.
    """
    arrays = open_h5_arrays(path)

    def current_name(name: str) -> str:
        name = name.replace("_layer_checkpoint_dependencies/", "layers/", 1)
        return name.replace("_self_attention_layer/_", "_self_attention_layer/")

    names: dict[str, str] = {}
    for name in arrays:
        other = names.setdefault(current_name(name), name)
        if other != name:
            raise UserError(f"{path}: {other} and {name} are the same layer's.")
    part = "task" if path.name == TASK_WEIGHTS_FILE else "model"
    return arrays.renamed({f"{part}/{new}": old for new, old in names.items()})


def _joined(
    first: LazyArrays, second: LazyArrays, folder: pathlib.Path
) -> LazyArrays:
    twice = first.shapes.keys() & second.shapes.keys()
    if twice:
        raise UserError(
            f"{folder}: {min(twice)} is in two files of the preset."
        )
    return LazyArrays(
        first.shapes | second.shapes,
        lambda name: (first if name in first else second)[name],
    )


def _first_rows(config: BertConfig) -> dict[str, int]:
    """The first rows of our tables that KerasHub's lack, by our name."""
    rows = {"bert/embeddings/position_embeddings": config.first_position}
    if "num_segments" not in names_of(config).keras_hub.arguments:
        rows["bert/embeddings/token_type_embeddings"] = config.type_vocab_size
    return {name: count for name, count in rows.items() if count}


def _with_first_rows(
    found: LazyArrays, table: Mapping[str, Stored], config: BertConfig
) -> LazyArrays:
    """Adds rows of zeros in front of tables, and tables of zeros."""
    shapes: dict[str, tuple[int, ...]] = {}
    zeros: dict[str, np.ndarray] = {}
    for ours, count in _first_rows(config).items():
        name, (rows, _) = table[ours].name, table[ours].shape
        if name in found or count == rows:
            stored, *width = found.shapes.get(name, (0, config.embedding_size))
            shapes[name] = (count + stored, *width)
            zeros[name] = np.zeros((count, *width), np.float32)

    def compute(name: str) -> np.ndarray:
        others = [found[name]] if name in found else []
        return np.concatenate([zeros[name], *others])

    return changed_arrays(found, shapes, compute)


def _table(config: BertConfig, labels: int | None) -> dict[str, Stored]:
    """Returns how each array is stored; `labels` is from task.json."""
    table = {}
    for part in all_parts(config):
        if not part.keras_hub:
            continue
        for number, (name, shape) in enumerate(part.shapes(config).items()):
            output = part.kind is Kind.OUTPUT
            if output:
                shape = (*shape[1:], labels)
            table[name] = Stored(
                f"{part.keras_hub}/vars/{number}",
                part.by_attention_head(shape, config),
                transposed=output and len(shape) > 1,
            )
    return table
