"""PyTorch's weights files, through torch's own restricted reader alone.

Such a file is a pickle, which can run anything; nothing here opens one by
other means than `torch.load(weights_only=True)`.
"""

import pathlib
import warnings
import zipfile
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.lazy_arrays import LazyArrays

_LONGEST_REASON = 150


def open_torch(path: pathlib.Path) -> LazyArrays:
    """Opens a pytorch_model.bin whose arrays are read when asked for.

    Half precision comes out as float32.

    Raises:
      UserError: torch is not installed, or the file is missing, damaged or
        holds more than named tensors.
    """
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
