"""Diagnosis of non-finite steps: the first bad tensor and its likely cause."""

import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.features import ENCODER_INPUTS
from bert_tf.files import written_beside
from bert_tf.training.run_folder import CHECKPOINTS
from bert_tf.training.step import Batch, Objective, StepResult, TrainingStep
from bert_tf.training.strategies import cluster_of


class NonFiniteError(UserError):
    """Training met a loss or gradient that is not finite."""


def first_non_finite(
    named: Sequence[tuple[str, object]],
) -> str | None:
    """Describes the first tensor that holds a NaN or an infinity, if any."""
    for name, value in named:
        value = np.asarray(tf.cast(value, tf.float32))
        bad = ~np.isfinite(value)
        if bad.any():
            return f"{name} ({int(bad.sum())} of {value.size} values)"
    return None


def ids_outside(
    batch: Mapping[str, object], limits: Mapping[str, int]
) -> str | None:
    """Describes the first id of a batch that is outside its limits, if any.

    Args:
      batch: arrays by name.
      limits: feature name to the exclusive upper bound of its ids.
    """
    for name, limit in limits.items():
        if name not in batch:
            continue
        ids = np.asarray(batch[name])
        bad = np.argwhere((ids < 0) | (ids >= limit))
        if len(bad):
            index = tuple(int(i) for i in bad[0])
            return (
                f"{name}{list(index)} is {int(ids[index])}, which is not in "
                f"[0, {limit})"
            )
    return None


def explain(
    model: keras.Model,
    batch: Mapping[str, object],
    forward: Callable[[Mapping[str, object]], Sequence[tuple[str, object]]],
    gradient_norms: np.ndarray,
) -> str:
    """Describes the first non-finite tensor of a step, in execution order.

    Args:
      model: the model before the step.
      batch: the whole batch of the step, its ids within their limits.
      forward: maps a batch to (name, tensor) of the forward pass, in order.
      gradient_norms: norm of the gradient of each trainable variable.

    Returns:
      The tensor and the likely cause.
    """
    bad = first_non_finite(list(batch.items()))
    if bad:
        return f"the input {bad} is not finite: the records are damaged"
    cure = "a lower learning_rate or a longer warm-up is the usual cure"
    bad = first_non_finite([(v.path, v) for v in model.trainable_variables])
    if bad:
        return f"the weight {bad} is not finite: {cure}"
    bad = first_non_finite(forward(batch))
    if bad:
        return f"{bad} is the first of the forward pass: {cure}"
    # Variables are in forward order; the backward pass starts at the last.
    paths = [v.path for v in model.trainable_variables]
    for path, norm in reversed(list(zip(paths, gradient_norms, strict=True))):
        if not np.isfinite(norm):
            return f"the gradient of {path} is the first: {cure}"
    return f"the loss itself is the first: {cure}"


def forward_tensors(
    model: keras.Model, objective: Objective, batch: Mapping[str, object]
) -> list[tuple[str, object]]:
    """Returns (name, tensor) of the forward pass, in order."""
    batch = {name: tf.convert_to_tensor(value) for name, value in batch.items()}
    named, encoded = [], {}
    # A batch may hold the encoder's outputs instead of its inputs.
    if all(feature.name in batch for feature in ENCODER_INPUTS):
        encoded = model.encoder(batch, training=False, return_all_layers=True)
        named.append(("embedding_output", encoded["embedding_output"]))
        named += [
            (f"the output of layer {index}", layer)
            for index, layer in enumerate(encoded["all_encoder_layers"])
        ]
        named.append(("pooled_output", encoded["pooled_output"]))
    outputs = model(batch, training=False)
    named += [item for item in outputs.items() if item[0] not in encoded]
    losses, _ = objective(outputs, batch)
    return [*named, *losses.items()]


class Sentinel:
    """Explains the non-finite steps of a run, and stores their batches.

    Args:
      step: the training step.
      folder: the folder of the batches, the same for all workers.
    """

    def __init__(self, step: TrainingStep, folder: pathlib.Path):
        self.step = step
        self.folder = folder
        self._cluster = cluster_of(step.strategy)

    def explain(self, batch: Batch, number: int, result: StepResult) -> str:
        """Stores and explains the batch of a step that halted the training.

        Args:
          batch: the batch of the step, with the model as before the step.
          number: the number of the step.
          result: the result of the step, as NumPy scalars.

        Returns:
          A line to log if the run can continue.

        Raises:
          UserError: an id is outside its limits.
          NonFiniteError: the loss or a gradient is not finite, and the run
            cannot continue.
        """
        local = self.step.strategy.experimental_local_results
        whole = {
            name: np.concatenate([part.numpy() for part in local(value)])
            for name, value in batch.items()
        }
        path = self._save(whole, number)
        outside = ids_outside(whole, self.step.limits)
        if outside:
            raise UserError(
                f"step {number}: {outside}: the records do not belong to this "
                f"model; the batch is in {path}."
            )
        if np.isfinite([result.gradient_norm, *result.losses.values()]).all():
            raise UserError(
                f"step {number}: another worker's batch has ids that the model "
                "has no row for; its line says which."
            )
        why = explain(
            self.step.model,
            whole,
            functools.partial(
                forward_tensors, self.step.model, self.step.objective
            ),
            result.gradient_norms,
        )
        line = f"step {number:,}: loss or gradient is not finite; {why}"
        backoff = self.step.backoff
        if backoff is not None and not backoff.exhausted():
            return f"{line}; {backoff}; the batch is in {path}"
        raise NonFiniteError(
            f"{line}. The step was not applied, its batch is in {path}, and "
            f"the last training state in {self.folder / CHECKPOINTS} is good."
        )

    def _save(self, whole: dict[str, np.ndarray], number: int) -> pathlib.Path:
        worker = ""
        if not self._cluster.is_chief:
            worker = f"_worker_{self._cluster.index}"
        path = self.folder / f"bad_batch_step_{number}{worker}.npz"
        arrays: dict[str, Any] = dict(whole)
        with written_beside(path) as partial, open(partial, "wb") as file:
            np.savez_compressed(file, **arrays)
        return path
