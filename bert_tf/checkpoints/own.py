"""Our own model folders.

bert_config.json         the architecture
bert_model.safetensors   float32 arrays by name
vocab.txt                one WordPiece token a line
tokenizer_config.json    {"do_lower_case": true or false}
labels.json              names of the labels of a fine-tuned head
"""

import pathlib

from bert_tf.checkpoints.array_file import open_arrays, write_arrays
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.labels import read_labels, write_labels
from bert_tf.checkpoints.layout import encoder_shapes, head_shapes
from bert_tf.checkpoints.stored import Stored, read_stored
from bert_tf.config import BertConfig

CONFIG_FILE = "bert_config.json"
WEIGHTS_FILE = "bert_model.safetensors"


def found_in(folder: pathlib.Path) -> bool:
    """Whether a folder holds weights of ours."""
    return (folder / WEIGHTS_FILE).exists()


def table(config: BertConfig) -> dict[str, Stored]:
    """Every array that may be there, stored as it is."""
    shapes = encoder_shapes(config)
    for arrays in head_shapes(config).values():
        shapes |= arrays
    return {name: Stored(name, shape) for name, shape in shapes.items()}


def read(folder: pathlib.Path) -> Checkpoint:
    """Reads the configuration, the weights and the labels."""
    config = BertConfig.from_json(folder / CONFIG_FILE)
    path = folder / WEIGHTS_FILE
    arrays, left_out = read_stored(
        config, table(config), open_arrays(path), (), str(path)
    )
    return Checkpoint(
        config, arrays, labels=read_labels(folder), left_out=left_out
    )


def write(folder: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes the configuration, the weights and the labels."""
    write_arrays(folder / WEIGHTS_FILE, checkpoint.arrays)
    checkpoint.config.save(folder / CONFIG_FILE)
    write_labels(folder, checkpoint.labels)
