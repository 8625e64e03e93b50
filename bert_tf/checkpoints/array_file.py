"""Safetensors files: named arrays, read whole or one by one."""

import pathlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from bert_tf.errors import UserError, writing_failed
from bert_tf.files import written_beside
from bert_tf.foreign_files import demand_regular
from bert_tf.lazy_arrays import LazyArrays

# The file format has more element types (float8, float4), which NumPy lacks.
_READABLE = frozenset(
    "F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL".split()
)
_LONGEST_REASON = 150


@contextmanager
def _opened(path: str | pathlib.Path) -> Iterator[Any]:
    """The file, with the library's checks of its header as one line."""
    demand_regular(path)
    try:
        with safetensors.safe_open(path, "numpy") as file:
            yield file
    except FileNotFoundError:
        raise UserError(f"{path}: no such file.") from None
    except safetensors.SafetensorError as error:
        # It repeats what the file says, which may hold anything.
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise UserError(f"{path}: damaged weights file ({reason}).") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error}).") from None


def open_arrays(path: str | pathlib.Path) -> LazyArrays:
    """Opens a safetensors file whose arrays are read when asked for.

    Raises:
      UserError: the file is missing, torn or no safetensors file, or holds
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
        # A package of Keras' that teaches NumPy the type.
        import ml_dtypes  # noqa: F401

    def read(name: str) -> np.ndarray:
        # Opened again each time: what was mapped goes back to the system.
        with _opened(path) as file:
            return file.get_tensor(name)

    return LazyArrays(shapes, read)


def read_arrays(path: str | pathlib.Path) -> dict[str, np.ndarray]:
    """Reads every array of a safetensors file.

    Raises:
      UserError: the file is missing, torn or no safetensors file.
    """
    return dict(open_arrays(path))


def write_arrays(
    path: str | pathlib.Path,
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes arrays to a safetensors file, whole or not at all.

    Lazy arrays are all in memory meanwhile, each once.
    """
    # ascontiguousarray would turn a scalar into a vector.
    contiguous = {k: np.asarray(v, order="C") for k, v in arrays.items()}
    with written_beside(path) as beside:
        try:
            safetensors.numpy.save_file(
                contiguous, beside, dict(metadata) if metadata else None
            )
            # The library makes the file readable to its owner alone.
            beside.chmod(0o644)
        except safetensors.SafetensorError as error:
            raise writing_failed(error, path) from None
