"""A checkpoint as data: a configuration and named arrays, in a folder.

Array names and shapes are those of Google's TF1 checkpoints
(`bert/embeddings/word_embeddings`, `cls/predictions/output_bias`, ...); Dense
kernels are [in, out]. Nothing here knows the model: `BertEncoder.to_arrays`
and `load_arrays` stand on the other side.

Our folder holds
  bert_config.json         the architecture
  bert_model.safetensors   float32 arrays by name
  vocab.txt                one WordPiece token a line
  tokenizer_config.json    {"do_lower_case": true or false}
"""

import dataclasses
import errno
import os
import pathlib
from collections.abc import Mapping

import numpy as np
import safetensors
import safetensors.numpy

from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.files import written_beside

CONFIG_FILE = "bert_config.json"
WEIGHTS_FILE = "bert_model.safetensors"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A configuration and the float32 arrays that belong to it."""

    config: BertConfig
    arrays: Mapping[str, np.ndarray]


def read_arrays(path: str | pathlib.Path) -> dict[str, np.ndarray]:
    """Reads every array of a safetensors file.

    Raises:
      UserError: the file is missing, torn or no safetensors file.
    """
    try:
        return safetensors.numpy.load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file.") from None
    except safetensors.SafetensorError as error:
        raise UserError(f"{path}: damaged weights file ({error}).") from None


def write_arrays(
    path: str | pathlib.Path, arrays: Mapping[str, np.ndarray]
) -> None:
    """Writes arrays to a safetensors file, whole or not at all."""
    # ascontiguousarray would turn a scalar into a vector.
    contiguous = {k: np.asarray(v, order="C") for k, v in arrays.items()}
    with written_beside(path) as beside:
        try:
            safetensors.numpy.save_file(contiguous, beside)
            # The library makes the file readable to its owner alone.
            beside.chmod(0o644)
        except safetensors.SafetensorError as error:
            full = "No space left" in str(error)
            code = errno.ENOSPC if full else errno.EIO
            raise OSError(code, os.strerror(code), str(path)) from error


def load_checkpoint(folder: str | pathlib.Path) -> Checkpoint:
    """Reads the configuration and the weights of a model folder.

    Raises:
      UserError: the folder is missing or is no model folder.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such model folder.")
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / name).exists():
            raise UserError(
                f"{folder}: not a model folder, it holds no {name}."
            )
    return Checkpoint(
        BertConfig.from_json(folder / CONFIG_FILE),
        read_arrays(folder / WEIGHTS_FILE),
    )


def save_checkpoint(folder: str | pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes the configuration and the weights into a model folder."""
    folder = pathlib.Path(folder)
    write_arrays(folder / WEIGHTS_FILE, checkpoint.arrays)
    checkpoint.config.save(folder / CONFIG_FILE)
