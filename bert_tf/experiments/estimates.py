"""What runs take, before they are done: operations, bytes, seconds.

The operations of a training step are six a weight and token (two forward, four
backward; Kaplan et al. 2020, section 2.1), and those of attention.
"""

import math
from collections.abc import Mapping, Sequence

from bert_tf.config import BertConfig
from bert_tf.finetuning.recipe import FinetuningRecipe
from bert_tf.memory.measurement import measure
from bert_tf.memory.prediction import Workload
from bert_tf.pretraining.recipe import PretrainingRecipe

_FLOAT = 4
# A weight, and two moments of the optimizer.
_STATE = 3
# Of a row in fine-tuning; real ones are seldom as long as they may be.
_FILLED = 0.4
# A trial's tokens: enough to be a fair sample, few enough for any memory.
_TRIAL_TOKENS = 4096


def _layer_operations(config: BertConfig, length: int) -> float:
    """Of all layers in training, a token."""
    hidden, inner = config.hidden_size, config.intermediate_size
    weights = 4 * hidden**2 + 2 * hidden * inner
    return config.num_hidden_layers * (6 * weights + 12 * length * hidden)


def step_operations(
    config: BertConfig, rows: int, length: int, predictions: int
) -> float:
    """Of a training step.

    Args:
      config: the architecture.
      rows: of the batch.
      length: tokens of a row.
      predictions: masked tokens of a row; 0 without that head.
    """
    head = 6 * (config.vocab_size + config.hidden_size) * config.hidden_size
    return rows * (
        length * _layer_operations(config, length) + predictions * head
    )


def pretraining_work(
    recipe: PretrainingRecipe,
    config: BertConfig,
    lengths: Sequence[int],
    predictions: Sequence[int],
) -> float:
    """Floating-point operations of a pre-training, of one phase or two."""
    final = recipe.final_phase_batch_size or recipe.train_batch_size
    return sum(
        steps * step_operations(config, rows, length, count)
        for steps, rows, length, count in zip(
            recipe.phase_steps(),
            (recipe.train_batch_size, final),
            lengths,
            predictions,
            strict=False,
        )
    )


def num_parameters(config: BertConfig) -> int:
    """Weights of the encoder and the pre-training heads."""
    return Workload(config, 1, max_predictions_per_seq=1).num_parameters


def pretraining_bytes(recipe: PretrainingRecipe, config: BertConfig) -> float:
    """What a pre-training leaves: its states, its model and those kept."""
    models = 1 + recipe.num_train_steps // recipe.keep_model_steps
    # One more state, which had the lowest held-out loss.
    states = recipe.keep_checkpoint_max + 1
    return _FLOAT * num_parameters(config) * (models + _STATE * states)


def finetuning_work(
    recipe: FinetuningRecipe, config: BertConfig, rows: int, dev: int
) -> float:
    """Floating-point operations of a fine-tuning with all its seeds."""
    length = math.ceil(_FILLED * recipe.max_seq_length)
    row = length * _layer_operations(config, length)
    epochs = recipe.num_train_epochs
    # An evaluation is a forward pass; one an epoch, and one of the best model.
    return (
        recipe.seeds * row * (rows * epochs + dev * (math.ceil(epochs) + 1) / 3)
    )


def finetuning_bytes(recipe: FinetuningRecipe, config: BertConfig) -> float:
    """What a fine-tuning leaves: of each seed two models and its states."""
    # A state holds the best weights too.
    state = (_STATE + 1) * (recipe.keep_checkpoint_max + 1)
    models = recipe.seeds * (2 + state) + 1
    return _FLOAT * num_parameters(config) * models


def seconds_per_operation(
    trials: Mapping[BertConfig, tuple[int, int, int]],
    precision: str,
    limit: float,
) -> dict[BertConfig, float]:
    """Measures first steps of every architecture, each in a fresh process.

    Args:
      trials: architecture to rows, length and predictions of a step.
      precision: of the trainings.
      limit: bytes of memory that a trial may take.

    Returns:
      Seconds an operation, of the architectures that fit into the memory.
    """
    found: dict[BertConfig, float] = {}
    for config, (rows, length, predictions) in trials.items():
        rows = max(1, min(rows, _TRIAL_TOKENS // length))
        work = Workload(
            config,
            length,
            rows,
            predictions,
            precision=precision,
        )
        measured = measure(work, limit)
        if measured is not None:
            operations = step_operations(config, rows, length, predictions)
            found[config] = measured.step_seconds / operations
    return found
