"""A head that begins as a linear model on the outputs of the encoder."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.families.task_model import LOSS, TaskModel
from bert_tf.finetuning.batches import prediction_batches

# The weight of the squared kernel, by features and rows, in the loss of
# standardised features.
_SHRINKAGE = 0.25
_MOST_STEPS, _SMALL_SLOPE = 500, 1e-5


def fit_head(
    model: TaskModel,
    head: str,
    rows: Any,
    objective: Any,
    batch_size: int,
    static_shapes: bool = False,
) -> None:
    """Assigns the weights that fit the rows best with a frozen encoder.

    Minimises the objective with a squared penalty on the kernel of standardised
    features, by accelerated gradient descent on all rows at once (Nesterov
    2004, section 2.2.1), without dropout.

    Args:
      model: the model, with logits of a dense layer.
      head: the name of that layer.
      rows: the rows with labels.
      objective: a `LogitsObjective`.
      batch_size: see `prediction_batches`.
      static_shapes: see `prediction_batches`.
    """
    layer = model.network.get_layer(head)
    features = keras.Model(model.network.input, layer.input)
    batches, chosen = prediction_batches(
        rows, batch_size, static_shapes=static_shapes
    )
    compute = tf.function(
        lambda batch: features(
            {name: batch[name] for name in model.network.input}, training=False
        ),
        input_signature=None if static_shapes else [batches.element_spec],
        autograph=False,
    )
    found: list[np.ndarray] = []
    labels: dict[str, list[np.ndarray]] = {}
    for batch, own in zip(batches, chosen, strict=True):
        found.append(compute(batch).numpy()[: len(own)])
        for name, values in batch.items():
            if name not in model.network.input:
                labels.setdefault(name, []).append(values.numpy()[: len(own)])
    inputs = np.concatenate(found).astype(np.float32)
    kernel, bias = _fitted(
        inputs,
        {name: np.concatenate(parts) for name, parts in labels.items()},
        objective,
        layer.units,
    )
    layer.kernel.assign(kernel)
    layer.bias.assign(bias)


def _fitted(
    inputs: np.ndarray,
    labels: dict[str, np.ndarray],
    objective: Any,
    outputs: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The kernel [H, C] and bias [C] of inputs [N, H]."""
    mean = inputs.mean(axis=0)
    scale = np.maximum(inputs.std(axis=0), 1e-6)
    standard = tf.constant((inputs - mean) / scale)
    rows, width = inputs.shape
    penalty = _SHRINKAGE * width / rows
    batch = {name: tf.constant(values) for name, values in labels.items()}
    weights = objective.loss_weights(batch)
    # The second derivative of the objective by a logit is at most 2, that of a
    # squared error.
    curvature = 2.0 * (np.linalg.norm(standard, 2) ** 2 / rows + 1.0)
    rate = 1.0 / (curvature + penalty)
    condition = np.sqrt((curvature + penalty) / penalty)
    momentum = (condition - 1.0) / (condition + 1.0)

    @tf.function(autograph=False)
    def gradients(kernel: tf.Tensor, bias: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch((kernel, bias))
            logits = tf.matmul(standard, kernel) + bias
            sums, _ = objective({"logits": logits}, batch)
            loss = objective.normalise(sums, weights)[LOSS]
            loss += penalty / 2 * tf.reduce_sum(kernel**2)
        return tape.gradient(loss, (kernel, bias))

    kernel = ahead = np.zeros((width, outputs), np.float32)
    bias = bias_ahead = np.zeros(outputs, np.float32)
    for _ in range(_MOST_STEPS):
        slope, slope_bias = (
            each.numpy()
            for each in gradients(tf.constant(ahead), tf.constant(bias_ahead))
        )
        if max(np.abs(slope).max(), np.abs(slope_bias).max()) < _SMALL_SLOPE:
            break
        moved = ahead - rate * slope
        moved_bias = bias_ahead - rate * slope_bias
        ahead = moved + momentum * (moved - kernel)
        bias_ahead = moved_bias + momentum * (moved_bias - bias)
        kernel, bias = moved, moved_bias
    kernel = kernel / scale[:, None]
    return kernel, bias - mean @ kernel
