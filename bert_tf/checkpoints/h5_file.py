"""Keras' weights files (HDF5): reading named arrays."""

import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.foreign_files import demand_file, refuse_damage
from bert_tf.lazy_arrays import LazyArrays

# Limit of the compression ratio; trained weights hardly compress.
_MAX_COMPRESSION = 100


@contextmanager
def _opened(path: pathlib.Path) -> Iterator[Any]:
    import h5py

    demand_file(path)
    with (
        refuse_damage(path, OSError, RuntimeError, KeyError, ValueError),
        h5py.File(path, "r") as file,
    ):
        yield file


def open_h5_arrays(path: pathlib.Path) -> LazyArrays:
    """Opens a .weights.h5; arrays are read at each access.

    Soft and external links are not followed.

    Raises:
      UserError: the file is missing or damaged, stores numbers in another file,
        or unpacks to far more bytes than it has.
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
                f"{path}: {name} keeps its numbers in another file, which is "
                "not opened."
            )
        shapes[name] = tuple(found.shape or ())
        unpacked += found.nbytes

    with _opened(path) as file:
        # Follows only hard links, to each object once.
        file.visititems(collect)
    size = path.stat().st_size
    if unpacked > _MAX_COMPRESSION * size:
        raise UserError(
            f"{path}: unpacks from {size:,} bytes to {unpacked:,}, which no "
            "weights do; the file is damaged or made to fill the memory."
        )

    def read(name: str) -> np.ndarray:
        # Opened again each time, so that the library caches nothing.
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
