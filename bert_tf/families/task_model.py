"""The model of a task that the loop trains, and the objectives on logits.

An objective returns sums and the weights to divide them by, so that a batch can
be split over replicas and accumulation steps; see `Objective` in
bert_tf/training/step.py.
"""

import abc
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from bert_tf.checkpoints import Checkpoint
from bert_tf.encoders import BertEncoder
from bert_tf.families.rows import CHOICE_MASK, EXAMPLE_WEIGHTS
from bert_tf.features import INPUT_MASK
from bert_tf.models import model_arrays, restore, with_all_layers

LOSS = "loss"
START_POSITIONS, END_POSITIONS = "start_positions", "end_positions"
START_LOGITS, END_LOGITS = "start_logits", "end_logits"
# A masked logit. Its exponential and gradient are 0 in float32; with an
# infinity, 0 times infinity would be NaN.
HIDDEN = -1e9
Sums = tuple[dict[str, Any], dict[str, tuple[Any, Any]]]


def weighted(values: Any, weights: Any) -> tuple[Any, Any]:
    """The sum of weighted values, and that of the weights."""
    return ops.sum(values * weights), ops.sum(weights)


class WeightedMean:
    """Base of losses that are a weighted mean over rows, words or the like."""

    # The key of the weights in a batch.
    weights_name: ClassVar[str] = EXAMPLE_WEIGHTS

    def row_weights(self, batch: Mapping[str, Any]) -> Any:
        """Returns the weights of the summed losses, float32."""
        return batch[self.weights_name]

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the divisor of the summed loss of a batch."""
        return {LOSS: ops.sum(self.row_weights(batch))}

    def normalise(
        self, losses: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Divides the summed loss by the summed weights."""
        return {LOSS: losses[LOSS] / weights[LOSS]}

    def soft_target_weight(self, batch: Mapping[str, Any]) -> Any:
        """Returns the divisor of the summed `soft_target_loss` of a batch."""
        return ops.sum(batch[self.weights_name])

    def divergence(self, logits: Any, targets: Any, temperature: float) -> Any:
        """Computes the divergence of logits [..., C] from a teacher's, [...].

        See `bert_tf.distiller.soft_target_loss`.
        """
        # Only a training with a teacher has this term.
        from bert_tf.distiller import soft_target_loss

        return soft_target_loss(logits, targets, temperature)


class LogitsObjective(WeightedMean, abc.ABC):
    """Base of losses of logits [..., C], of rows or words, with a metric."""

    # The key of the labels in a batch.
    label_name: ClassVar[str]
    metric: ClassVar[str]

    @abc.abstractmethod
    def of_rows(self, logits: Any, labels: Any) -> tuple[Any, Any]:
        """Computes loss and metric of each row, float32 [B].

        Args:
          logits: float32 [B, C].
          labels: [B, ...], the return value of `RowTask.targets`.
        """

    def logits(self, outputs: Mapping[str, Any], batch: Any) -> Any:
        """Returns the logits of a batch, float32 [B, C]."""
        return ops.cast(outputs["logits"], "float32")

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums losses and metric.

        Args:
          outputs: the logits, [B, C] or [B, S, C].
          batch: labels and weights by their names.

        Returns:
          losses: the weighted sum, scalar float32.
          metrics: the metric, as (weighted sum, weight).
        """
        logits = self.logits(outputs, batch)
        loss, metric = self.of_rows(logits, batch[self.label_name])
        losses = {LOSS: ops.sum(loss * self.row_weights(batch))}
        weights = batch[self.weights_name]
        return losses, {self.metric: weighted(metric, weights)}

    def soft_target_loss(
        self,
        outputs: Mapping[str, Any],
        teacher: Mapping[str, Any],
        batch: Mapping[str, Any],
        temperature: float,
    ) -> Any:
        """Sums the divergence of logits [B, C] from a teacher's over rows."""
        student, target = (
            self.logits(each, batch) for each in (outputs, teacher)
        )
        loss = self.divergence(student, target, temperature)
        return ops.sum(loss * batch[self.weights_name])

    def mean_loss(self, logits: np.ndarray, labels: np.ndarray) -> float:
        """Computes the mean loss of equally weighted rows; see `of_rows`."""
        loss, _ = self.of_rows(
            ops.convert_to_tensor(logits), ops.convert_to_tensor(labels)
        )
        return float(ops.sum(loss) / len(labels))


class ClassesObjective(LogitsObjective):
    """Cross-entropy of one class in C (Devlin et al. 2019, section 4.1).

    Args:
      class_weights: C weights of the classes. The loss is divided by the sum
        of its rows' weights. None weighs all classes equally.
    """

    label_name = "label_ids"
    metric = "accuracy"

    def __init__(self, class_weights: Sequence[float] | None = None):
        self.class_weights = class_weights

    def row_weights(self, batch: Mapping[str, Any]) -> Any:
        """Returns the product of each row's weight and its class's."""
        weights = super().row_weights(batch)
        if self.class_weights is None:
            return weights
        table = ops.convert_to_tensor(list(self.class_weights), "float32")
        return weights * ops.take(table, batch[self.label_name])

    def of_rows(self, logits: Any, labels: Any) -> tuple[Any, Any]:
        """Computes loss and accuracy; labels are classes, int32 [B]."""
        loss = ops.sparse_categorical_crossentropy(
            labels, logits, from_logits=True
        )
        guesses = ops.argmax(logits, axis=-1)
        correct = ops.equal(guesses, ops.cast(labels, guesses.dtype))
        return loss, ops.cast(correct, "float32")


class RegressionObjective(LogitsObjective):
    """Squared error of a number, as in the paper's STS-B."""

    label_name = "label_values"
    metric = "absolute_error"

    def of_rows(self, logits: Any, labels: Any) -> tuple[Any, Any]:
        """Computes both errors; labels are numbers, float32 [B]."""
        error = logits[:, 0] - labels
        return ops.square(error), ops.abs(error)

    def divergence(self, logits: Any, targets: Any, temperature: float) -> Any:
        """Computes the squared error; the temperature has no effect."""
        del temperature
        return ops.square(logits - targets)[:, 0]


class MultiLabelObjective(LogitsObjective):
    """Mean binary cross-entropy of C labels."""

    label_name = "label_sets"
    metric = "label_accuracy"

    def of_rows(self, logits: Any, labels: Any) -> tuple[Any, Any]:
        """Computes both means; labels are zeros and ones, float32 [B, C]."""
        # -log sigmoid in a form that does not overflow.
        loss = ops.relu(logits) - logits * labels
        loss = loss + ops.log1p(ops.exp(-ops.abs(logits)))
        correct = ops.cast(ops.equal(logits > 0, labels > 0.5), "float32")
        return ops.mean(loss, axis=-1), ops.mean(correct, axis=-1)

    def divergence(self, logits: Any, targets: Any, temperature: float) -> Any:
        """Computes the mean divergence of C binary distributions."""
        student, target = (
            ops.stack([each, ops.zeros_like(each)], axis=-1)
            for each in (logits, targets)
        )
        return ops.mean(
            super().divergence(student, target, temperature), axis=-1
        )


class ChoicesObjective(ClassesObjective):
    """Cross-entropy over the choices of each example.

    Devlin et al. 2019, section 4.4: a softmax over the scores of the choices,
    without padding choices, by a choice_mask in the batch, float32 [B, C].
    Examples have equal weights, whatever the number of their choices.
    """

    def logits(self, outputs: Mapping[str, Any], batch: Any) -> Any:
        """Returns the logits, float32 [B, C], masked for padding choices."""
        logits = super().logits(outputs, batch)
        return ops.where(batch[CHOICE_MASK] > 0, logits, HIDDEN)


class SpanObjective(WeightedMean):
    """The mean of two cross-entropies over the tokens of a window.

    Devlin et al. 2019, section 4.2; google-research/bert, run_squad.py. Unlike
    the latter, the softmax excludes padding.
    """

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums the loss, and the exactly answered windows as exact_span.

        Args:
          outputs: start_logits and end_logits [B, S].
          batch: start_positions and end_positions int32 [B], input_mask int32
            [B, S], example_weights float32 [B].
        """
        weights = batch[EXAMPLE_WEIGHTS]
        total, correct = 0.0, 1.0
        for logits, positions in (
            (outputs[START_LOGITS], batch[START_POSITIONS]),
            (outputs[END_LOGITS], batch[END_POSITIONS]),
        ):
            logits = _of_tokens(logits, batch)
            scores = ops.log_softmax(logits, axis=-1)
            gold = ops.one_hot(positions, ops.shape(logits)[1])
            # Gold positions are never masked, so no -1e9 is summed.
            total = total - 0.5 * ops.sum(scores * gold, axis=-1)
            guesses = ops.argmax(logits, axis=-1)
            same = ops.equal(guesses, ops.cast(positions, guesses.dtype))
            correct = correct * ops.cast(same, "float32")
        losses = {LOSS: ops.sum(total * weights)}
        return losses, {"exact_span": weighted(correct, weights)}

    def soft_target_loss(
        self,
        outputs: Mapping[str, Any],
        teacher: Mapping[str, Any],
        batch: Mapping[str, Any],
        temperature: float,
    ) -> Any:
        """Sums the mean divergence of starts and ends from a teacher's."""
        total = 0.0
        for name in (START_LOGITS, END_LOGITS):
            student, target = (
                _of_tokens(each[name], batch) for each in (outputs, teacher)
            )
            total = total + 0.5 * self.divergence(student, target, temperature)
        return ops.sum(total * batch[EXAMPLE_WEIGHTS])


def _of_tokens(logits: Any, batch: Mapping[str, Any]) -> Any:
    """Masks the logits of padding, float32 [B, S]."""
    logits = ops.cast(logits, "float32")
    return ops.where(batch[INPUT_MASK.name] > 0, logits, HIDDEN)


@keras.saving.register_keras_serializable(package="bert_tf")
class TaskModel(keras.Model):
    """A network on an encoder that accepts batches with labels.

    Args:
      network: the return value of a function of `bert_tf.models`.
      name: name of the model.
      encoder: the encoder, if the network takes features of it instead of
        having it as a layer.

    Call arguments:
      batch: the network's inputs by name; other keys are ignored.
      training: whether dropout is active.
      return_all_layers: adds the encoder's all_encoder_layers and
        embedding_output, for distillation.

    Returns:
      A dict of the network's outputs; a single one is called logits.
    """

    # Whether a checkpoint holds all its weights, including the head.
    in_checkpoint: ClassVar[bool] = True
    # The layout of its folder; see `save_checkpoint`.
    layout: ClassVar[str] = "bert_tf"

    def __init__(
        self,
        network: keras.Model,
        name: str = "task_model",
        encoder: BertEncoder | None = None,
    ) -> None:
        super().__init__(name=name)
        self.network = network
        if encoder is None:
            (encoder,) = (
                layer
                for layer in network.layers
                if isinstance(layer, BertEncoder)
            )
        self.encoder = encoder
        self.built = True

    @functools.cached_property
    def _with_layers(self) -> keras.Model:
        return with_all_layers(self.network)

    def call(
        self,
        batch: Mapping[str, Any],
        training: bool | None = None,
        return_all_layers: bool = False,
    ) -> dict[str, Any]:
        """Runs the network on a batch; see the class."""
        inputs = {name: batch[name] for name in self.network.input}
        layers: dict[str, Any] = {}
        if return_all_layers:
            outputs, layers = self._with_layers(inputs, training=training)
        else:
            outputs = self.network(inputs, training=training)
        if not isinstance(outputs, dict):
            outputs = {"logits": outputs}
        return outputs | layers

    def restore(self, source: Checkpoint, fresh: Sequence[str] = ()) -> None:
        """Assigns a checkpoint's weights; see `bert_tf.models.restore`."""
        restore(self.network, source, fresh)

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights that a checkpoint holds; see `model_arrays`."""
        return model_arrays(self.network)

    def save_beside(self, folder: pathlib.Path) -> None:
        """Writes weights that a checkpoint does not hold into its folder."""

    def load_beside(self, folder: pathlib.Path) -> None:
        """Reads the weights that `save_beside` wrote."""

    def get_config(self) -> dict[str, Any]:
        """The constructor arguments as plain data."""
        parts = {"network": self.network}
        if self.encoder not in self.network.layers:
            parts["encoder"] = self.encoder
        saved = map(keras.saving.serialize_keras_object, parts.values())
        return dict(zip(parts, saved, strict=True)) | {"name": self.name}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> "TaskModel":
        """Builds the model from the return value of `get_config`."""
        parts = {
            key: keras.saving.deserialize_keras_object(value)
            for key, value in config.items()
            if key != "name"
        }
        return cls(name=config["name"], **parts)
