"""Keras' weights files (HDF5): named arrays, read one by one."""

import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.foreign_files import demand_regular
from bert_tf.lazy_arrays import LazyArrays

# Trained weights hardly get smaller when they are compressed.
_MOST_UNPACKED = 100


@contextmanager
def _opened(path: pathlib.Path) -> Iterator[Any]:
    """The file; what the library says of a damaged one becomes one line."""
    import h5py

    demand_regular(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file.")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except UserError:
        raise
    # All of these come from the library where bytes are missing or wrong.
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        reason = str(error).strip("'\"").splitlines()[0]
        raise UserError(f"{path}: damaged weights file ({reason}).") from None


def open_h5_arrays(path: pathlib.Path) -> LazyArrays:
    """Opens a .weights.h5 whose arrays are read when asked for.

    Links to other places and to other files are not followed, and an array
    that keeps its numbers in another file is refused.
    """
    import h5py

    shapes: dict[str, tuple[int, ...]] = {}
    unpacked = 0

    def collect(name: str, found: Any) -> None:
        nonlocal unpacked
        if not isinstance(found, h5py.Dataset):
            return
        if found.external or found.is_virtual:
            raise UserError(
                f"{path}: {name} keeps its numbers in another file; that is "
                "not followed."
            )
        shapes[name] = tuple(found.shape or ())
        unpacked += found.nbytes

    with _opened(path) as file:
        # Goes along hard links alone, and to each object once.
        file.visititems(collect)
    size = path.stat().st_size
    if unpacked > _MOST_UNPACKED * size:
        raise UserError(
            f"{path}: unpacks from {size:,} bytes to {unpacked:,}, which no "
            "weights do; the file is damaged or made to fill the memory."
        )

    def read(name: str) -> np.ndarray:
        # Opened again each time: what was read is not kept in a cache.
        with _opened(path) as file:
            array = np.asarray(file[name][()])
            if array.dtype.kind != "V":
                return array
            # HDF5 has no type for bfloat16.
            kind = file[name].attrs.get("dtype")
            if kind != "bfloat16" or array.dtype.itemsize != 2:
                raise UserError(
                    f"{path}: {name} holds {array.dtype}, no numbers."
                )
            import ml_dtypes

            return array.view(ml_dtypes.bfloat16)

    return LazyArrays(shapes, read)
