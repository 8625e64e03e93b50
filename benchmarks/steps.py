"""Steps of models that the benchmarks time."""

from collections.abc import Callable

import keras
import tensorflow as tf

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
