"""Estimates the memory of a training step from the sizes of a configuration.

The estimate is rough, and the start of the search in `measurement`.
"""

import dataclasses
import functools
import math
from typing import Self

from bert_tf.architectures.parts import Shapes
from bert_tf.checkpoints import (
    BILSTM,
    CLASSIFIER,
    LORA,
    MASKED_LM,
    NEXT_SENTENCE,
    POOLER,
    head_shapes,
)
from bert_tf.checkpoints.layout import encoder_shapes
from bert_tf.config import BertConfig

_FLOAT = 4
# Python, TensorFlow and Keras on a CPU, measured.
_PROCESS = 780e6
# The traced and compiled step per block; a classifier computes without padding,
# with attention traced for groups of rows.
_PRETRAINING_GRAPH, _CLASSIFIER_GRAPH = 30e6, 70e6
# TensorFlow's allocator rounds sizes up.
_LOST = 0.15
# More rows than fit into any device.
_MAX_ROWS = 2**20


@dataclasses.dataclass(frozen=True)
class Workload:
    """The training of one replica, as far as it determines the memory.

    Attributes:
      config: the architecture.
      max_seq_length: tokens per row, S.
      batch_size: rows of the replica's batch, B.
      max_predictions_per_seq: masked tokens per row, P, in pre-training; 0 for
        a sentence classifier with two labels.
      precision: one of `PRECISIONS`.
      optimizer: one of `OPTIMIZERS`.
      rematerialize: whether blocks are recomputed in the backward pass.
      gradient_accumulation_steps: number of slices of the batch.
    """

    config: BertConfig
    max_seq_length: int
    batch_size: int = 1
    max_predictions_per_seq: int = 0
    precision: str = "float32"
    optimizer: str = "adamw"
    rematerialize: bool = False
    gradient_accumulation_steps: int = 1

    def with_batch(self, size: int) -> Self:
        """Returns the workload with another batch size."""
        return dataclasses.replace(self, batch_size=size)

    @property
    def rows(self) -> int:
        """Rows of a slice."""
        return math.ceil(self.batch_size / self.gradient_accumulation_steps)

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the encoder and the heads."""
        return sum(_parameters(self.config, self.max_predictions_per_seq > 0))

    @property
    def num_trained(self) -> int:
        """Number of trained parameters, with LoRA those of its heads only."""
        if not self.config.lora_rank:
            return self.num_parameters
        return _parameters(self.config, self.max_predictions_per_seq > 0)[1]


@functools.lru_cache
def _parameters(config: BertConfig, pretraining: bool) -> tuple[int, int]:
    """Counts the parameters of the encoder and of its heads."""

    def count(shapes: Shapes) -> int:
        # The number of labels, None, is 2.
        return sum(
            math.prod(2 if size is None else size for size in shape)
            for shape in shapes.values()
        )

    if not pretraining:
        used = [POOLER, CLASSIFIER]
    elif config.has_pooler:
        used = [MASKED_LM, POOLER, NEXT_SENTENCE]
    else:
        used = [MASKED_LM]
    used += [BILSTM] * config.bilstm + [LORA] * bool(config.lora_rank)
    heads = head_shapes(config)
    in_heads = sum(count(heads.get(head, {})) for head in used)
    return count(encoder_shapes(config)), in_heads


def estimated_bytes(work: Workload, on_cpu: bool) -> float:
    """Estimates the peak bytes of a training step.

    Args:
      work: the training.
      on_cpu: whether to add the memory of the process, which a GPU does not
        hold.
    """
    config, tokens = work.config, work.rows * work.max_seq_length
    size = _FLOAT if work.precision == "float32" else 2
    hidden, inner = config.hidden_size, config.intermediate_size
    blocks = config.num_blocks
    scores = config.num_attention_heads * work.max_seq_length
    weights = hidden * (4 * config.attention_size + 2 * inner)
    # Stored for the backward pass: the input of a block and its activations,
    # with normalisation in float32 and dropout masks of bytes (Korthikanti et
    # al. 2022, section 4.1).
    block_input = size * hidden * tokens
    block = tokens * (
        size * (hidden + 4 * config.attention_size + 2 * inner)
        + 10 * hidden
        + scores
    )
    # Temporary arrays of the gradient of one block.
    moment = _FLOAT * tokens * max(4 * inner, 3 * scores)
    if work.rematerialize:
        moment += block + _FLOAT * weights
    whole = 0 if work.rematerialize else blocks
    if whole and not (work.max_predictions_per_seq or config.bilstm):
        # A classifier computes the last block for the first token only.
        whole -= 1
    predictions = work.rows * work.max_predictions_per_seq
    logits = 3 * _FLOAT * config.vocab_size * predictions
    copies = 0 if size == _FLOAT else size * weights
    trained = _FLOAT * work.num_trained
    peak = max(
        # While the loss or the last block's gradient is computed.
        blocks * (block_input + copies) + whole * block + max(logits, moment),
        # While the first block's gradient is computed, with all gradients.
        trained + block_input + block * bool(whole) + moment,
    )
    if config.bilstm:
        peak += 32 * block_input
    total = _FLOAT * work.num_parameters + 2 * trained + (1 + _LOST) * peak
    slices = work.gradient_accumulation_steps > 1
    if slices:
        total += trained
    if on_cpu:
        graph = _CLASSIFIER_GRAPH
        if work.max_predictions_per_seq:
            graph = _PRETRAINING_GRAPH
        # Recomputed blocks are traced twice, and slices in a loop.
        graph *= (1 + work.rematerialize / 2) * (1 + slices)
        total += _PROCESS + blocks * graph
    return total


def largest_batch(work: Workload, memory: float, on_cpu: bool) -> int:
    """Returns the most rows whose estimated peak fits; 0 if none does."""
    fits, too_many = 0, _MAX_ROWS
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if estimated_bytes(work.with_batch(middle), on_cpu) <= memory:
            fits = middle
        else:
            too_many = middle
    return fits


def min_slices(work: Workload, memory: float, on_cpu: bool) -> int:
    """Returns the fewest slices with which a batch fits; 0 if none does."""
    for slices in range(1, work.batch_size + 1):
        if work.batch_size % slices == 0:
            cut = dataclasses.replace(work, gradient_accumulation_steps=slices)
            if estimated_bytes(cut, on_cpu) <= memory:
                return slices
    return 0
