"""Reads and writes LoRA adapters in the files of Hugging Face's peft.

adapter_config.json         the kernels with an update, rank and alpha, the base
                            model, and our digest of it
adapter_model.safetensors   the low-rank matrices, [rank, in] and [out, rank];
                            the head and other parts that are fully trained
labels.json                 names of the labels of the head

An adapter is read with its base. Source of the names and keys: peft 0.21,
LoraConfig and save_and_load.py.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.architectures.parts import (
    BILSTM,
    CLASSIFIER,
    HEADS_ON_POOLER,
    LORA,
    MULTIPLE_CHOICE,
    POOLER,
    SPAN,
    TASK_HEADS,
    TOKEN_CLASSIFIER,
)
from bert_tf.checkpoints import low_rank
from bert_tf.checkpoints.array_file import open_arrays, write_arrays
from bert_tf.checkpoints.checkpoint import Checkpoint, read_labels, write_labels
from bert_tf.checkpoints.hugging_face import stored_as_theirs
from bert_tf.checkpoints.layout import encoder_shapes, head_shapes, names_of
from bert_tf.checkpoints.recognition import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from bert_tf.checkpoints.stored import (
    Stored,
    read_stored,
    stored_as_ours,
    write_stored,
)
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, excerpt
from bert_tf.files import write_text
from bert_tf.lazy_arrays import LazyArrays, shapes_of_arrays
from bert_tf.recipe import check_kind, read_json_object
from bert_tf.sources import HUB_NAME, HUGGING_FACE

CONFIG_FILE, WEIGHTS_FILE = ADAPTER_CONFIG, ADAPTER_WEIGHTS
_PREFIX = "base_model.model."
_BASE, _DIGEST = "base_model_name_or_path", "base_model_sha256"
# peft has no task_type for multiple choice; auto_mapping names the class.
_TASKS = {
    "SEQ_CLS": CLASSIFIER,
    "TOKEN_CLS": TOKEN_CLASSIFIER,
    "QUESTION_ANS": SPAN,
}
# Keys that change the computation, and their only supported value.
_FIXED = {"peft_type": "LORA", "bias": "none", "fan_in_fan_out": False}
# Keys that are read, and those without effect after training.
_READ = frozenset(
    {"task_type", "auto_mapping", _BASE, "revision", _DIGEST, "r"}
    | {"lora_alpha", "lora_dropout", "use_rslora", "target_modules"}
    | {"modules_to_save", "init_lora_weights"}
)
_WITHOUT_EFFECT = frozenset(
    {"peft_version", "inference_mode", "runtime_config", "megatron_core"}
    | {"megatron_config", "qalora_group_size", "loftq_config", "eva_config"}
    | {"corda_config", "lora_ga_config", "ensure_weight_tying"}
)
# Values of init_lora_weights (peft, tuners/lora/layer.py) that leave the base
# unchanged, and those that subtract the initial matrices from it.
_BASE_UNCHANGED = (True, False, None, "gaussian", "orthogonal", "eva", "mica")
_SUBTRACTED = {"pissa": low_rank.principal, "olora": low_rank.orthonormal}


def base_of(folder: pathlib.Path) -> str:
    """Returns the source of the base model, for `load_checkpoint`."""
    path = folder / CONFIG_FILE
    values = read_json_object(path)
    name = check_kind(_BASE, str, values.get(_BASE), str(path))
    if os.path.isabs(name) or "://" in name:
        return name
    # peft resolves paths from the working directory; here dotted paths are
    # resolved from the adapter first.
    paths = [pathlib.Path(name), folder / name]
    dotted = name.startswith(".")
    for candidate in reversed(paths) if dotted else paths:
        if candidate.is_dir():
            return str(candidate)
    if dotted or not HUB_NAME.fullmatch(name):
        raise UserError(
            f"{path}: {_BASE} is {name!r}, but there is no such folder in "
            f"{os.getcwd()} or in {folder}; name where the base model lies."
        )
    revision = values.get("revision")
    return f"{HUGGING_FACE}{name}" + (f"@{revision}" if revision else "")


def _base_keys(source: str) -> dict[str, str | None]:
    """Returns the keys that name a base model, the inverse of `base_of`."""
    if source.startswith(HUGGING_FACE):
        name, _, revision = source.removeprefix(HUGGING_FACE).partition("@")
        return {_BASE: name, "revision": revision or None}
    local = "://" not in source
    return {_BASE: os.path.abspath(source) if local else source}


def digest(base: Checkpoint) -> str:
    """Returns the SHA-256 of a base's architecture, encoder and pooler."""
    config = dataclasses.replace(base.config.without_lora(), bilstm=False)
    found = hashlib.sha256(json.dumps(config.to_dict()).encode())
    for name in (*encoder_shapes(config), *head_shapes(config).get(POOLER, ())):
        if name in base.arrays:
            found.update(np.ascontiguousarray(base.arrays[name]).data)
    return found.hexdigest()


def _stored(config: BertConfig, head: str | None) -> dict[str, Stored]:
    """Returns how an adapter stores each array that it may hold."""
    heads, table = head_shapes(config), stored_as_theirs(config, head)
    stored = {
        ours: dataclasses.replace(table[ours], name=_PREFIX + table[ours].name)
        for part in filter(None, (LORA, POOLER, head))
        for ours in heads.get(part, ())
    }
    # transformers has no BiLSTM.
    bilstm = heads.get(BILSTM, {})
    return stored | {ours: Stored(ours, bilstm[ours]) for ours in bilstm}


def read(
    folder: pathlib.Path, base: Checkpoint, ignore: str = ""
) -> Checkpoint:
    """Reads an adapter as its base with low-rank matrices.

    Raises:
      UserError: the files are damaged, unsupported or do not fit the base, or
        the base has changed.
    """
    path = folder / CONFIG_FILE
    values = read_json_object(path)
    initial_factors = _check(values, path)
    # Adapters of other programs have no digest.
    if values.get(_DIGEST) is not None and values[_DIGEST] != digest(base):
        raise UserError(
            f"{folder}: {base.source} is not the model that this adapter was "
            "trained on, or has changed since; put that one there, or name "
            f"where it lies as {_BASE} in {CONFIG_FILE}."
        )
    found = open_arrays(folder / WEIGHTS_FILE)
    rank, alpha = values.get("r"), values.get("lora_alpha")
    if values.get("use_rslora") and isinstance(rank, int) and rank > 0:
        # Kalajdzievski 2023: the scale is alpha / sqrt(r).
        alpha = check_kind("lora_alpha", float, alpha, str(path)) * rank**0.5
    fields = base.config.to_dict() | {
        "lora_rank": rank,
        "lora_alpha": alpha,
        "lora_on": _lora_on(base.config, values, path),
    }
    if any(name.startswith("bert/bilstm/") for name in found):
        fields["bilstm"] = True
    config = BertConfig.from_dict(fields, str(path))
    head = _TASKS.get(str(values.get("task_type")))
    if values.get("auto_mapping") == _choice(base.config):
        head = MULTIPLE_CHOICE
    # Arrays of the adapter take precedence over the base's.
    shapes = dict(found.shapes)
    table = stored_as_ours(config)
    for ours, stored in _stored(config, head).items():
        if stored.name in found or ours in head_shapes(config)[LORA]:
            table[ours] = stored
    base_shapes = shapes_of_arrays(base.arrays)
    for ours in (*encoder_shapes(config), *head_shapes(config).get(POOLER, ())):
        if ours in base_shapes and table[ours].name == ours:
            shapes[ours] = base_shapes[ours]

    def array(name: str) -> np.ndarray:
        return found[name] if name in found else base.arrays[name]

    arrays, left_out = read_stored(
        config, table, LazyArrays(shapes, array), (), str(folder), ignore
    )
    checkpoint = dataclasses.replace(
        base,
        config=config,
        arrays=arrays,
        left_out=left_out,
        lora_dropout=check_kind(
            "lora_dropout", float, values.get("lora_dropout", 0.0), str(path)
        ),
        # Those of the base belong to another head.
        **read_labels(folder),
    )
    if initial_factors is None:
        return checkpoint
    return low_rank.subtract_initial(checkpoint, initial_factors)


def _check(
    values: Mapping[str, Any], path: pathlib.Path
) -> low_rank.Factors | None:
    """Refuses an adapter with unsupported computations.

    Returns:
      The function from a kernel to the initial matrices that peft subtracts
      from the base; None if the base is unchanged.
    """
    for key, only in _FIXED.items():
        if values.get(key, only) != only:
            raise UserError(
                f"{path}: {key} is {values[key]!r}; {only!r} can be read."
            )
    for key in sorted(values.keys() - _FIXED.keys() - _READ - _WITHOUT_EFFECT):
        value = values[key]
        # 0 may be the number of a layer.
        if value is not False and value not in (None, "", [], {}):
            raise UserError(
                f"{path}: {key} is {excerpt(values[key])}, which changes what "
                "an adapter computes and cannot be read; merge it with peft "
                "(merge_and_unload) and read the whole model."
            )
    init = values.get("init_lora_weights")
    if isinstance(init, str) and init in _SUBTRACTED:
        return _SUBTRACTED[init]
    if init not in _BASE_UNCHANGED:
        raise UserError(
            f"{path}: init_lora_weights is {excerpt(init)}, with which peft "
            "changes the base model in a way that cannot be repeated; "
            "merge it with peft (merge_and_unload) and read the whole model."
        )
    return None


def _choice(config: BertConfig) -> dict[str, str]:
    """Returns the auto_mapping of multiple choice."""
    classes = names_of(config).hugging_face.classes
    (name,) = (n for n, heads in classes.items() if heads == (MULTIPLE_CHOICE,))
    kind = config.model_type
    library = f"transformers.models.{kind}.modeling_{kind}"
    return {"base_model_class": name, "parent_library": library}


def _lora_on(
    config: BertConfig, values: Mapping[str, Any], path: pathlib.Path
) -> str:
    given = values.get("target_modules")
    all_targets = names_of(config).hugging_face.targets
    for lora_on, targets in all_targets.items():
        if isinstance(given, list) and sorted(given) == sorted(targets):
            return lora_on
    known = " or ".join(map(json.dumps, all_targets.values()))
    raise UserError(
        f"{path}: target_modules is {json.dumps(given)}; {known} can be read."
    )


def write(
    folder: pathlib.Path, checkpoint: Checkpoint, base: Checkpoint
) -> None:
    """Writes the low-rank matrices and fully trained parts of a model."""
    config = checkpoint.config
    (head,) = (head for head in TASK_HEADS if head in checkpoint.heads)
    heads, table = head_shapes(config), _stored(config, head)
    whole = [
        head,
        *({POOLER} & heads.keys() if head in HEADS_ON_POOLER else ()),
    ]
    names = names_of(config)
    parts = [LORA, *whole, *([BILSTM] if config.bilstm else [])]
    arrays = {n: checkpoint.arrays[n] for part in parts for n in heads[part]}
    write_arrays(
        folder / WEIGHTS_FILE, write_stored(arrays, table), {"format": "pt"}
    )
    modules = [
        table[next(iter(heads[part]))]
        .name.removeprefix(_PREFIX)
        .removeprefix(names.hugging_face.prefix)
        .partition(".")[0]
        for part in whole
    ]
    task = {head: name for name, head in _TASKS.items()}.get(head)
    values = {
        "peft_type": "LORA",
        "task_type": task,
        "auto_mapping": None if task else _choice(config),
        **_base_keys(base.source),
        _DIGEST: digest(base),
        "r": config.lora_rank,
        "lora_alpha": config.lora_alpha,
        "lora_dropout": checkpoint.lora_dropout,
        "target_modules": list(names.hugging_face.targets[config.lora_on]),
        "modules_to_save": list(dict.fromkeys(modules)),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    write_text(folder / CONFIG_FILE, json.dumps(values, indent=2) + "\n")
    write_labels(folder, checkpoint.labels, checkpoint.problem_type)
