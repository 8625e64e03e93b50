"""Compares the arrays of checkpoints, and writes variables of TensorFlow."""

import pathlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf


def assert_same_arrays(
    found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> None:
    """Names, types, shapes and values are the same."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, name, strict=True)


def write_variables(
    prefix: pathlib.Path, arrays: Mapping[str, np.ndarray]
) -> None:
    """Writes a checkpoint of TensorFlow 1."""
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=str(prefix),
            tensor_names=list(arrays),
            shape_and_slices=[""] * len(arrays),
            tensors=[tf.constant(array) for array in arrays.values()],
        )
