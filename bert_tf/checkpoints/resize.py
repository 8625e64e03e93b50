"""Replaces the vocabulary or the number of positions of a checkpoint."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.layout import all_parts, encoder_parts
from bert_tf.errors import UserError, whole_number
from bert_tf.lazy_arrays import changed_arrays, shapes_of_arrays
from bert_tf.text.token_table import TokenTable

# Truncation of the normal distribution, as in the model's initializer
# (google-research/bert, modeling.py, create_initializer).
_MAX_DEVIATIONS = 2.0
_MAX_POSITIONS = 1_000_000


def replace_vocabulary(
    checkpoint: Checkpoint, vocabulary: TokenTable, seed: int = 0
) -> tuple[Checkpoint, str]:
    """Replaces the vocabulary of a checkpoint and copies rows by token.

    A special token takes the row of the old one with the same role. The row of
    a new token, and its bias in the masked LM head, are the means of those of
    the pieces into which the old tokenizer split it (Gee et al. 2022, Fast
    Vocabulary Transfer). If that was [UNK], or the token is in brackets, the
    row is drawn from the truncated normal of `initializer_range`, and the bias
    is 0.

    Args:
      checkpoint: a model with a vocabulary.
      vocabulary: the new tokens.
      seed: of the drawn rows.

    Returns:
      The checkpoint, whose arrays are read at each access, and a line that
      counts copied, averaged, drawn and dropped rows.

    Raises:
      UserError: the checkpoint has no vocabulary.
    """
    if checkpoint.tokenizer is None:
        raise UserError(
            f"{checkpoint.source}: has no vocabulary, so its rows cannot be "
            "copied by token."
        )
    old = checkpoint.tokenizer.vocabulary
    special = dict(zip(vocabulary.special, old.special, strict=True))
    tokens = [special.get(token) or token for token in vocabulary.tokens]
    sources = checkpoint.tokenizer.pieces_of(tokens)
    is_drawn = np.array([not pieces for pieces in sources])
    copied = sum(token in old.ids for token in tokens)
    kept = len(old.ids.keys() & set(tokens))
    drawn = int(is_drawn.sum())
    old_rows = checkpoint.config.vocab_size
    config = dataclasses.replace(checkpoint.config, vocab_size=len(vocabulary))
    table, *vectors = (
        part.ours
        for part in all_parts(config)
        if part.sizes[:1] == ("vocab_size",)
    )

    def read(name: str) -> np.ndarray:
        rows = _means(checkpoint.arrays[name], sources)
        if name == table:
            rows[is_drawn] = _drawn(checkpoint, drawn, (seed, 0))
        return rows

    given = shapes_of_arrays(checkpoint.arrays)
    shapes = {
        name: (len(vocabulary), *given[name][1:])
        for name in (table, *vectors)
        if name in given
    }

    changed = dataclasses.replace(
        checkpoint,
        config=config,
        vocabulary=vocabulary,
        added_tokens=tuple(
            token
            for token in checkpoint.added_tokens
            if token.content in vocabulary.ids
        ),
        arrays=changed_arrays(checkpoint.arrays, shapes, read),
    )
    return changed, (
        f"vocabulary: {copied} of {len(vocabulary)} rows copied by token, "
        f"{len(vocabulary) - copied - drawn} new ones are the mean of the "
        f"pieces that they were, {drawn} drawn (truncated normal, standard "
        f"deviation {config.initializer_range:g}, seed {seed}), "
        f"{old_rows - kept} of the old {old_rows} dropped"
    )


def resize_positions(
    checkpoint: Checkpoint, length: int, seed: int = 0
) -> tuple[Checkpoint, str]:
    """Shortens or extends the table of positions; see `replace_vocabulary`.

    New rows are drawn from the truncated normal of `initializer_range`; the
    model must be trained at that length.
    """
    whole_number("max_position_embeddings", length, 1, _MAX_POSITIONS)
    old = checkpoint.config.max_position_embeddings
    kept, new_rows = min(old, length), max(0, length - old)
    (table,) = (
        part.ours
        for part in encoder_parts(checkpoint.config)
        if part.sizes[0] == "max_position_embeddings"
    )

    def read(name: str) -> np.ndarray:
        rows = checkpoint.arrays[name][:kept]
        drawn = _drawn(checkpoint, new_rows, (seed, 1))
        return np.concatenate([rows, drawn])

    width = checkpoint.config.embedding_size
    changed = dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(
            checkpoint.config, max_position_embeddings=length
        ),
        arrays=changed_arrays(
            checkpoint.arrays, {table: (length, width)}, read
        ),
    )
    if not new_rows:
        return changed, f"positions: the first {kept} of {old} kept"
    return changed, (
        f"positions: {kept} copied, {new_rows} new ones drawn (truncated "
        f"normal, standard deviation {changed.config.initializer_range:g}, "
        f"seed {seed}); train at that length before use"
    )


def _means(old: np.ndarray, sources: list[Sequence[int]]) -> np.ndarray:
    """Returns the mean of the rows in each list of indices; 0 if empty."""
    counts = np.array([len(rows) for rows in sources])
    filled = counts > 0
    indices = np.concatenate([np.array(rows, np.int64) for rows in sources])
    starts = (np.cumsum(counts) - counts)[filled]
    new = np.zeros((len(sources), *old.shape[1:]), np.float32)
    sums = np.add.reduceat(old[indices], starts, axis=0)
    new[filled] = (sums.T / counts[filled]).T
    return new


def _drawn(
    checkpoint: Checkpoint, rows: int, seed: tuple[int, int]
) -> np.ndarray:
    """Draws rows of an embedding table, float32 [rows, E]."""
    random = np.random.default_rng(seed)
    config = checkpoint.config
    values = random.standard_normal(
        (rows, config.embedding_size), dtype=np.float32
    )
    while (outside := np.abs(values) > _MAX_DEVIATIONS).any():
        values[outside] = random.standard_normal(
            int(outside.sum()), dtype=np.float32
        )
    return values * np.float32(config.initializer_range)
