"""Rows of K texts each, and their vectors."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.sentence_modules import SentenceModules
from bert_tf.families.rows import (
    EncodedChoices,
    Outputs,
    batches_by_length,
)
from bert_tf.families.sentence_embedding.model import PROMPT_LENGTHS
from bert_tf.families.sentence_embedding.objective import VECTORS
from bert_tf.families.sentence_vectors import prompt_length
from bert_tf.progress import Progress
from bert_tf.text.layout import pack_rows, tokenize, truncate
from bert_tf.text.tokenizer_protocol import Tokenizer


@dataclasses.dataclass(frozen=True)
class EmbeddingRows(EncodedChoices):
    """N examples of K texts each, an encoded row for each text.

    Attributes:
      prompt_lengths: int32 [K], the tokens of the prompt of each column.
      numbers: int64 [N, K], the number of each text; equal texts have one.
    """

    prompt_lengths: np.ndarray
    numbers: np.ndarray

    def batch(self, chosen: Any, width: Any = 0) -> dict[str, tf.Tensor]:
        """Makes a batch of inputs [B, K, S]; see `Rows`."""
        batch = super().batch(chosen, width)
        del batch["choice_mask"]
        count = len(self.prompt_lengths)
        shape = [tf.size(chosen), count]
        batch[PROMPT_LENGTHS] = tf.broadcast_to(self.prompt_lengths, shape)
        # K is known while a graph is traced.
        return {
            name: tf.ensure_shape(v, [None, count, *v.shape[2:]])
            for name, v in batch.items()
        }

    def gather(self, batches: Iterable[tuple[np.ndarray, Outputs]]) -> Outputs:
        """Collects the vectors of all examples, float32 [N, K, D]."""
        found: np.ndarray | None = None
        for chosen, outputs in batches:
            vectors = outputs[VECTORS][: len(chosen)]
            if found is None:
                found = np.zeros((len(self), *vectors.shape[1:]), np.float32)
            found[chosen] = vectors
        assert found is not None
        return {VECTORS: found}


def encode_texts(
    columns: Sequence[Sequence[str]],
    tokenizer: Tokenizer,
    modules: SentenceModules,
) -> EmbeddingRows:
    """Encodes K columns of N texts.

    The first column has the prompt "query", the others "document", as by
    `encode_query` and `encode_document` of a loaded model; texts alone have
    the latter.
    """
    names = ["query", *["document"] * (len(columns) - 1)]
    if len(columns) == 1:
        names = ["document"]
    prompts = [modules.prompt(name) for name in names]
    flat = [
        prompt + text
        for row in zip(*columns, strict=True)
        for prompt, text in zip(prompts, row, strict=True)
    ]
    room = modules.max_seq_length - tokenizer.packing.num_special(1)
    texts, _ = truncate(tokenize(tokenizer, flat), None, room)
    known: dict[str, int] = {}
    numbers = [known.setdefault(text, len(known)) for text in flat]
    size = len(columns)
    lengths = [
        prompt_length(prompt, tokenizer, modules.max_seq_length)
        for prompt in prompts
    ]
    return EmbeddingRows(
        pack_rows(texts, None, tokenizer.packing),
        np.arange(len(flat) // size + 1) * size,
        np.array(lengths, np.int32),
        np.reshape(numbers, (-1, size)),
    )


def vectors_of(model: Any, rows: EmbeddingRows, batch_size: int) -> np.ndarray:
    """Computes the vectors of rows by an `EmbeddingModel`, [N, K, D]."""
    specs = {
        name: tf.TensorSpec([None, *v.shape[1:-1], None], v.dtype)
        if name != PROMPT_LENGTHS
        else tf.TensorSpec([None, v.shape[1]], v.dtype)
        for name, v in rows.batch(np.arange(1)).items()
    }
    # One graph for all lengths, so that all round alike.
    compute = tf.function(
        functools.partial(model, training=False),
        input_signature=[specs],
        autograph=False,
    )
    lengths = np.asarray(rows.lengths)

    def batches() -> Iterable[tuple[np.ndarray, Outputs]]:
        with Progress("vectors", len(rows), 0, " rows") as progress:
            for chosen in batches_by_length(lengths, batch_size):
                yield chosen, compute(rows.batch(chosen))
                progress.update(len(chosen))

    return rows.gather(batches())[VECTORS]
