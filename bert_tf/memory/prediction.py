"""What a training step needs, and where a search for its memory begins.

`estimated_bytes` is a rough count by the sizes of a configuration;
`measurement` runs the steps, which is what counts.
"""

import dataclasses
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
# Python, TensorFlow and Keras on a CPU, as measured.
_PROCESS = 780e6
# The traced and compiled step, for each block; a classifier computes on the
# tokens alone, with attention traced for groups of rows.
_PRETRAINING_GRAPH, _CLASSIFIER_GRAPH = 30e6, 70e6
# TensorFlow's allocator gives out pieces that are larger than was asked for.
_LOST = 0.15
# More than any device holds.
_MAX_ROWS = 2**20


@dataclasses.dataclass(frozen=True)
class Workload:
    """What one replica trains, as far as its memory goes.

    Attributes:
      config: the architecture.
      max_seq_length: tokens in a row, S.
      batch_size: rows of the replica's batch, B.
      max_predictions_per_seq: masked tokens in a row, P, of pre-training; 0
        for a classifier of sentences, with two labels.
      precision: a name of `PRECISIONS`.
      optimizer: a name of `OPTIMIZERS`.
      rematerialize: whether blocks are computed again.
      gradient_accumulation_steps: slices that the batch is cut into.
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
        """The same with another batch."""
        return dataclasses.replace(self, batch_size=size)

    @property
    def rows(self) -> int:
        """Rows that are computed at a time."""
        return math.ceil(self.batch_size / self.gradient_accumulation_steps)

    @property
    def num_parameters(self) -> int:
        """Weights of the encoder and of the heads."""
        return _count(encoder_shapes(self.config)) + self._in_heads

    @property
    def num_trained(self) -> int:
        """Weights that have gradients; with LoRA none of the encoder's own."""
        lora = self.config.lora_rank
        return self._in_heads if lora else self.num_parameters

    @property
    def _in_heads(self) -> int:
        if self.max_predictions_per_seq:
            used = [MASKED_LM]
            if self.config.has_pooler:
                used += [POOLER, NEXT_SENTENCE]
        else:
            used = [POOLER, CLASSIFIER]
        if self.config.bilstm:
            used.append(BILSTM)
        if self.config.lora_rank:
            used.append(LORA)
        heads = head_shapes(self.config)
        return sum(_count(heads.get(head, {})) for head in used)


def _count(shapes: Shapes) -> int:
    """Numbers in arrays; the number of labels, which is None, is 2."""
    return sum(
        math.prod(2 if size is None else size for size in shape)
        for shape in shapes.values()
    )


def estimated_bytes(work: Workload, on_cpu: bool) -> float:
    """About how many bytes a training step takes at its peak.

    Args:
      work: what is trained.
      on_cpu: adds what the process itself takes; a GPU's memory does not hold
        it.
    """
    config, tokens = work.config, work.rows * work.max_seq_length
    size = _FLOAT if work.precision == "float32" else 2
    hidden, inner = config.hidden_size, config.intermediate_size
    blocks = config.num_hidden_layers
    scores = config.num_attention_heads * work.max_seq_length
    weights = hidden * (4 * config.attention_size + 2 * inner)
    # Kept for the backward pass: a block's input; and what is computed from
    # it, of which normalisation is float32 and masks of dropout are bytes
    # (Korthikanti et al. 2022, section 4.1).
    block_input = size * hidden * tokens
    block = tokens * (
        size * (hidden + 4 * config.attention_size + 2 * inner)
        + 10 * hidden
        + scores
    )
    # While the gradient of one block is computed.
    moment = _FLOAT * tokens * max(4 * inner, 3 * scores)
    if work.rematerialize:
        moment += block + _FLOAT * weights
    whole = 0 if work.rematerialize else blocks
    if whole and not (work.max_predictions_per_seq or config.bilstm):
        # Of the last block a classifier reads the first token.
        whole -= 1
    predictions = work.rows * work.max_predictions_per_seq
    logits = 3 * _FLOAT * config.vocab_size * predictions
    copies = 0 if size == _FLOAT else size * weights
    trained = _FLOAT * work.num_trained
    peak = max(
        # When the loss is computed, and when the last block's gradient is.
        blocks * (block_input + copies) + whole * block + max(logits, moment),
        # When the first block's is, with all gradients there.
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
        # Blocks that are computed again are traced again, slices in a loop.
        graph *= (1 + work.rematerialize / 2) * (1 + slices)
        total += _PROCESS + blocks * graph
    return total


def largest_batch(work: Workload, memory: float, on_cpu: bool) -> int:
    """The most rows whose estimated peak fits; 0 where one does not."""
    fits, too_many = 0, _MAX_ROWS
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if estimated_bytes(work.with_batch(middle), on_cpu) <= memory:
            fits = middle
        else:
            too_many = middle
    return fits


def min_slices(work: Workload, memory: float, on_cpu: bool) -> int:
    """The smallest number of slices with which a batch fits; 0 if none does."""
    for slices in range(1, work.batch_size + 1):
        if work.batch_size % slices == 0:
            cut = dataclasses.replace(work, gradient_accumulation_steps=slices)
            if estimated_bytes(cut, on_cpu) <= memory:
                return slices
    return 0
