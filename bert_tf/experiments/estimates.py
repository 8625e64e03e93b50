"""What runs take, before they are done: operations, bytes, seconds.

The operations of a training step are six a weight and token (two forward, four
backward; Kaplan et al. 2020, section 2.1), and those of attention.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.families.data.examples import Example
from bert_tf.families.multiple_choice.files import ChoiceExample
from bert_tf.families.recipe import FinetuningRecipe, SpanRecipe, TagRecipe
from bert_tf.memory.measurement import measure
from bert_tf.memory.prediction import Workload
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.text.truncation import num_windows

_FLOAT = 4
# A weight, and two moments of the optimizer.
_STATE = 3
# Of English text.
_CHARACTERS_A_TOKEN = 4
# [CLS] and two [SEP].
_SPECIAL_TOKENS = 3
# A trial's tokens: enough to be a fair sample, few enough for any memory.
_TRIAL_TOKENS = 4096


def _layer_operations(config: BertConfig, length: int) -> float:
    """Of all layers in training, a token."""
    width, inner = config.attention_size, config.intermediate_size
    weights = config.hidden_size * (4 * width + 2 * inner)
    return config.num_hidden_layers * (6 * weights + 12 * length * width)


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
    width = config.embedding_size
    head = 6 * (config.vocab_size + config.hidden_size) * width
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


class Size(NamedTuple):
    """How much a model reads of a split, about: rows, and their tokens."""

    rows: int
    tokens: float


def split_size(examples: Any, recipe: FinetuningRecipe) -> Size:
    """What a model reads of a split, by its characters alone.

    Args:
      examples: what the task loaded.
      recipe: how they become rows.
    """
    longest = recipe.max_seq_length
    if isinstance(recipe, TagRecipe):
        tokens = _tokens(examples.words).sum()
        count = len(examples.sentence_starts) - 1
        if recipe.context == "document":
            return Size(count, float(count * longest))
        return Size(count, float(tokens + 2 * count))
    if isinstance(recipe, SpanRecipe):
        questions = _tokens([each.question for each in examples])
        questions = np.minimum(questions, recipe.max_query_length)
        contexts = _tokens([each.context for each in examples])
        room = longest - _SPECIAL_TOKENS - questions
        windows = num_windows(contexts, room, recipe.doc_stride)
        shown = np.minimum(contexts, room) + questions + _SPECIAL_TOKENS
        return Size(int(windows.sum()), float((windows * shown).sum()))
    texts = [text for each in examples for text in _texts(each)]
    lengths = np.minimum(_tokens(texts) + _SPECIAL_TOKENS, longest)
    return Size(len(texts), float(lengths.sum()))


def _texts(example: Example | ChoiceExample) -> list[str]:
    """The texts of the rows of an example."""
    if isinstance(example, ChoiceExample):
        begin = example.context + example.start
        return [begin + choice for choice in example.choices]
    return [example.text_a + (example.text_b or "")]


def _tokens(texts: Sequence[str]) -> np.ndarray:
    """Tokens of texts, int64 [N], about."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return -(-lengths // _CHARACTERS_A_TOKEN)


def finetuning_work(
    recipe: FinetuningRecipe, config: BertConfig, train: Size, *devs: Size
) -> float:
    """Floating-point operations of a fine-tuning with all its seeds."""

    def operations(size: Size) -> float:
        length = math.ceil(size.tokens / max(size.rows, 1))
        return size.tokens * _layer_operations(config, length)

    epochs = recipe.num_train_epochs
    # An evaluation is a forward pass; one an epoch, and one of the best model.
    evaluations = (math.ceil(epochs) + 1) / 3
    return recipe.seeds * (
        epochs * operations(train) + evaluations * sum(map(operations, devs))
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
