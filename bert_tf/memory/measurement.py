"""Measures the memory of training steps, and searches the batch that fits.

Each trial runs in a fresh process. On a CPU it monitors its resident memory and
exits above the limit; on a GPU the limit is that of TensorFlow's allocator.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.encoders import encoder_class
from bert_tf.errors import UserError
from bert_tf.families.rows import EXAMPLE_WEIGHTS
from bert_tf.families.task_model import ClassesObjective, TaskModel
from bert_tf.memory.prediction import Workload
from bert_tf.models import bert_classifier
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.processes import WorkerExit, WorkerPool, own_memory
from bert_tf.system_memory import available_memory, kills_for_memory
from bert_tf.training.recipe import TrainingRecipe
from bert_tf.training.setup import make_step
from bert_tf.training.step import Objective

_WORKER = "bert_tf.memory.worker"
# Later steps allocate no more than the second.
_STEPS = 2
_WATCH_SECONDS = 0.02
# The exit code of a trial that exceeds its limit.
_ABOVE_LIMIT = 77


class Measured(NamedTuple):
    """Peak memory, on a GPU TensorFlow's, and seconds of the last step."""

    peak_bytes: int
    step_seconds: float


def has_gpu() -> bool:
    """Returns whether this machine has a GPU."""
    return bool(tf.config.list_physical_devices("GPU"))


def device_name() -> str:
    """Returns the name of the device that trains."""
    for device in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(device)
        return details.get("device_name", device.name)
    return f"CPU, {os.cpu_count()} cores"


def free_memory() -> float:
    """Returns the free bytes of this machine's device."""
    if has_gpu():
        # In a separate process, since TensorFlow reserves the GPU's memory.
        with WorkerPool(_WORKER, None, 1) as pool:
            return pool.submit(None).result()
    return available_memory()


def measure(work: Workload, limit: float) -> Measured | None:
    """Runs training steps in a fresh process; None if they exceed `limit`.

    Raises:
      UserError: the process ended for another reason.
    """
    kills = kills_for_memory()
    with WorkerPool(_WORKER, limit, 1) as pool:
        try:
            return pool.submit(work).result()
        except WorkerExit as error:
            code = error.code
        except RuntimeError as error:
            # The traceback of an exception in the process.
            reason = f"raised {str(error).strip().splitlines()[-1]}"
            raise _not_measured(work, reason) from error
    if code == _ABOVE_LIMIT:
        return None
    if code == -signal.SIGKILL and kills_for_memory() != kills:
        return None
    reason = f"ended with exit code {code}, after its messages above"
    if code < 0:
        reason = f"was ended by {signal.Signals(-code).name} (exit code {code})"
    raise _not_measured(work, reason)


def _not_measured(work: Workload, reason: str) -> UserError:
    return UserError(
        f"the process that runs training steps of {work.batch_size} rows "
        f"{reason}, so whether they fit into the memory is not known; remove "
        "the cause and run the command again."
    )


def largest_measured(
    work: Workload,
    limit: float,
    guess: int,
    log: Callable[[str], None],
) -> tuple[int, Measured | None]:
    """Searches the largest batch whose training steps fit into memory.

    Args:
      work: the training; its batch_size is ignored.
      limit: bytes.
      guess: number of rows to start with.
      log: prints the result of each trial.

    Returns:
      The number of rows, 0 if one row does not fit, and the result of their
      trial. Up to a sixteenth more rows may fit.
    """
    unit = work.gradient_accumulation_steps
    best: Measured | None = None
    fits, too_many, trying = 0, None, max(guess // unit, 1)
    while too_many is None or too_many - fits > 1 + fits // 16:
        result = measure(work.with_batch(trying * unit), limit)
        if result is None:
            log(f"{trying * unit} rows: do not fit")
            too_many = trying
        else:
            log(
                f"{trying * unit} rows: {result.peak_bytes / 1e9:.2f} GB, "
                f"{result.step_seconds:.2f} s a step"
            )
            fits, best = trying, result
        if too_many is None:
            trying = fits + max(fits // 8, 1)
        else:
            trying = (fits + too_many) // 2
    return fits * unit, best


def run_trial(work: Workload, limit: float) -> Measured:
    """Runs training steps in this process, which exits above a limit of bytes.

    On a GPU it is the limit of TensorFlow's allocator.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        megabytes = int(limit / 2**20)
        tf.config.set_logical_device_configuration(
            gpus[0], [tf.config.LogicalDeviceConfiguration(megabytes)]
        )
    else:
        threading.Thread(target=_exit_above, args=[limit], daemon=True).start()
    try:
        seconds = _last_step_seconds(work)
    except tf.errors.ResourceExhaustedError:
        os._exit(_ABOVE_LIMIT)
    if gpus:
        peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    else:
        peak = own_memory(peak=True)
    return Measured(peak, seconds)


def _last_step_seconds(work: Workload) -> float:
    model, objective, batch = make_trial(work)
    recipe = TrainingRecipe(
        precision=work.precision,
        optimizer=work.optimizer,
        gradient_accumulation_steps=work.gradient_accumulation_steps,
    )
    strategy = tf.distribute.get_strategy()
    frozen = model.non_trainable_weights
    step = make_step(recipe, model, objective, strategy, 100, frozen)
    tensors = {name: tf.identity(value) for name, value in batch.items()}
    for _ in range(_STEPS):
        begin = time.monotonic()
        step(tensors).gradient_norm.numpy()
        seconds = time.monotonic() - begin
    return seconds


def _exit_above(limit: float) -> None:
    while own_memory() <= limit:
        time.sleep(_WATCH_SECONDS)
    os._exit(_ABOVE_LIMIT)


def make_trial(
    work: Workload,
) -> tuple[keras.Model, Objective, dict[str, np.ndarray]]:
    """Builds a model, its objective and a random batch without padding."""
    random = np.random.default_rng(0)
    config, rows = work.config, work.batch_size
    shape = (rows, work.max_seq_length)
    encoder = encoder_class(config)(
        config, dtype=work.precision, rematerialize=work.rematerialize
    )
    batch: dict[str, np.ndarray] = {
        "input_ids": random.integers(0, config.vocab_size, shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": random.integers(
            0, config.segment_limit, shape, np.int32
        ),
    }
    if not work.max_predictions_per_seq:
        batch[ClassesObjective.label_name] = np.arange(rows, dtype="int32") % 2
        batch[EXAMPLE_WEIGHTS] = np.ones(rows, "float32")
        network = bert_classifier(encoder, num_classes=2, unpadded=True)
        return TaskModel(network), ClassesObjective(), batch
    predictions = (rows, work.max_predictions_per_seq)
    batch |= {
        "masked_lm_positions": random.integers(
            0, work.max_seq_length, predictions, np.int32
        ),
        "masked_lm_ids": random.integers(
            0, config.vocab_size, predictions, np.int32
        ),
        "masked_lm_weights": np.ones(predictions, "float32"),
        "next_sentence_labels": random.integers(0, 2, rows, np.int32),
    }
    model = BertPretrainer(encoder)
    return model, model.objective, batch
