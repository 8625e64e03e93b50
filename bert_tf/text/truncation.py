"""Lengths of truncated pairs and numbers of windows, without TensorFlow.

Both are arithmetic alone, so that they take Python's numbers, NumPy's arrays
and tensors; `minimum` and `maximum` say which.
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
    """Computes how many tokens of a pair remain.

    A pair loses tokens one by one from the longer text, from B where both are
    equally long (google-research/bert, run_classifier.py,
    `_truncate_seq_pair`). This is what is left at the end of that loop.

    Args:
      length_a: tokens of A; whole numbers, arrays or tensors.
      length_b: tokens of B.
      room: the most tokens of both together.
      minimum: the elementwise minimum of such lengths.
      maximum: their maximum.
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
    """Computes how many windows cover each text.

    Args:
      length: tokens of each text; whole numbers, arrays or tensors.
      room: tokens of a window.
      stride: tokens from the start of a window to that of the next; where it
        is longer than a window, windows follow one another.
      empty: windows of a text without tokens, 0 or 1.
      minimum: the elementwise minimum of such lengths.
      maximum: their maximum.
    """
    more = -(-maximum(length - room, 0) // minimum(stride, room))
    return more + maximum(minimum(length, 1), empty)
