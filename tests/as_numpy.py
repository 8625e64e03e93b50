"""Tensors in any structure as arrays."""

from typing import Any

import numpy as np
import tensorflow as tf


def as_numpy(values: Any) -> Any:
    return tf.nest.map_structure(np.asarray, values)
