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
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.google_config import (
    CONFIG_FILE,
    GOOGLE_EPSILON,
    check_google_can_say,
    read_google_config,
    write_google_config,
)
from bert_tf.checkpoints.labels import read_labels, write_labels
from bert_tf.checkpoints.stored import read_stored, stored_as_ours
from bert_tf.checkpoints.tensorflow_reader import (
    find_prefix,
    index_files,
    open_checkpoint,
    remains,
)
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.files import partial_path, written_beside

PREFIX = "bert_model.ckpt"

# What training leaves beside the weights: the slots of Google's own optimizer
# and of tf.compat.v1.train.AdamOptimizer, and the step.
_IGNORED = (
    r"global_step",
    r".+/adam_[mv]",
    r".+/Adam(_1)?",
    r"(.+/)?beta[12]_power",
)


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

    Raises:
      UserError: the model is causal.
    """
    check_google_can_say(checkpoint.config)
    _write_variables(folder, checkpoint.arrays)
    write_google_config(folder / CONFIG_FILE, checkpoint.config)
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
    if config.layer_norm_eps != GOOGLE_EPSILON:
        lines.append(
            f"layer_norm_eps is {config.layer_norm_eps}, which "
            "google-research/bert does not read: it computes with "
            f"{GOOGLE_EPSILON}."
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
