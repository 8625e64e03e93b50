"""Another vocabulary or another number of positions for a checkpoint."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.layout import all_parts, encoder_parts
from bert_tf.errors import UserError, whole_number
from bert_tf.lazy_arrays import LazyArrays, shapes_of_arrays
from bert_tf.text.token_table import TokenTable

# The normal distribution is truncated here, as by the initializer of the model
# (google-research/bert, modeling.py, create_initializer).
_MAX_DEVIATIONS = 2.0
_MAX_POSITIONS = 1_000_000


def replace_vocabulary(
    checkpoint: Checkpoint, vocabulary: TokenTable, seed: int = 0
) -> tuple[Checkpoint, str]:
    """Gives a checkpoint another vocabulary, rows copied by token.

    A special token takes the row of the old one of the same use.

    The row of a token that the old vocabulary lacks, and its bias in the masked
    LM head, are the means of those of the pieces that it was split into (Gee et
    al. 2022, Fast Vocabulary Transfer). Where it was [UNK], or is a name in
    brackets, the row is drawn from the truncated normal of
    `initializer_range`, and the bias is 0.

    Returns:
      The checkpoint, whose arrays are read when asked for, and a line on what
      became of the rows.
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

    def words() -> np.ndarray:
        rows = _means(checkpoint.arrays[table], sources)
        rows[is_drawn] = _drawn(checkpoint, drawn, (seed, 0))
        return rows

    def mean_of(name: str) -> np.ndarray:
        return _means(checkpoint.arrays[name], sources)

    changed = dataclasses.replace(
        checkpoint,
        config=config,
        vocabulary=vocabulary,
        added_tokens=tuple(
            token
            for token in checkpoint.added_tokens
            if token.content in vocabulary.ids
        ),
        arrays=_changed(
            checkpoint,
            len(vocabulary),
            {table: words}
            | {name: functools.partial(mean_of, name) for name in vectors},
        ),
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
    """Shortens or extends the table of positions.

    New rows are drawn from the truncated normal of `initializer_range`: they
    mean nothing before the model is trained at that length. Returns as
    `replace_vocabulary`.
    """
    whole_number("max_position_embeddings", length, 1, _MAX_POSITIONS)
    old = checkpoint.config.max_position_embeddings
    kept, new_rows = min(old, length), max(0, length - old)
    (table,) = (
        part.ours
        for part in encoder_parts(checkpoint.config)
        if part.sizes[0] == "max_position_embeddings"
    )

    def positions() -> np.ndarray:
        rows = checkpoint.arrays[table][:kept]
        drawn = _drawn(checkpoint, new_rows, (seed, 1))
        return np.concatenate([rows, drawn])

    changed = dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(
            checkpoint.config, max_position_embeddings=length
        ),
        arrays=_changed(checkpoint, length, {table: positions}),
    )
    if not new_rows:
        return changed, f"positions: the first {kept} of {old} kept"
    return changed, (
        f"positions: {kept} copied, {new_rows} new ones drawn (truncated "
        f"normal, standard deviation {changed.config.initializer_range:g}, "
        f"seed {seed}); train at that length before use"
    )


def _changed(
    checkpoint: Checkpoint,
    rows: int,
    readers: dict[str, Callable[[], np.ndarray]],
) -> LazyArrays:
    """The arrays with some read otherwise, which have `rows` rows then."""
    arrays = checkpoint.arrays
    shapes = shapes_of_arrays(arrays)
    for name in readers.keys() & shapes.keys():
        shapes[name] = (rows, *shapes[name][1:])
    return LazyArrays(
        shapes,
        lambda name: readers[name]() if name in readers else arrays[name],
    )


def _means(old: np.ndarray, sources: list[Sequence[int]]) -> np.ndarray:
    """The mean of some rows of `old` for each new one; of none, 0."""
    counts = np.array([len(rows) for rows in sources])
    there = counts > 0
    places = np.concatenate([np.array(rows, np.int64) for rows in sources])
    begins = (np.cumsum(counts) - counts)[there]
    new = np.zeros((len(sources), *old.shape[1:]), np.float32)
    sums = np.add.reduceat(old[places], begins, axis=0)
    new[there] = (sums.T / counts[there]).T
    return new


def _drawn(
    checkpoint: Checkpoint, rows: int, seed: tuple[int, int]
) -> np.ndarray:
    """New rows of an embedding table: float32 [rows, H]."""
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
