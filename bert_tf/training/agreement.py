"""Whether the workers of a run are about to do the same."""

import functools
import hashlib
import importlib.metadata
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.training.strategies import cluster_of, collect, share_rows

_PACKAGES = ("tensorflow", "keras", "numpy")


def gather_numbers(
    strategy: tf.distribute.Strategy, numbers: Sequence[int]
) -> np.ndarray:
    """What every worker gives, told to all; they wait for each other.

    Args:
      strategy: the distribution strategy.
      numbers: as many on every worker.

    Returns:
      int64 [workers, numbers].
    """
    mine = np.array([numbers], np.int64)
    workers = len(cluster_of(strategy).workers)
    if workers == 1:
        return mine
    rows = collect(strategy, _gather(strategy)(tf.constant(mine)))
    # A row of each device; those of a worker are equal and stand together.
    return rows[:: strategy.num_replicas_in_sync // workers]


@functools.cache
def _gather(
    strategy: tf.distribute.Strategy,
) -> Callable[[tf.Tensor], object]:
    """The operation, traced once for every number of numbers."""
    return tf.function(
        lambda row: strategy.run(lambda r: share_rows(strategy, r), (row,))
    )


def _number(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)


@functools.cache
def _code() -> str:
    """A digest of this package and of what it computes with."""
    found = hashlib.sha256()
    folder = pathlib.Path(__file__).parent.parent
    for path in sorted(folder.rglob("*.py")):
        found.update(str(path.relative_to(folder)).encode())
        found.update(path.read_bytes())
    for name in _PACKAGES:
        found.update(importlib.metadata.version(name).encode())
    return found.hexdigest()


def check_agreement(
    strategy: tf.distribute.Strategy, facts: Mapping[str, object]
) -> None:
    """Refuses workers that would not do the same.

    Args:
      strategy: the distribution strategy.
      facts: what must be equal on all workers, by what to call it.

    Raises:
      UserError: it is not, or the workers run different code; raised on every
        worker.
    """
    cluster = cluster_of(strategy)
    if len(cluster.workers) == 1:
        return

    def compare(names: Sequence[str], texts: Sequence[str]) -> None:
        table = gather_numbers(strategy, [_number(text) for text in texts])
        for index, row in enumerate(table):
            different = [
                name
                for name, theirs, chiefs in zip(
                    names, row, table[0], strict=True
                )
                if theirs != chiefs
            ]
            if different:
                raise UserError(
                    f"{cluster.name(index)} has another "
                    f"{' and another '.join(different)} than "
                    f"{cluster.name(0)}; start the same command, of the same "
                    "version and with the same files, on every worker."
                )

    # First, since other code may have other facts.
    compare(["version of bert_tf, TensorFlow, Keras or NumPy"], [_code()])
    compare(list(facts), [repr(value) for value in facts.values()])
