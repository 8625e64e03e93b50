"""The weights files of a Hugging Face folder, one or many, as named arrays."""

import pathlib
import re
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from bert_tf.checkpoints.array_file import open_arrays
from bert_tf.errors import UserError, first_few
from bert_tf.foreign_files import demand_regular
from bert_tf.lazy_arrays import LazyArrays
from bert_tf.recipe import read_json_object

_LONGEST_REASON = 150
WEIGHTS_FILE = "model.safetensors"
_TORCH_FILE = "pytorch_model.bin"
# From here on `weights_only` keeps its promise.
_SAFE_TORCH = (2, 6)
# Weights of transformers' models in other frameworks, and the argument that
# reads them.
_OTHER_FRAMEWORKS = {
    "tf_model.h5": "from_tf=True",
    "flax_model.msgpack": "from_flax=True",
}


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
            "transformers is installed: transformers.BertForPreTraining"
            f'.from_pretrained("{path.parent}").save_pretrained("converted"), '
            "or the class that its config.json names."
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
}


def holds_weights(folder: pathlib.Path) -> bool:
    """Whether a file in a folder is named as transformers names weights."""
    return any(
        (folder / name).exists() for name in (*_OPENERS, *_OTHER_FRAMEWORKS)
    )


def open_weights(folder: pathlib.Path) -> LazyArrays:
    """Opens the weights of a folder; safetensors where there are several."""
    for name, opener in _OPENERS.items():
        if (folder / name).exists():
            return opener(folder / name)
    for name, argument in _OTHER_FRAMEWORKS.items():
        if (folder / name).exists():
            raise UserError(
                f"{folder / name}: cannot be read, and the folder has no "
                f"{WEIGHTS_FILE}; convert it with transformers 4: "
                f'BertForPreTraining.from_pretrained("{folder}", {argument})'
                '.save_pretrained("converted"), or the class that its '
                "config.json names."
            )
    raise UserError(f"{folder}: holds no {WEIGHTS_FILE}.")


def _open_shards(
    index: pathlib.Path, opener: Callable[[pathlib.Path], LazyArrays]
) -> LazyArrays:
    """Opens the files that an index names, as one."""
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
        listed = {array for array, file in file_of.items() if file == name}
        if absent := sorted(listed - set(shards[name])):
            raise UserError(
                f"{index}: lists {first_few(absent)}, not in {name}."
            )
        if unlisted := sorted(set(shards[name]) - listed):
            raise UserError(
                f"{index}: does not list {first_few(unlisted)}, in {name}."
            )
    shapes = {array: shards[file_of[array]].shapes[array] for array in file_of}

    def read(array: str) -> np.ndarray:
        return shards[file_of[array]][array]

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
