"""Reading the weights files of a Hugging Face folder as named arrays.

model.safetensors, pytorch_model.bin    PyTorch's classes; the first also
                                        TensorFlow's
tf_model.h5                             TensorFlow's classes
flax_model.msgpack                      Flax' classes
any other .h5 or a tf.train.Checkpoint  Keras' save_weights of TensorFlow's
                                        classes

All but the last may be several files with an index. Arrays keep their names in
the files; `pytorch_names.py` converts them to PyTorch's.
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
from bert_tf.errors import UserError, first_few, one_line
from bert_tf.foreign_files import demand_file, file_beside
from bert_tf.lazy_arrays import LazyArrays
from bert_tf.recipe import read_json_object
from bert_tf.sources import MODULES_FILE

WEIGHTS_FILE, _TORCH_FILE, _TENSORFLOW_FILE, _FLAX_FILE = HUGGING_FACE_WEIGHTS
# The first version whose `weights_only` executes no code.
_SAFE_TORCH = (2, 6)
CONFIG_FILE = HUGGING_FACE_CONFIG


def _to_safetensors(folder: pathlib.Path) -> str:
    """Returns how to convert a folder with a pytorch_model.bin."""
    # The modules of sentence-transformers have subfolders.
    for whole in (folder, folder.parent):
        if (whole / MODULES_FILE).is_file():
            return (
                "sentence-transformers is installed: sentence_transformers"
                f'.SentenceTransformer("{whole}").save("converted").'
            )
    named = read_json_object(folder / CONFIG_FILE, missing_ok=True)
    classes = named.get("architectures")
    name = classes[0] if isinstance(classes, list) and classes else None
    shown = str(name).replace("LMHeadModel", "ForCausalLM")
    found = re.fullmatch(r"[A-Za-z0-9]+?(For[A-Z]\w{,40}|Model)", shown)
    kind = found[1].removeprefix("Model") if found else "ForPreTraining"
    known = f"the {name} of its config.json" if found else "a pre-trained model"
    return (
        f"transformers is installed: transformers.AutoModel{kind}"
        f'.from_pretrained("{folder}").save_pretrained("converted") keeps '
        f"{known}; put its {WEIGHTS_FILE} into the folder."
    )


def open_torch(path: pathlib.Path) -> LazyArrays:
    """Opens a pytorch_model.bin; floating-point arrays become float32.

    Raises:
      UserError: torch is missing or too old, or the file is missing, damaged or
        holds more than named tensors.
    """
    demand_file(path)
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
            # About unusual contents, which it then refuses.
            warnings.simplefilter("ignore")
            tensors = torch.load(
                path,
                map_location="cpu",
                weights_only=True,
                # Only archives can be mapped, which PyTorch writes since 1.6.
                mmap=zipfile.is_zipfile(path),
            )
    # A damaged file raises any of a dozen types.
    except Exception as error:
        raise UserError(
            f"{path}: torch refuses it; it is damaged or holds more than "
            f"named tensors ({_first_sentence(error)})."
        ) from None
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor)
        for name, tensor in tensors.items()
    ):
        raise UserError(f"{path}: does not hold named tensors.")

    def read(name: str) -> np.ndarray:
        tensor: Any = tensors[name].detach()
        try:
            if tensor.is_floating_point():
                tensor = tensor.to(torch.float32)
            return tensor.numpy()
        # Raised by sparse, quantised and empty ("meta") tensors.
        except (TypeError, RuntimeError, NotImplementedError) as error:
            raise UserError(
                f"{path}: {name} is no plain tensor ({_first_sentence(error)})."
            ) from None

    return LazyArrays(
        {name: tuple(tensor.shape) for name, tensor in tensors.items()}, read
    )


def _first_sentence(error: Exception) -> str:
    return one_line(error).split(". ")[0]


# In transformers' order; each may also be several files with an index.
_OPENERS: dict[str, Callable[[pathlib.Path], LazyArrays]] = {
    WEIGHTS_FILE: open_arrays,
    _TORCH_FILE: open_torch,
    _TENSORFLOW_FILE: open_h5_arrays,
    _FLAX_FILE: open_flax,
}


def open_weights(folder: pathlib.Path) -> LazyArrays:
    """Opens the weights of a folder, safetensors first."""
    for name, opener in _OPENERS.items():
        index = folder / f"{name}.index.json"
        if (folder / name).exists():
            return opener(folder / name)
        if index.exists():
            return _open_shards(index, opener)
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


def _open_shards(
    index: pathlib.Path, opener: Callable[[pathlib.Path], LazyArrays]
) -> LazyArrays:
    """Opens the files that an index names as one mapping."""
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

    def stored_name(array: str) -> str:
        # Names in TensorFlow's index begin with the class.
        is_tensorflow = opener is open_h5_arrays
        return array.partition("/")[2] or array if is_tensorflow else array

    shards = {}
    for name in sorted(set(file_of.values())):
        shards[name] = opener(file_beside(index, name))
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
