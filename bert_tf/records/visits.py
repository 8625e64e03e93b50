"""How often each document becomes records: left out, once, or repeated.

It is decided when all text is tokenised, as only then it is known how large
the corpora are and which documents repeat others; nothing is read twice.
"""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

import numpy as np

from bert_tf.corpora.mixing import sampling_rates
from bert_tf.files import write_text, written_beside
from bert_tf.recipe import read_json_object
from bert_tf.records.near_duplicates import find_near_duplicates
from bert_tf.records.plan import RecordsPlan
from bert_tf.records.shards import block_path
from bert_tf.records.token_blocks import (
    deal_documents,
    document_tokens,
    draw_numbers,
    visits_path,
)
from bert_tf.records.tokenized_corpus import BlockSummary

_SUMMARY_FILE = "visits.json"
# Sets these draws apart from those that deal documents to files.
_PURPOSE = 1


@dataclasses.dataclass(frozen=True)
class CorpusSummary:
    """What was taken of a corpus.

    Attributes:
      documents, tokens: of its text.
      near_duplicates: documents that were left out as such.
      rate: how often, on average, each of the others is taken.
      tokens_taken: tokens of the documents, as often as they are taken.
    """

    documents: int
    tokens: int
    near_duplicates: int
    rate: float
    tokens_taken: int


def takes_each_once(plan: RecordsPlan) -> bool:
    """Whether each document is taken once, and nothing is to be decided."""
    return not plan.recipe.near_duplicates and set(plan.weights) == {""}


def decide_visits(
    work_dir: pathlib.Path, blocks: Sequence[BlockSummary], plan: RecordsPlan
) -> dict[str, CorpusSummary]:
    """Writes how often each document of each block is to be used.

    Args:
      work_dir: folder of the block files.
      blocks: what they hold.
      plan: the corpora, their weights, the seed and the recipe.

    Returns:
      What is taken of each corpus, by name; empty where each document is taken
      once, and nothing is written.

    Raises:
      UserError: a corpus would be repeated beyond all reason.
    """
    if takes_each_once(plan):
        return {}
    if (work_dir / _SUMMARY_FILE).exists():
        stored = read_json_object(work_dir / _SUMMARY_FILE)
        return {name: CorpusSummary(**c) for name, c in stored.items()}
    paths = [block_path(work_dir, number) for number in range(len(blocks))]
    tokens = [
        _in_corpus_order(document_tokens(path), number, plan)
        for number, path in enumerate(paths)
    ]
    visits, found = count_visits(paths, blocks, tokens, plan)
    for number, (path, counts) in enumerate(zip(paths, visits, strict=True)):
        _write(path, counts[_file_order(len(counts), number, plan)])
    values = {name: dataclasses.asdict(c) for name, c in found.items()}
    write_text(work_dir / _SUMMARY_FILE, json.dumps(values))
    return found


def count_visits(
    paths: Sequence[pathlib.Path],
    blocks: Sequence[BlockSummary],
    tokens: Sequence[np.ndarray],
    plan: RecordsPlan,
) -> tuple[list[np.ndarray], dict[str, CorpusSummary]]:
    """How often each document is to be used, and what is taken of a corpus.

    Args:
      paths: where the blocks lie; beside them are the signatures of their
        documents, if near-duplicates are to be left out.
      blocks: what they hold.
      tokens: of each document of each block, in the order of the corpus,
        int64 [d].
      plan: the corpora, their weights, the seed and the recipe.

    Returns:
      The visits of each document of each block in the order of the corpus,
      int64 [d], and a summary of each corpus by name.

    Raises:
      UserError: a corpus would be repeated beyond all reason.
    """
    recipe = plan.recipe
    counts = [block.documents for block in blocks]
    dropped = np.zeros(sum(counts), dtype=bool)
    if recipe.near_duplicates:
        dropped = find_near_duplicates(paths, counts, recipe.near_duplicates)
    left_out = np.split(dropped, np.cumsum(counts)[:-1])
    sizes = dict.fromkeys(plan.weights, 0)
    for block, sums, out in zip(blocks, tokens, left_out, strict=True):
        sizes[block.corpus] += int(sums[~out].sum())
    rates = sampling_rates(sizes, plan.weights, recipe.smoothing)
    found = {name: CorpusSummary(0, 0, 0, rates[name], 0) for name in rates}
    all_visits = []
    for number, (block, sums, out) in enumerate(
        zip(blocks, tokens, left_out, strict=True)
    ):
        visits = _draw(rates[block.corpus], len(out), number, recipe.seed)
        visits[out] = 0
        all_visits.append(visits)
        before = found[block.corpus]
        found[block.corpus] = CorpusSummary(
            before.documents + len(out),
            before.tokens + int(sums.sum()),
            before.near_duplicates + int(out.sum()),
            before.rate,
            before.tokens_taken + int((sums * visits).sum()),
        )
    return all_visits, found


def _draw(rate: float, count: int, block: int, seed: int) -> np.ndarray:
    """How often each document is taken, `rate` times on average, int64 [d].

    Each is taken the whole part of the rate, and once more by chance.
    """
    numbers = draw_numbers(count, block, seed, _PURPOSE)
    more = numbers >> np.uint64(11) < np.uint64(rate % 1 * 2**53)
    return int(rate) + more.astype(np.int64)


def _file_order(count: int, block: int, plan: RecordsPlan) -> np.ndarray:
    """The order in which a block's file holds its documents, int64 [d]."""
    pools = deal_documents(
        count, block, plan.recipe.seed, plan.num_shards, plan.recipe.held_out
    )
    return np.argsort(pools, kind="stable")


def _in_corpus_order(
    values: np.ndarray, block: int, plan: RecordsPlan
) -> np.ndarray:
    """Values of a block's documents, put in the order of the corpus."""
    found = np.empty_like(values)
    found[_file_order(len(values), block, plan)] = values
    return found


def _write(block: pathlib.Path, visits: np.ndarray) -> None:
    with written_beside(visits_path(block)) as beside:
        visits.astype("<u2").tofile(beside)
