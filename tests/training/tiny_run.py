"""A training of a few numbers, which tests interrupt in every way.

`python -m tests.training.tiny_run --output_dir=DIR` is a command that trains
200 steps, and that another process may kill.
"""

import contextlib
import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints import read_arrays
from bert_tf.optimization import adamw
from bert_tf.training.loop import Phase, TrainingLoop
from bert_tf.training.recipe import TrainingRecipe
from bert_tf.training.run_folder import RunFolders
from bert_tf.training.saved_states import BestWeights
from bert_tf.training.step import EvaluationStep, TrainingStep
from bert_tf.training.strategies import make_strategy
from tests.run_folders import history

STEPS, LOG_STEPS, SAVE_STEPS, BATCH = 20, 8, 10, 8
# Steps of the command, and of its first phase.
MANY, FIRST = 200, 130


class WeightedSquares:
    """A loss whose weights differ widely between the rows of a batch."""

    def loss_weights(self, batch):
        return {"squares": tf.reduce_sum(batch["weights"])}

    def __call__(self, outputs, batch):
        error = tf.square(tf.cast(outputs["y"], tf.float32) - batch["target"])
        total = tf.reduce_sum(error * batch["weights"])
        right = tf.cast(error < 0.5, tf.float32) * batch["weights"]
        return {"squares": total}, {
            "near": (tf.reduce_sum(right), tf.reduce_sum(batch["weights"]))
        }

    def normalise(self, losses, weights):
        return {"squares": losses["squares"] / weights["squares"]}


class Regressor(keras.Model):
    """Two dense layers with dropout between them."""

    def __init__(self, rate, dtype=None):
        super().__init__(dtype=dtype)
        self.first = keras.layers.Dense(8, activation="tanh", dtype=dtype)
        self.dropout = keras.layers.Dropout(rate, dtype=dtype)
        self.second = keras.layers.Dense(3, dtype=dtype)
        self.build(None)

    def build(self, input_shape):
        self.first.build((None, 4))
        self.second.build((None, 8))
        self.built = True

    def call(self, inputs, training=None):
        hidden = self.dropout(self.first(inputs["x"]), training=training)
        return {"y": self.second(hidden)}


def rows(count: int = 160, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs, targets and weights."""
    random = np.random.default_rng(seed)
    return {
        "x": random.normal(size=(count, 4)).astype(np.float32),
        "target": random.normal(size=(count, 3)).astype(np.float32),
        "weights": random.exponential(size=(count, 3)).astype(np.float32) ** 3,
        "input_mask": random.integers(0, 2, (count, 4)).astype(np.int32),
    }


def make_step(strategy="one_device", rate=0.0, optimizer=None, **more):
    """A step with Adam, or with another optimizer that a function makes."""
    chosen = make_strategy(strategy)
    keras.utils.set_random_seed(7)
    with chosen.scope():
        return TrainingStep(
            Regressor(rate),
            WeightedSquares(),
            optimizer() if optimizer else keras.optimizers.Adam(0.03),
            chosen,
            **more,
        )


def make_loop(
    folder: pathlib.Path,
    data: dict[str, np.ndarray] | None = None,
    steps: tuple[int, int] = (13, STEPS - 13),
    intervals: dict[str, int] | None = None,
    held_out: dict[str, np.ndarray] | None = None,
    loop: dict[str, Any] | None = None,
    best: Callable[[TrainingStep], BestWeights] | None = None,
    **more: Any,
) -> TrainingLoop:
    """A run of two phases.

    Args:
      folder: of the run.
      data: rows of all steps.
      steps: of the phases.
      intervals: fields of the recipe.
      held_out: rows to evaluate on; none by default.
      loop: further arguments of the loop.
      best: makes what scores the model of the step.
      **more: arguments of the step.
    """
    total = sum(steps)
    whole = tf.data.Dataset.from_tensor_slices(data or rows(total * BATCH))
    whole = whole.batch(BATCH, drop_remainder=True)
    step = make_step(
        rate=0.3, optimizer=lambda: adamw(0.03, total, clip_norm=None), **more
    )
    evaluation = read_held_out = None
    if held_out is not None:
        evaluation = EvaluationStep(step.model, step.objective, step.strategy)
        read_held_out = tf.data.Dataset.from_tensors(held_out).take
    phases = [
        Phase(
            count,
            BATCH,
            lambda k, first=first: whole.skip(first + k),
            read_held_out and (lambda: read_held_out(1)),
        )
        for first, count in ((0, steps[0]), steps)
    ]
    intervals = {
        "log_steps": LOG_STEPS,
        "save_checkpoints_steps": SAVE_STEPS,
        **(intervals or {}),
    }
    folder.mkdir(exist_ok=True)
    return TrainingLoop(
        step,
        evaluation,
        phases,
        RunFolders(folder, folder),
        TrainingRecipe(**intervals),
        **{"eval_steps": total, **(loop or {})},
        reading=contextlib.nullcontext,
        fingerprint={},
        best=best and best(step),
    )


def make_long_loop(folder: pathlib.Path) -> TrainingLoop:
    """The run of the command."""
    return make_loop(
        folder,
        steps=(FIRST, MANY - FIRST),
        intervals={"log_steps": 7, "save_checkpoints_steps": 5},
        held_out=rows(16, seed=1),
        loop={"eval_steps": 50},
    )


def state(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """The arrays of the newest state."""
    newest = max(folder.glob("checkpoints/step-*"))
    return read_arrays(newest / "state.safetensors")


def assert_same(first: pathlib.Path, second: pathlib.Path) -> None:
    """Asserts that two runs have equal histories and newest states."""
    assert history(first) == history(second)
    np.testing.assert_equal(state(first), state(second))


def main() -> None:
    """Trains to the end, or goes on with what a killed process left."""
    make_long_loop(pathlib.Path(flags.FLAGS.output_dir)).run()


if __name__ == "__main__":
    from absl import flags

    from tools import command_line

    flags.DEFINE_string("output_dir", None, "folder of the run")
    command_line.run(main)
