"""Another vocabulary or another number of positions for a checkpoint."""

import dataclasses
from collections.abc import Callable

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.errors import UserError
from bert_tf.lazy_arrays import LazyArrays, shapes_of_arrays
from bert_tf.text.vocabulary import Vocabulary

_WORDS = "bert/embeddings/word_embeddings"
_WORD_BIAS = "cls/predictions/output_bias"
_POSITIONS = "bert/embeddings/position_embeddings"
# The normal distribution is truncated here, as by the initializer of the model
# (google-research/bert, modeling.py, create_initializer).
_MAX_DEVIATIONS = 2.0
_MAX_POSITIONS = 1_000_000


def replace_vocabulary(
    checkpoint: Checkpoint, vocabulary: Vocabulary, seed: int = 0
) -> tuple[Checkpoint, str]:
    """Gives a checkpoint another vocabulary, rows copied by token.

    The row of a token that the old vocabulary lacks is drawn from the
    truncated normal of `initializer_range`, its bias in the masked LM head is
    0.

    Returns:
      The checkpoint, whose arrays are read when asked for, and a line on what
      became of the rows.
    """
    if checkpoint.vocabulary is None:
        raise UserError(
            f"{checkpoint.source}: has no vocabulary, so its rows cannot be "
            "copied by token."
        )
    old_ids = checkpoint.vocabulary.ids
    ids = [old_ids.get(token, -1) for token in vocabulary.tokens]
    origin = np.array(ids, np.int64)
    new_rows = int((origin < 0).sum())
    old_rows = checkpoint.config.vocab_size
    config = dataclasses.replace(checkpoint.config, vocab_size=len(vocabulary))

    def words() -> np.ndarray:
        drawn = _drawn(checkpoint, new_rows, (seed, 0))
        return _copied_or_drawn(checkpoint.arrays[_WORDS], origin, drawn)

    def word_bias() -> np.ndarray:
        zeros = np.zeros(new_rows, np.float32)
        return _copied_or_drawn(checkpoint.arrays[_WORD_BIAS], origin, zeros)

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
            {_WORDS: words, _WORD_BIAS: word_bias},
        ),
    )
    copied = len(vocabulary) - new_rows
    return changed, (
        f"vocabulary: {copied} of {len(vocabulary)} rows copied by token, "
        f"{new_rows} new ones drawn (truncated normal, standard deviation "
        f"{config.initializer_range:g}, seed {seed}), {old_rows - copied} of "
        f"the old {old_rows} dropped"
    )


def resize_positions(
    checkpoint: Checkpoint, length: int, seed: int = 0
) -> tuple[Checkpoint, str]:
    """Shortens or extends the table of positions.

    New rows are drawn from the truncated normal of `initializer_range`: they
    mean nothing before the model is trained at that length. Returns as
    `replace_vocabulary`.
    """
    if not 1 <= length <= _MAX_POSITIONS:
        raise UserError(
            f"`max_position_embeddings`={length}: must be at least 1 and at "
            f"most {_MAX_POSITIONS}."
        )
    old = checkpoint.config.max_position_embeddings
    kept, new_rows = min(old, length), max(0, length - old)

    def positions() -> np.ndarray:
        rows = checkpoint.arrays[_POSITIONS][:kept]
        drawn = _drawn(checkpoint, new_rows, (seed, 1))
        return np.concatenate([rows, drawn])

    changed = dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(
            checkpoint.config, max_position_embeddings=length
        ),
        arrays=_changed(checkpoint, length, {_POSITIONS: positions}),
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


def _copied_or_drawn(
    old: np.ndarray, origin: np.ndarray, drawn: np.ndarray
) -> np.ndarray:
    """Rows of `old` where origin is not -1, the drawn rows elsewhere."""
    rows = np.empty((len(origin), *old.shape[1:]), np.float32)
    rows[origin >= 0] = old[origin[origin >= 0]]
    rows[origin < 0] = drawn
    return rows


def _drawn(
    checkpoint: Checkpoint, rows: int, seed: tuple[int, int]
) -> np.ndarray:
    """New rows of an embedding table: float32 [rows, H]."""
    random = np.random.default_rng(seed)
    config = checkpoint.config
    values = random.standard_normal(
        (rows, config.hidden_size), dtype=np.float32
    )
    while (outside := np.abs(values) > _MAX_DEVIATIONS).any():
        values[outside] = random.standard_normal(
            int(outside.sum()), dtype=np.float32
        )
    return values * np.float32(config.initializer_range)
