"""Which documents become which record files, and how often each is used.

This is decided once all text is tokenised, by the same function for every
runner: only then the sizes of the corpora, near-duplicates, and the number of
documents in each pool are known.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.corpora.sources import sampling_rates
from bert_tf.errors import UserError
from bert_tf.records.near_duplicates import find_near_duplicates
from bert_tf.records.plan import RecordsTask
from bert_tf.records.token_blocks import BlockSummary, block_path, draw_numbers

# Separates these random numbers from those that assign documents to pools.
_PURPOSE = 1
# A held-out random next sentence needs a second held-out document.
_MIN_HELD_OUT_DOCUMENTS = 2
# A random text B should come from many documents: a shard with fewer than
# this borrows the documents of the shards after it.
ENOUGH_DOCUMENTS = 64
MAX_BORROWED_POOLS = 4
_MAX_WARNINGS = 5


@dataclasses.dataclass(frozen=True)
class ShardJob:
    """What a worker needs to write one shard.

    Attributes:
      name: file name of the records.
      pools: the pools whose documents become records, in order.
      borrowed_pools: pools whose documents only serve as random text B, in
        order.
    """

    name: str
    pools: tuple[int, ...]
    borrowed_pools: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Allocation:
    """Which documents of a tokenised corpus become which record files.

    Attributes:
      blocks: summaries of the blocks, in order.
      jobs: the record files; the held-out one is last, if there is one.
      num_documents: documents that are used.
      repeats: how often each document of each block is used, in corpus order,
        int64 [D] each; None if every document is used once.
      corpora: statistics of each corpus by name; empty without repeats.
      warnings: a line for each unusual thing.
    """

    blocks: tuple[BlockSummary, ...]
    jobs: tuple[ShardJob, ...]
    num_documents: int
    repeats: list[np.ndarray] | None
    corpora: dict[str, dict[str, float]]
    warnings: list[str]


def allocate(
    task: RecordsTask,
    blocks: Sequence[BlockSummary],
    document_tokens: Callable[[], Sequence[np.ndarray]],
    folder: pathlib.Path,
) -> Allocation:
    """Allocates the documents of a tokenised corpus to record files.

    Args:
      task: what is built.
      blocks: summaries of all blocks, in order.
      document_tokens: returns the number of tokens of each document of each
        block, in corpus order, int64 [D] each; called only if needed.
      folder: holds the signatures of the blocks' documents, if the recipe drops
        near-duplicates.

    Raises:
      UserError: there is no text or too little, or a corpus would be repeated
        too often.
    """
    plan, recipe = task.plan, task.plan.recipe
    repeats: list[np.ndarray] | None = None
    corpora: dict[str, dict[str, float]] = {}
    if recipe.near_duplicates or set(plan.weights) != {""}:
        repeats, corpora = _count_repeats(
            task, blocks, document_tokens(), folder
        )
    # Documents of each pool that are used; the held-out pool is the last.
    counts = np.zeros(plan.num_shards + 1, dtype=np.int64)
    for number, block in enumerate(blocks):
        pools = plan.assign_pools(block.documents, number)
        if repeats is not None:
            pools = pools[repeats[number] > 0]
        counts += np.bincount(pools, minlength=len(counts))
    total = int(counts.sum())
    whole_documents = total - sum(block.cut for block in blocks)
    if whole_documents in (0, 1):
        names = ", ".join(file.path for file in task.files[:3])
        more = f" and {len(task.files) - 3} more" if task.files[3:] else ""
        if not whole_documents:
            raise UserError(f"`inputs`={names}{more}: holds no text.")
        if recipe.takes_random_texts:
            raise UserError(
                f"`inputs`={names}{more}: is one single document, and a random "
                "next sentence must come from another one; put a blank line "
                "between documents, or pass `random_next_prob`=0."
            )
    smaller = min(counts[:-1].sum(), counts[-1])
    holds_out = bool(smaller >= _MIN_HELD_OUT_DOCUMENTS)
    warnings = [line for block in blocks for line in block.warnings]
    if len(warnings) > _MAX_WARNINGS:
        more = f"{len(warnings) - _MAX_WARNINGS} more lines like these."
        warnings = [*warnings[:_MAX_WARNINGS], more]
    if recipe.held_out and not holds_out:
        # Twice the minimum, because the number is random.
        share = min(2 * _MIN_HELD_OUT_DOCUMENTS / total, 0.5)
        warnings.append(
            f"{total:,} documents are too few to hold out "
            f"{recipe.held_out:.1%} of them; there are no held-out records to "
            f"evaluate a model on. Pass `held_out`={share:.2g} for some."
        )
    return Allocation(
        tuple(blocks),
        tuple(_shard_jobs(counts, holds_out)),
        total,
        repeats,
        corpora,
        warnings,
    )


def _shard_jobs(counts: np.ndarray, holds_out: bool) -> list[ShardJob]:
    """Returns the files to write, given the documents of each pool, [pools]."""
    shards = len(counts) - 1
    # If too few documents can be held out, they join the first file.
    returned = () if holds_out else (shards,)
    jobs = []
    for number in range(shards):
        pools = (number, *(returned if number == 0 else ()))
        others = [(number + k) % shards for k in range(1, shards)]
        others += returned if number else ()
        own = documents = int(counts[list(pools)].sum())
        borrowed: list[int] = []
        for pool in others if own else ():
            enough = len(borrowed) >= MAX_BORROWED_POOLS and documents > 1
            if enough or documents >= ENOUGH_DOCUMENTS:
                break
            if counts[pool]:
                borrowed.append(pool)
                documents += int(counts[pool])
        name = f"records-{number:05d}-of-{shards:05d}.tfrecord"
        jobs.append(ShardJob(name, pools, tuple(borrowed)))
    if holds_out:
        name = "held_out-00000-of-00001.tfrecord"
        jobs.append(ShardJob(name, (shards,), ()))
    return jobs


def _count_repeats(
    task: RecordsTask,
    blocks: Sequence[BlockSummary],
    tokens: Sequence[np.ndarray],
    folder: pathlib.Path,
) -> tuple[list[np.ndarray], dict[str, dict[str, float]]]:
    """Returns `Allocation.repeats` and `Allocation.corpora`."""
    plan, recipe = task.plan, task.plan.recipe
    sizes = [block.documents for block in blocks]
    dropped = np.zeros(sum(sizes), dtype=bool)
    if recipe.near_duplicates:
        paths = [block_path(folder, number) for number in range(len(blocks))]
        dropped = find_near_duplicates(paths, sizes, recipe.near_duplicates)
    dropped_by_block = np.split(dropped, np.cumsum(sizes)[:-1])
    remaining = dict.fromkeys(plan.weights, 0)
    for block, lengths, drop in zip(
        blocks, tokens, dropped_by_block, strict=True
    ):
        remaining[block.corpus] += int(lengths[~drop].sum())
    rates = sampling_rates(remaining, plan.weights, recipe.smoothing)
    corpora: dict[str, dict[str, float]] = {
        name: {
            "documents": 0,
            "tokens": 0,
            "near_duplicates": 0,
            "rate": rate,
            "tokens_taken": 0,
        }
        for name, rate in rates.items()
    }
    repeats = []
    for number, (block, lengths, drop) in enumerate(
        zip(blocks, tokens, dropped_by_block, strict=True)
    ):
        rate = rates[block.corpus]
        # Each document is used floor(rate) times, and once more at random.
        numbers = draw_numbers(len(drop), number, recipe.seed, _PURPOSE)
        more = numbers >> np.uint64(11) < np.uint64(rate % 1 * 2**53)
        times = np.where(drop, 0, int(rate) + more.astype(np.int64))
        repeats.append(times)
        corpus = corpora[block.corpus]
        corpus["documents"] += len(drop)
        corpus["tokens"] += int(lengths.sum())
        corpus["near_duplicates"] += int(drop.sum())
        corpus["tokens_taken"] += int((lengths * times).sum())
    return repeats, corpora
