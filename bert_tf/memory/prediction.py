"""What a training step holds in memory, as arithmetic.

Weights, gradients and the optimizer's slots are known exactly. What is kept
for the backward pass is counted array by array as `bert_tf.layers` computes
it, for rows without padding; with LoRA less is kept than that. Of what lives
for a moment, the largest is counted. On a CPU the process and its graph are
added; docs/memory.md has what was measured beside it.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Self

from bert_tf.architectures.parts import (
    Shapes,
)
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

# Of float32, in which weights and normalisation are.
_FLOAT = 4
# Of a mask of dropout.
_MASK = 1
# Bytes of a process on a CPU, as measured: Python with TensorFlow and Keras
# before there is a model, and the step without blocks.
_PROCESS, _PROGRAM = 600e6, 180e6
# Of each block in the step: its update; its graph, and what is added where it
# is computed again; attention to a group of rows of tokens alone, in each pass.
_UPDATE, _GRAPH, _GRAPH_AGAIN, _ATTENTION = 16e6, 14e6, 5e6, 6e6
# TensorFlow's allocator gives out pieces that are larger than was asked for.
_LOST = 0.15
# Numbers of its width that a BiLSTM's loop keeps of a token, as measured; those
# of small batches are more.
_LSTM_KEPT = 32
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
    def compute_bytes(self) -> int:
        """Bytes of a number in matrix products."""
        return _FLOAT if self.precision == "float32" else 2

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


def predicted_parts(work: Workload, on_cpu: bool) -> Mapping[str, float]:
    """The bytes of each part at the moment when they are most.

    Args:
      work: what is trained.
      on_cpu: adds what the process itself takes; a GPU's memory does not hold
        it.
    """
    trained = _FLOAT * work.num_trained
    whole: dict[str, float] = {
        "weights": _FLOAT * work.num_parameters,
        "optimizer slots": 2 * trained,
    }
    if on_cpu:
        whole["process and program"] = _program(work)
    if work.gradient_accumulation_steps > 1:
        whole["gradients of the slices before"] = trained
    kept = _kept(work)
    moments = (
        # When the loss is computed.
        kept | {"logits and their gradient": _logits(work)},
        # When the backward pass comes to the last whole block.
        kept
        | {
            "gradients": _word_gradient(work),
            "while a block's gradient is computed": _block_moment(work),
        },
        _all_gradients(work),
    )
    most = max(moments, key=lambda parts: sum(parts.values()))
    lost = _LOST * (sum(most.values()) - most.get("gradients", 0))
    return whole | most | {"lost between arrays": lost}


def predicted_bytes(work: Workload, on_cpu: bool) -> float:
    """The peak: the sum of `predicted_parts`."""
    return sum(predicted_parts(work, on_cpu).values())


def largest_batch(work: Workload, memory: float, on_cpu: bool) -> int:
    """The most rows whose predicted peak fits; 0 where one does not."""
    fits, too_many = 0, _MAX_ROWS
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if predicted_bytes(work.with_batch(middle), on_cpu) <= memory:
            fits = middle
        else:
            too_many = middle
    return fits


def min_slices(work: Workload, memory: float, on_cpu: bool) -> int:
    """The smallest number of slices with which a batch fits; 0 if none does."""
    for slices in range(1, work.batch_size + 1):
        if work.batch_size % slices == 0:
            cut = dataclasses.replace(work, gradient_accumulation_steps=slices)
            if predicted_bytes(cut, on_cpu) <= memory:
                return slices
    return 0


def _program(work: Workload) -> float:
    """What a process on a CPU takes whose step is traced and compiled.

    A classifier computes on the tokens alone. Each group of rows that attention
    sees then is traced by itself, in each pass: forward, backward and, where
    blocks are computed again, forward once more. With slices all of it is
    traced for the first one, and in the loop over the others.
    """
    # It imports Keras, which takes seconds.
    from bert_tf.layers.unpadding import group_count

    groups = 0 if work.max_predictions_per_seq else group_count(work.rows)
    graph = _GRAPH + 2 * groups * _ATTENTION
    if work.rematerialize:
        graph += _GRAPH_AGAIN + groups * _ATTENTION
    if work.gradient_accumulation_steps > 1:
        graph *= 2
    blocks = work.config.num_hidden_layers
    return _PROCESS + _PROGRAM + blocks * (_UPDATE + graph)


def _all_gradients(work: Workload) -> dict[str, float]:
    """When the backward pass comes to the first block."""
    gradients = _FLOAT * work.num_trained + _word_gradient(work)
    first = 0 if work.rematerialize else _block_kept(work)
    return {
        "gradients": gradients,
        "copies in half precision": _copies(work, blocks=1),
        "kept of the embeddings": _embeddings_kept(work),
        "kept of the blocks": first + _block_input(work),
        "while a block's gradient is computed": _block_moment(work),
    }


def _kept(work: Workload) -> dict[str, float]:
    """What the forward pass leaves for the backward pass."""
    blocks = work.config.num_hidden_layers
    whole = 0 if work.rematerialize else blocks
    kept = blocks * _block_input(work)
    if whole:
        kept += (blocks - 1) * _block_kept(work)
        reads_all = work.max_predictions_per_seq or work.config.bilstm
        kept += _block_kept(work, None if reads_all else work.rows)
    found = {
        "copies in half precision": _copies(work, whole),
        "kept of the embeddings": _embeddings_kept(work),
        "kept of the blocks": kept,
    }
    if work.config.bilstm:
        found["kept of the BiLSTM"] = _LSTM_KEPT * _block_input(work)
    return found


def _tokens(work: Workload) -> int:
    return work.rows * work.max_seq_length


def _copies(work: Workload, blocks: int) -> float:
    """Weights in the dtype of products: those of some blocks and the rest."""
    if work.compute_bytes == _FLOAT:
        return 0
    config = work.config
    rest = 0
    if work.max_predictions_per_seq:
        rest = config.vocab_size * config.embedding_size
    return work.compute_bytes * (blocks * _block_weights(config) + rest)


def _block_weights(config: BertConfig) -> int:
    width, inner = config.attention_size, config.intermediate_size
    return config.hidden_size * (4 * width + 2 * inner)


def _embeddings_kept(work: Workload) -> float:
    """The normalised sum, and the mask of dropout."""
    each = _FLOAT + _MASK * (work.config.hidden_dropout_prob > 0)
    return each * work.config.embedding_size * _tokens(work)


def _block_input(work: Workload) -> float:
    return work.compute_bytes * work.config.hidden_size * _tokens(work)


def _block_kept(work: Workload, queries: int | None = None) -> float:
    """What a block of `queries` computed positions keeps besides its input."""
    config, tokens, size = work.config, _tokens(work), work.compute_bytes
    queries = tokens if queries is None else queries
    hidden, inner = config.hidden_size, config.intermediate_size
    # Keys and values; queries and the context; what the first sum becomes.
    kept = size * config.attention_size * (2 * tokens + 2 * queries)
    kept += size * hidden * queries
    # Both normalised sums, and the masks of both dropouts.
    masks = 2 * _MASK * (config.hidden_dropout_prob > 0)
    kept += hidden * (2 * _FLOAT + masks) * queries
    # The inner layer, and in float32 the slope of its activation, which
    # TensorFlow computes in the forward pass, since it needs no gradient; of
    # half that what goes into it.
    slope = size if config.hidden_act.startswith("gelu") else 0
    kept += (size + slope) * inner * queries
    # Of the probabilities, which are left by dropout.
    scores = config.num_attention_heads * queries * work.max_seq_length
    return kept + _MASK * (config.attention_probs_dropout_prob > 0) * scores


def _block_moment(work: Workload) -> float:
    """What lives while a block's gradient is computed.

    In the feed-forward layer four float32 arrays, in attention three.
    """
    config, tokens = work.config, _tokens(work)
    inner = 4 * config.intermediate_size
    scores = 3 * config.num_attention_heads * work.max_seq_length
    moment: float = _FLOAT * tokens * max(inner, scores)
    if work.rematerialize:
        # Weights are handed over as copies.
        moment += _block_kept(work) + _FLOAT * _block_weights(config)
        moment += _copies(work, 1) - _copies(work, 0)
    return moment


def _logits(work: Workload) -> float:
    """Logits in float32, their softmax and their gradient."""
    arrays = 3 * _FLOAT + (work.compute_bytes if _copies(work, 0) else 0)
    predictions = work.rows * work.max_predictions_per_seq
    return arrays * work.config.vocab_size * predictions


def _word_gradient(work: Workload) -> float:
    """The gradient of the word table, where predictions give one too."""
    if not work.max_predictions_per_seq:
        return 0
    return _FLOAT * work.config.vocab_size * work.config.embedding_size
