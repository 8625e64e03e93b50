"""Lengths of truncated pairs and numbers of windows.

Pure arithmetic on Python numbers, NumPy arrays or tensors; `minimum` and
`maximum` are the functions for the type.
"""

from collections.abc import Callable
from typing import Any

import numpy as np


def truncated_lengths(
    length_a: Any,
    length_b: Any,
    room: Any,
    minimum: Callable = np.minimum,
    maximum: Callable = np.maximum,
) -> tuple[Any, Any]:
    """Computes the lengths of a truncated pair.

    Closed form of the loop that removes tokens one by one from the longer text,
    from B if both are equally long (google-research/bert, run_classifier.py,
    `_truncate_seq_pair`).

    Args:
      length_a: tokens of A; integers, arrays or tensors.
      length_b: tokens of B.
      room: the maximum number of tokens of both.
      minimum: the elementwise minimum.
      maximum: the elementwise maximum.
    """
    return (
        minimum(length_a, maximum(room - length_b, (room + 1) // 2)),
        minimum(length_b, maximum(room - length_a, room // 2)),
    )


def num_windows(
    length: Any,
    room: Any,
    stride: int,
    empty: int = 1,
    minimum: Callable = np.minimum,
    maximum: Callable = np.maximum,
) -> Any:
    """Computes the number of windows that cover each text.

    Args:
      length: tokens of each text; integers, arrays or tensors.
      room: tokens of a window.
      stride: tokens from the start of a window to that of the next, at most
        `room`.
      empty: windows of a text without tokens, 0 or 1.
      minimum: the elementwise minimum.
      maximum: the elementwise maximum.
    """
    more = -(-maximum(length - room, 0) // minimum(stride, room))
    return more + maximum(minimum(length, 1), empty)
