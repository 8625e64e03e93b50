"""The weights files of a Hugging Face folder, one or many, as named arrays.

model.safetensors, pytorch_model.bin    of PyTorch's classes; the first of
                                        TensorFlow's as well
tf_model.h5                             of TensorFlow's classes
flax_model.msgpack                      of Flax' classes
any other .h5 or a tf.train.Checkpoint  what Keras' save_weights wrote of
                                        TensorFlow's classes, beside the
                                        config.json of the model

All but the last may be several files with an index. The arrays have the names
that they have in the files; `pytorch_names.py` gives them those of PyTorch.
"""

import pathlib
import re
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from bert_tf.checkpoints.array_file import open_arrays
from bert_tf.checkpoints.flax_file import open_flax
from bert_tf.checkpoints.h5_file import open_h5_arrays
from bert_tf.checkpoints.recognition import (
    HUGGING_FACE_CONFIG,
    HUGGING_FACE_WEIGHTS,
    find_prefix,
    keras_weights,
)
from bert_tf.checkpoints.tensorflow_reader import open_by_full_name
from bert_tf.errors import UserError, first_few
from bert_tf.foreign_files import demand_regular
from bert_tf.lazy_arrays import LazyArrays
from bert_tf.recipe import read_json_object
from bert_tf.sources import MODULES_FILE

_LONGEST_REASON = 150
WEIGHTS_FILE, _TORCH_FILE, _TENSORFLOW_FILE, _FLAX_FILE = HUGGING_FACE_WEIGHTS
# From here on `weights_only` keeps its promise.
_SAFE_TORCH = (2, 6)
CONFIG_FILE = HUGGING_FACE_CONFIG


def _to_safetensors(folder: pathlib.Path) -> str:
    """Says what writes a folder with a pytorch_model.bin as safetensors."""
    # Its modules may lie in folders of their own, and all belong to the model.
    for whole in (folder, folder.parent):
        if (whole / MODULES_FILE).is_file():
            return (
                "sentence-transformers is installed: sentence_transformers"
                f'.SentenceTransformer("{whole}").save("converted").'
            )
    return (
        "transformers is installed: transformers.BertForPreTraining"
        f'.from_pretrained("{folder}").save_pretrained("converted"), '
        "or the class that its config.json names."
    )


def open_torch(path: pathlib.Path) -> LazyArrays:
    """Opens a pytorch_model.bin; half precision comes out as float32."""
    demand_regular(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file.")
    try:
        import torch
    except ImportError:
        raise UserError(
            f"{path}: reading it needs torch, which is not installed; run "
            "`pip install torch`, or convert the folder to safetensors where "
            + _to_safetensors(path.parent)
        ) from None
    version = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
    if version < _SAFE_TORCH:
        raise UserError(
            f"{path}: torch {torch.__version__} may run code that such a file "
            "holds (CVE-2025-32434); update it with `pip install 'torch>=2.6'`."
        )
    try:
        with warnings.catch_warnings():
            # Of what it takes to be unusual in a file, before it refuses it.
            warnings.simplefilter("ignore")
            tensors = torch.load(
                path,
                map_location="cpu",
                weights_only=True,
                # Files from before PyTorch 1.6 are no archives, and only
                # archives can be mapped.
                mmap=zipfile.is_zipfile(path),
            )
    # What a damaged file raises is any of a dozen kinds.
    except Exception as error:
        raise UserError(
            f"{path}: torch refuses it; it is damaged or holds more than "
            f"named tensors ({_first_sentence(error)})."
        ) from None
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor)
        for name, tensor in tensors.items()
    ):
        raise UserError(f"{path}: holds something else than named tensors.")

    def read(name: str) -> np.ndarray:
        tensor: Any = tensors[name].detach()
        try:
            if tensor.is_floating_point():
                tensor = tensor.to(torch.float32)
            return tensor.numpy()
        # What a sparse, quantised or empty ("meta") tensor raises.
        except (TypeError, RuntimeError, NotImplementedError) as error:
            raise UserError(
                f"{path}: {name} is no plain tensor ({_first_sentence(error)})."
            ) from None

    return LazyArrays(
        {name: tuple(tensor.shape) for name, tensor in tensors.items()}, read
    )


def _first_sentence(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text.split(". ")[0][:_LONGEST_REASON]


# In the order in which transformers looks for them.
_OPENERS: dict[str, Callable[[pathlib.Path], LazyArrays]] = {
    WEIGHTS_FILE: open_arrays,
    f"{WEIGHTS_FILE}.index.json": lambda path: _open_shards(path, open_arrays),
    _TORCH_FILE: open_torch,
    f"{_TORCH_FILE}.index.json": lambda path: _open_shards(path, open_torch),
    _TENSORFLOW_FILE: open_h5_arrays,
    f"{_TENSORFLOW_FILE}.index.json": lambda path: _open_shards(
        path, open_h5_arrays, _without_class
    ),
    _FLAX_FILE: open_flax,
    f"{_FLAX_FILE}.index.json": lambda path: _open_shards(path, open_flax),
}


def open_weights(folder: pathlib.Path) -> LazyArrays:
    """Opens the weights of a folder; safetensors where there are several."""
    for name, opener in _OPENERS.items():
        if (folder / name).exists():
            return opener(folder / name)
    files = keras_weights(folder)
    if not files:
        raise UserError(f"{folder}: holds no {WEIGHTS_FILE}.")
    if files[0].suffix == ".index":
        return open_by_full_name(find_prefix(folder, object_based=True))
    if len(files) > 1:
        raise UserError(
            f"{folder}: holds {len(files)} files of weights "
            f"({first_few([path.name for path in files])}); leave one of them."
        )
    return open_h5_arrays(files[0])


def _without_class(name: str) -> str:
    """The name in a shard of one in tf_model.h5.index.json."""
    return name.partition("/")[2] or name


def _open_shards(
    index: pathlib.Path,
    opener: Callable[[pathlib.Path], LazyArrays],
    stored_name: Callable[[str], str] = str,
) -> LazyArrays:
    """Opens the files that an index names, as one.

    Args:
      index: the path of the index.
      opener: opens one of its files.
      stored_name: the name in a file of an array that the index lists.
    """
    file_of = read_json_object(index).get("weight_map")
    if (
        not isinstance(file_of, dict)
        or not file_of
        or not all(isinstance(name, str) for name in file_of.values())
    ):
        raise UserError(
            f"{index}: weight_map must be an object that gives a file name "
            "for each array."
        )
    shards = {}
    for name in sorted(set(file_of.values())):
        shards[name] = opener(_shard(index, name))
        listed = {stored_name(a) for a, file in file_of.items() if file == name}
        if absent := sorted(listed - set(shards[name])):
            raise UserError(
                f"{index}: lists {first_few(absent)}, not in {name}."
            )
        if unlisted := sorted(set(shards[name]) - listed):
            raise UserError(
                f"{index}: does not list {first_few(unlisted)}, in {name}."
            )
    shapes = {
        array: shards[file].shapes[stored_name(array)]
        for array, file in file_of.items()
    }

    def read(array: str) -> np.ndarray:
        return shards[file_of[array]][stored_name(array)]

    return LazyArrays(shapes, read)


def _shard(index: pathlib.Path, name: str) -> pathlib.Path:
    """The path of a file that an index names, which lies beside it."""
    folder = index.parent
    if name in ("", ".", "..") or set(name) & set("/\\\0"):
        raise UserError(
            f"{index}: names the file {name!r}; it takes the plain names of "
            "files beside it."
        )
    path = folder / name
    if not path.is_file():
        raise UserError(f"{index}: names the file {name}, which is missing.")
    here = folder.resolve()
    allowed = [here]
    if here.parent.name == "snapshots":
        # The hub's cache keeps the files of all snapshots there, and links.
        allowed.append(here.parent.parent / "blobs")
    if path.resolve().parent not in allowed:
        raise UserError(
            f"{index}: names the file {name}, a link out of the folder; put "
            "the file itself there."
        )
    return path
