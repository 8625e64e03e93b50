"""Folders of google-research/bert, TensorFlow 1.

bert_config.json                        the architecture, Google's keys
bert_model.ckpt.index, .data-*-of-*     variables by name; model.ckpt-STEP.*
                                        where a run left them
checkpoint                              names the newest of several
labels.json                             ours: names of the labels of a head

The names and shapes of the variables are those that we use throughout, see
`layout.py`.
"""

import errno
import json
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint, read_labels, write_labels
from bert_tf.checkpoints.stored import read_stored, stored_as_ours
from bert_tf.checkpoints.tensorflow_reader import (
    find_prefix,
    index_files,
    open_checkpoint,
    remains,
)
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.files import partial_path, write_text, written_beside
from bert_tf.recipe import read_json_object

CONFIG_FILE = "bert_config.json"
# The keys that google-research/bert computes by, and the epsilon, which it
# does not know: `write` adds it where it is not 1e-12.
_KEYS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
)
# Keys of the released files that no code of Google's reads.
_UNREAD_KEYS = (
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "backward_compatible",
)
# Those that would mean another computation if they had another value.
_CONSTANT = {
    "directionality": "bidi",
    "pooler_type": "first_token_transform",
}
# Where the key is absent, modeling.py takes these; ours differ.
_DEFAULTS = {"type_vocab_size": 16}
# The epsilon of its layer normalisation, which has no key.
_EPSILON = 1e-12
PREFIX = "bert_model.ckpt"
# What training leaves beside the weights: the slots of Google's own optimizer
# and of tf.compat.v1.train.AdamOptimizer, and the step.
_IGNORED = (
    r"global_step",
    r".+/adam_[mv]",
    r".+/Adam(_1)?",
    r"(.+/)?beta[12]_power",
)


def read_google_config(path: pathlib.Path) -> BertConfig:
    """Reads the architecture in Google's keys."""
    if not path.exists():
        raise UserError(
            f"{path.parent}: has no {path.name}; put the one that the "
            "weights were trained with beside them."
        )
    values = read_json_object(path)
    for key, only in _CONSTANT.items():
        if (value := values.pop(key, only)) != only:
            raise UserError(f"{path}: {key} is {value!r}; a BERT has {only!r}.")
    for key in _UNREAD_KEYS:
        values.pop(key, None)
    width = values.pop("embedding_size", None)
    if unknown := [key for key in values if key not in _KEYS]:
        raise UserError(
            f"{path}: unknown key {', '.join(unknown)}; it takes "
            f"{', '.join(_KEYS)}."
        )
    if isinstance(values.get("hidden_act"), str):
        values["hidden_act"] = values["hidden_act"].lower()
    config = BertConfig.from_dict({**_DEFAULTS, **values}, str(path))
    if width not in (None, config.hidden_size):
        raise UserError(
            f"{path}: embedding_size is {width} and hidden_size "
            f"{config.hidden_size}; a BERT has one width."
        )
    return config


def found_in(folder: pathlib.Path) -> bool:
    """Whether a folder holds a checkpoint with plain names, or its remains."""
    return bool(index_files(folder, False)) or remains(folder) is not None


def read(folder: pathlib.Path) -> Checkpoint:
    """Reads the configuration, the weights and the labels."""
    if fault := remains(folder):
        raise UserError(fault)
    prefix = find_prefix(folder, object_based=False)
    config = read_google_config(folder / CONFIG_FILE)
    arrays, left_out = read_stored(
        config,
        stored_as_ours(config),
        open_checkpoint(prefix),
        _IGNORED,
        str(prefix),
    )
    return Checkpoint(
        config, arrays, labels=read_labels(folder), left_out=left_out
    )


def write(folder: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes the configuration, the weights and the labels.

    "gelu_erf" is written as it is: Google's code stops at it, where any name
    that it knows would make it compute something else.

    Raises:
      UserError: the model is causal.
    """
    config = checkpoint.config
    if type(config) is not BertConfig:
        raise UserError(
            f"model_type is {config.model_type}: google-research/bert has no "
            "names for its arrays; write the bert_tf or hugging_face layout."
        )
    if config.causal:
        raise UserError(
            "causal is true: google-research/bert computes no causal model; "
            "write the bert_tf layout instead."
        )
    _write_variables(folder, checkpoint.arrays)
    # The masked LM head's own forms are not among the keys: save_checkpoint
    # has refused a head that computes otherwise than the encoder.
    values = {key: getattr(config, key) for key in _KEYS}
    if config.layer_norm_eps == _EPSILON:
        del values["layer_norm_eps"]
    write_text(folder / CONFIG_FILE, json.dumps(values, indent=2) + "\n")
    write_labels(folder, checkpoint.labels)


def notices(config: BertConfig) -> list[str]:
    """What google-research/bert does otherwise than the model, a line each."""
    lines = []
    if config.hidden_act == "gelu_erf":
        lines.append(
            "hidden_act is gelu_erf, which google-research/bert refuses: its "
            'gelu is the tanh form; with "gelu" in bert_config.json it runs, '
            "and differs by about 1e-3."
        )
    if config.layer_norm_eps != _EPSILON:
        lines.append(
            f"layer_norm_eps is {config.layer_norm_eps}, which "
            "google-research/bert does not read: it computes with "
            f"{_EPSILON}."
        )
    return lines


def _write_variables(
    folder: pathlib.Path, arrays: Mapping[str, np.ndarray]
) -> None:
    import tensorflow as tf

    names = sorted(arrays)
    with (
        # The index is renamed last: without it there is no checkpoint.
        written_beside(folder / f"{PREFIX}.index") as index,
        written_beside(folder / f"{PREFIX}.data-00000-of-00001") as data,
        partial_path(folder / PREFIX) as beside,
        tf.device("CPU:0"),
    ):
        beside.mkdir()
        prefix = beside / PREFIX
        # TensorFlow writes them all at once, so it holds one copy of the
        # weights. A constant alone would keep the NumPy array as well.
        tensors = [
            tf.identity(tf.constant(arrays[name], tf.float32)) for name in names
        ]
        try:
            tf.raw_ops.SaveV2(
                prefix=str(prefix),
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=tensors,
            )
        except tf.errors.OpError as error:
            full = isinstance(error, tf.errors.ResourceExhaustedError)
            code = errno.ENOSPC if full else errno.EIO
            raise OSError(code, os.strerror(code), str(folder)) from error
        os.replace(f"{prefix}.index", index)
        os.replace(f"{prefix}.data-00000-of-00001", data)
