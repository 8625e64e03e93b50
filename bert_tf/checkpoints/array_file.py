"""Safetensors files: reading and writing named arrays."""

import pathlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from bert_tf.errors import UserError, writing_failed
from bert_tf.files import written_beside
from bert_tf.foreign_files import demand_file, refuse_damage
from bert_tf.lazy_arrays import LazyArrays

# Element types of the format that NumPy has; float8 and float4 are missing.
_READABLE = frozenset(
    "F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL".split()
)


@contextmanager
def _opened(path: str | pathlib.Path) -> Iterator[Any]:
    demand_file(path)
    with (
        refuse_damage(path, safetensors.SafetensorError, OSError),
        safetensors.safe_open(path, "numpy") as file,
    ):
        yield file


def open_arrays(path: str | pathlib.Path) -> LazyArrays:
    """Opens a safetensors file; arrays are read at each access.

    Raises:
      UserError: the file is missing, damaged or no safetensors file, or has
        elements of a type that NumPy lacks.
    """
    shapes, kinds = {}, set()
    with _opened(path) as file:
        for name in file.keys():  # noqa: SIM118, it is no mapping
            array = file.get_slice(name)
            shapes[name] = tuple(array.get_shape())
            kind = array.get_dtype()
            if kind not in _READABLE:
                raise UserError(
                    f"{path}: {name} is of type {kind}; floating-point "
                    "numbers of 16, 32 or 64 bits can be read."
                )
            kinds.add(kind)
    if "BF16" in kinds:
        # Adds the type to NumPy.
        import ml_dtypes  # noqa: F401

    def read(name: str) -> np.ndarray:
        # Opened again each time, so that mapped memory is released.
        with _opened(path) as file:
            return file.get_tensor(name)

    return LazyArrays(shapes, read)


def read_arrays(path: str | pathlib.Path) -> dict[str, np.ndarray]:
    """Reads all arrays of a safetensors file; raises as `open_arrays`."""
    return dict(open_arrays(path))


def write_arrays(
    path: str | pathlib.Path,
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes arrays to a safetensors file, whole or not at all.

    All arrays are held in memory once.
    """
    # ascontiguousarray would turn a scalar into a vector.
    contiguous = {k: np.asarray(v, order="C") for k, v in arrays.items()}
    with written_beside(path) as beside:
        try:
            safetensors.numpy.save_file(
                contiguous, beside, dict(metadata) if metadata else None
            )
            # The library makes the file readable only to its owner.
            beside.chmod(0o644)
        except safetensors.SafetensorError as error:
            raise writing_failed(error, path) from None
