"""A model as a LiteRT (TensorFlow Lite) file, which takes rows of one length.

The converter is TensorFlow 2.21's, and runs over operations that it has
kernels for: products of matrices of two axes become FULLY_CONNECTED, which is
fast, and both forms of GELU become GELU.
"""

import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.sentence_modules import SentenceModules
from bert_tf.config import BertConfig
from bert_tf.families.rows import Outputs
from bert_tf.features import ENCODER_INPUTS
from bert_tf.runtimes.forward import PlainBert
from bert_tf.runtimes.operations import Operations

FILE = "model.tflite"
# Whether rows are of one length.
PADDED = True


class _LiteRT(Operations):
    """Operations of TensorFlow, of which the converter knows each."""

    def constant(self, array: np.ndarray, name: str) -> tf.Tensor:
        del name
        return tf.constant(array)

    def positions(self, row: tf.Tensor) -> tf.Tensor:
        return tf.range(row.shape[1], dtype=tf.int32)

    def rows(self, table: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(table, ids)

    def to_float(self, values: tf.Tensor) -> tf.Tensor:
        return tf.cast(values, tf.float32)

    def less(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return left < right

    def add(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return left + right

    def multiply(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return left * right

    def largest(self, values: tf.Tensor) -> tf.Tensor:
        return tf.reduce_max(values, axis=-1, keepdims=True)

    def matmul(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        if right.shape.rank > 2:
            return tf.matmul(left, right)
        product = tf.matmul(tf.reshape(left, [-1, left.shape[-1]]), right)
        return tf.reshape(product, [*left.shape[:-1], right.shape[-1]])

    def reshape(self, values: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
        sizes = [size or values.shape[axis] for axis, size in enumerate(shape)]
        return tf.reshape(values, sizes)

    def transpose(self, values: tf.Tensor, order: tuple[int, ...]) -> tf.Tensor:
        return tf.transpose(values, order)

    def part(
        self, values: tf.Tensor, axis: int, begin: int, end: int
    ) -> tf.Tensor:
        places = [slice(None)] * axis + [slice(begin, end)]
        return values[tuple(places)]

    def normalise(
        self, values: tf.Tensor, gamma: Any, beta: Any, epsilon: float
    ) -> tf.Tensor:
        mean, variance = tf.nn.moments(values, axes=[-1], keepdims=True)
        scaled = (values - mean) * tf.math.rsqrt(variance + epsilon)
        return scaled * gamma + beta

    def softmax(self, values: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(values)

    def activate(self, hidden_act: str, values: tf.Tensor) -> tf.Tensor:
        if hidden_act in ("gelu", "gelu_erf"):
            return tf.nn.gelu(values, approximate=hidden_act == "gelu")
        return {"relu": tf.nn.relu, "tanh": tf.tanh, "linear": tf.identity}[
            hidden_act
        ](values)

    def power(self, values: tf.Tensor, exponent: float) -> tf.Tensor:
        return tf.pow(values, exponent)

    def join(self, parts: Sequence[tf.Tensor], axis: int) -> tf.Tensor:
        return tf.concat(parts, axis)


def write_model(
    path: pathlib.Path,
    config: BertConfig,
    arrays: Mapping[str, np.ndarray],
    max_seq_length: int,
    int8: bool = False,
    modules: SentenceModules | None = None,
) -> None:
    """Writes a model that takes one row of `max_seq_length` tokens.

    In int8 the kernels and the tables of embeddings are stored so, and inputs
    of the products are quantized as they come (dynamic range quantization);
    all else is float32.

    Args:
      path: the file.
      config: the architecture.
      arrays: the weights by their names in Google's TF1 checkpoints.
      max_seq_length: S.
      int8: whether to quantize it.
      modules: what makes one vector a text, or None.
    """
    bert = PlainBert(_LiteRT(), config, arrays, modules)
    signature = [
        tf.TensorSpec([1, max_seq_length], tf.int32, feature.name)
        for feature in ENCODER_INPUTS
    ]
    function = tf.function(
        lambda *inputs: bert(*inputs),
        input_signature=signature,
        autograph=False,
    )
    module = tf.Module()
    module.function = function
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function.get_concrete_function()], module
    )
    if int8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    path.write_bytes(converter.convert())


class Runner:
    """Runs a file with TensorFlow's own interpreter on the processor.

    Args:
      path: the file.

    Attributes:
      length: the tokens of a row.
    """

    def __init__(self, path: pathlib.Path):
        with warnings.catch_warnings():
            # That the interpreter has a package of its own now, ai-edge-litert.
            warnings.simplefilter("ignore")
            interpreter = tf.lite.Interpreter(str(path), num_threads=2)
        self._run = interpreter.get_signature_runner()
        details = self._run.get_input_details()
        self.length = int(details[ENCODER_INPUTS[0].name]["shape"][1])

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> Outputs:
        """The outputs by name to int32 [B, S] inputs by name, row by row."""
        length = inputs[ENCODER_INPUTS[0].name].shape[1]
        missing = ((0, 0), (0, self.length - length))
        filled = {name: np.pad(rows, missing) for name, rows in inputs.items()}
        rows_alone = (
            {name: rows[row : row + 1] for name, rows in filled.items()}
            for row in range(len(filled[ENCODER_INPUTS[0].name]))
        )
        found = [self._run(**row) for row in rows_alone]
        outputs = {
            name: np.concatenate([each[name] for each in found])
            for name in found[0]
        }
        tokens = ("sequence_output", "start_logits", "end_logits")
        return {
            name: values[:, :length]
            if name in tokens or values.ndim == 3
            else values
            for name, values in outputs.items()
        }
