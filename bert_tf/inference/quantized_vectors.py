"""Vectors in fewer bytes: a byte or a bit per number, in NumPy."""

from typing import Any

import numpy as np

from bert_tf.config import FLOAT32, INT8, UBINARY, UINT8
from bert_tf.errors import UserError, excerpt

BYTES = (INT8, UINT8)
# What is added to a signed byte to make it unsigned.
_OFFSET = 128


def number_ranges(vectors: np.ndarray, calibration: Any = None) -> np.ndarray:
    """Returns the ranges of the numbers that a byte each will cover.

    Args:
      vectors: float32 [N, D], to be quantized.
      calibration: vectors of the same kind, float [C, D], or an earlier result;
        None takes the vectors themselves.

    Returns:
      The smallest and the largest of each number, float32 [2, D].

    Raises:
      UserError: the calibration has another shape or is a single vector.
    """
    width = vectors.shape[1]
    found = vectors if calibration is None else np.asarray(calibration)
    if found.ndim != 2 or len(found) < 2 or found.shape[1] != width:
        given = f"is {excerpt(calibration)}"
        if calibration is None:
            given = "is missing"
        raise UserError(
            f"`calibration` {given}; give two vectors or more of {width} "
            "numbers, whose ranges the bytes will cover."
        )
    ranges = np.stack([found.min(axis=0), found.max(axis=0)])
    return ranges.astype(np.float32)


def form(precision: str, width: int) -> tuple[np.dtype, int]:
    """Returns the type and number of numbers that make a vector of D."""
    if precision == FLOAT32:
        return np.dtype(np.float32), width
    kind = np.uint8 if precision in (UINT8, UBINARY) else np.int8
    return np.dtype(kind), width if precision in BYTES else -(-width // 8)


def quantize(
    vectors: np.ndarray, precision: str, ranges: np.ndarray | None = None
) -> np.ndarray:
    """Converts vectors to a precision.

    As sentence-transformers' `quantize_embeddings`: a byte counts 255ths of the
    range of its number, and a bit is 1 for positive numbers.

    Args:
      vectors: float32 [N, D].
      precision: one of `config.VECTOR_PRECISIONS`.
      ranges: for a byte per number, see `number_ranges`.

    Returns:
      int8 or uint8 [N, D]; binary int8 and ubinary uint8 [N, ceil(D / 8)]; or
      the vectors.
    """
    if precision == FLOAT32:
        return vectors
    if precision in BYTES:
        assert ranges is not None
        levels = np.floor((vectors - ranges[0]) / _steps(ranges))
        packed = np.clip(levels, 0, 255).astype(np.uint8)
    else:
        packed = np.packbits(vectors > 0, axis=-1)
    if precision in (UINT8, UBINARY):
        return packed
    return (packed.astype(np.int16) - _OFFSET).astype(np.int8)


def _steps(ranges: np.ndarray) -> np.ndarray:
    steps = (ranges[1] - ranges[0]) / 255
    return np.where(steps == 0, np.float32(1), steps)


def dequantize(
    packed: np.ndarray,
    precision: str,
    width: int,
    ranges: np.ndarray | None = None,
) -> np.ndarray:
    """Returns the vectors that quantized ones stand for.

    Args:
      packed: the result of `quantize`.
      precision: its precision.
      width: D.
      ranges: its ranges.

    Returns:
      float32 [N, D]: of a byte the middle of its 255th, of a bit 1 or -1.
    """
    if precision == FLOAT32:
        return packed
    levels = unsigned(packed)
    if precision in BYTES:
        assert ranges is not None
        steps = (ranges[1] - ranges[0]) / 255
        vectors = levels.astype(np.float32)
        vectors *= steps
        vectors += ranges[0] + steps / 2
        return vectors
    bits = np.unpackbits(levels, axis=-1, count=width)
    return bits * np.float32(2) - np.float32(1)


def unsigned(packed: np.ndarray) -> np.ndarray:
    """Returns quantized vectors as unsigned bytes."""
    if packed.dtype == np.uint8:
        return packed
    return packed.view(np.uint8) ^ np.uint8(_OFFSET)
