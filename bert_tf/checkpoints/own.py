"""Reads and writes our own model folders.

bert_config.json         the architecture
bert_model.safetensors   float32 arrays by name
tokenizer_config.json    the tokenizer, with other files of its kind
labels.json              names of the labels of a fine-tuned head, and the
                         problem_type of a classifier unless single-label
"""

import pathlib

from bert_tf.checkpoints.array_file import open_arrays, write_arrays
from bert_tf.checkpoints.checkpoint import Checkpoint, read_labels, write_labels
from bert_tf.checkpoints.recognition import OWN_CONFIG, OWN_WEIGHTS
from bert_tf.checkpoints.stored import read_stored, stored_as_ours
from bert_tf.config import BertConfig

CONFIG_FILE, WEIGHTS_FILE = OWN_CONFIG, OWN_WEIGHTS


def read(folder: pathlib.Path, ignore: str = "") -> Checkpoint:
    """Reads the configuration, the weights and the labels."""
    config = BertConfig.from_json(folder / CONFIG_FILE)
    path = folder / WEIGHTS_FILE
    arrays, left_out = read_stored(
        config, stored_as_ours(config), open_arrays(path), (), str(path), ignore
    )
    return Checkpoint(config, arrays, left_out=left_out, **read_labels(folder))


def write(folder: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes the configuration, the weights and the labels."""
    write_arrays(folder / WEIGHTS_FILE, checkpoint.arrays)
    checkpoint.config.save(folder / CONFIG_FILE)
    write_labels(folder, checkpoint.labels, checkpoint.problem_type)
