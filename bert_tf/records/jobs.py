"""Which documents each record file is made of, and what they all came to.

Both follow from the plan, the counts of the tokenised blocks and the pools'
documents, wherever the blocks and the files are made.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.corpora.sources import CorpusFile
from bert_tf.errors import UserError
from bert_tf.records.folder import Manifest, Packing, shard_name
from bert_tf.records.plan import RecordsPlan
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.shards import ShardJob, ShardResult
from bert_tf.records.tokenized_corpus import BlockSummary
from bert_tf.records.visits import CorpusSummary

# A held-out random next sentence needs a second held-out document.
_FEWEST_DOCUMENTS = 2
# A random text B should come from many documents: a shard with fewer than
# this borrows the documents of the shards after it.
ENOUGH_DOCUMENTS = 64
MOST_BORROWED_POOLS = 4
_MOST_WARNINGS = 5


def _borrowed_pools(
    pools: Sequence[int], lending_pools: Sequence[int], counts: np.ndarray
) -> tuple[int, ...]:
    """The pools that lend to a shard of few documents.

    Args:
      pools: the shard's own.
      lending_pools: in the order in which they are asked.
      counts: documents of each pool, int64 [shards + 1].
    """
    own = documents = int(counts[list(pools)].sum())
    borrowed: list[int] = []
    for pool in lending_pools:
        enough = len(borrowed) >= MOST_BORROWED_POOLS and documents > 1
        if not own or documents >= ENOUGH_DOCUMENTS or enough:
            break
        if counts[pool]:
            borrowed.append(pool)
            documents += int(counts[pool])
    return tuple(borrowed)


def plan_jobs(plan: RecordsPlan, counts: np.ndarray) -> list[ShardJob]:
    """The files to write; the held-out one last, if there is one.

    Args:
      plan: what is to be built.
      counts: documents of each pool, the held-out one last, int64 [shards + 1].
    """
    shards = plan.num_shards
    fewest = min(counts[:shards].sum(), counts[shards])
    held_out = fewest >= _FEWEST_DOCUMENTS
    # Documents that were to be held out and cannot be join the first file.
    returned = () if held_out else (shards,)
    jobs = []
    for number in range(shards):
        pools = (number, *(returned if number == 0 else ()))
        others = [(number + k) % shards for k in range(1, shards)]
        others += returned if number else ()
        jobs.append(
            ShardJob(
                shard_name("records", number, shards),
                pools,
                _borrowed_pools(pools, others, counts),
            )
        )
    if held_out:
        jobs.append(ShardJob(shard_name("held_out", 0, 1), (shards,), ()))
    return jobs


def held_out_warnings(
    plan: RecordsPlan, jobs: Sequence[ShardJob], counts: np.ndarray
) -> list[str]:
    """A line where nothing can be held out although the recipe asks for it."""
    if not plan.recipe.held_out or len(jobs) > plan.num_shards:
        return []
    return [
        f"{counts.sum():,} documents are too few to hold out "
        f"{plan.recipe.held_out:.1%} of them; there are no held-out records."
    ]


def first_warnings(warnings: Sequence[str]) -> list[str]:
    """The first few warnings, and how many more there are."""
    found = list(warnings[:_MOST_WARNINGS])
    if len(warnings) > _MOST_WARNINGS:
        found.append(f"{len(warnings) - _MOST_WARNINGS} more lines like these.")
    return found


def check_documents(
    files: Sequence[CorpusFile],
    blocks: Sequence[BlockSummary],
    counts: np.ndarray,
) -> None:
    """Refuses text of which no pairs can be made.

    Args:
      files: the input files, for the error.
      blocks: what they came to.
      counts: documents of each pool, int64 [shards + 1].

    Raises:
      UserError: there is no document, or one alone.
    """
    names = ", ".join(file.path for file in files[:3])
    more = f" and {len(files) - 3} more" if files[3:] else ""
    documents = int(counts.sum()) - sum(block.cut for block in blocks)
    if not documents:
        raise UserError(f"`inputs`={names}{more}: holds no text.")
    if documents == 1:
        raise UserError(
            f"`inputs`={names}{more}: is one single document, and a random "
            "next sentence must come from another one; put a blank line "
            "between documents."
        )


def manifest_of(
    plan: RecordsPlan,
    blocks: Sequence[BlockSummary],
    corpora: Mapping[str, CorpusSummary],
    results: Sequence[ShardResult],
) -> Manifest:
    """What a finished folder says of itself.

    Args:
      plan: what was built.
      blocks: what the text came to.
      corpora: what was taken of each corpus.
      results: of each job, in their order.
    """
    num_training = plan.num_shards
    training, held_out = results[:num_training], results[num_training:]
    statistics = {
        "documents": sum(block.documents for block in blocks),
        "sentences": sum(block.sentences for block in blocks),
        "tokens": sum(block.tokens for block in blocks),
        "unknown": sum(block.unknown for block in blocks),
        "near_duplicates": sum(
            corpus.near_duplicates for corpus in corpora.values()
        ),
        "passes": plan.recipe.dupe_factor,
        "shards": num_training,
        "records": sum(r.records for r in training),
        "random_next": sum(r.random_next for r in training),
        "record_tokens": sum(r.tokens for r in training),
        "tokens_cut": sum(r.tokens_cut for r in training),
        "held_out_documents": sum(r.documents for r in held_out),
        "held_out_records": sum(r.records for r in held_out),
    }
    return Manifest(
        plan.vocabulary_digest,
        plan.inputs,
        tuple((r.name, r.records, r.size) for r in training),
        tuple((r.name, r.records, r.size) for r in held_out),
        statistics,
        {name: dataclasses.asdict(c) for name, c in corpora.items()},
        _packing_of(plan.recipe, training, held_out),
    )


def _packing_of(
    recipe: RecordsRecipe,
    training: Sequence[ShardResult],
    held_out: Sequence[ShardResult],
) -> Packing | None:
    """How full packed records are."""
    if not recipe.packing:
        return None
    everything = [*training, *held_out]
    places = sum(r.records for r in training) * recipe.max_seq_length
    tokens = sum(r.tokens for r in training)
    return Packing(
        sequences=sum(r.sequences for r in training),
        held_out_sequences=sum(r.sequences for r in held_out),
        most_sequences=max(r.most_sequences for r in everything),
        most_predictions=max(r.most_predictions for r in everything),
        filled=tokens / max(places, 1),
    )
