"""Steps of models that the benchmarks time."""

from collections.abc import Callable

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.optimization import AdamW


def inference(model: keras.Model, inputs: dict) -> Callable:
    @tf.function
    def step():
        return model(inputs, training=False)["sequence_output"]

    return step


def training(model: keras.Model, inputs: dict, loss: Callable) -> Callable:
    variables = model.trainable_variables
    optimizer = AdamW(1e-5)
    optimizer.build(variables)

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            scalar = loss(model, inputs)
        return tape.gradient(scalar, variables)

    @tf.function(jit_compile=True)
    def update(grads):
        optimizer.apply(grads, variables)

    return lambda: update([tf.convert_to_tensor(g) for g in gradients()])


def products(config: BertConfig, rows: int, dtype: str) -> tuple[Callable, int]:
    """The four products of a block of so many rows, and their operations."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes = (hidden, 3 * hidden), (hidden, hidden), (hidden, inner)
    shapes = (*shapes, (inner, hidden))
    pairs = [
        (
            tf.cast(tf.random.normal((rows, inputs)), dtype),
            tf.Variable(tf.cast(tf.random.normal((inputs, units)), dtype)),
        )
        for inputs, units in shapes
    ]

    @tf.function
    def step():
        # All are read, so that none is left out.
        corners = [tf.matmul(left, right)[0, 0] for left, right in pairs]
        return tf.add_n(corners)

    return step, sum(2 * rows * inputs * units for inputs, units in shapes)
