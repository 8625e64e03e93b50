"""How often each document becomes records: left out, once, or repeated.

It is decided when all text is tokenised, as only then it is known how large
the corpora are and which documents repeat others; nothing is read twice.

Near-duplicates. A document is the set of its runs of five tokens (all of it
where it has fewer). Its signature is 128 numbers: the least value that each of
128 hash functions gives to the set (MinHash, Broder 1997); the share in which
two signatures agree estimates the Jaccard similarity, with a standard deviation
of at most 0.044. The signature is split into bands of equal size (the largest
with which two documents at the threshold share a band in 95 of 100 cases). A
document is a near-duplicate if, for one of its bands, the first document of the
corpus with the same band is an earlier one and agrees with it in at least the
threshold. Nothing of it depends on the recipe's seed.

Signatures and bands lie on the disk beside the token blocks, about 0.7 kB a
document. Bands are compared one after the other, and a part of their values at
a time where there are many, so memory is bounded by `_KEYS_AT_ONCE` and one
byte for each document.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.corpora.sources import sampling_rates
from bert_tf.files import write_text, written_beside
from bert_tf.recipe import read_json_object
from bert_tf.records.plan import RecordsPlan
from bert_tf.records.token_blocks import (
    BlockSummary,
    Documents,
    block_path,
    document_tokens,
    draw_numbers,
    mix,
    repeats_path,
)

_SUMMARY_FILE = "visits.json"
# Sets these draws apart from those that deal documents to files.
_PURPOSE = 1

SHINGLE_TOKENS = 5
HASHES = 128
_FOUND_SHARE = 0.95
_KEYS_AT_ONCE = 1 << 21
_PAIRS_AT_ONCE = 1 << 13
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


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


def decide_repeats(
    work_dir: pathlib.Path, blocks: Sequence[BlockSummary], plan: RecordsPlan
) -> dict[str, CorpusSummary]:
    """Writes how often each document of each block is to be used.

    Returns:
      What is taken of each corpus, by name; empty where each document is taken
      once, and nothing is written.

    Raises:
      UserError: a corpus would be repeated beyond all reason.
    """
    if plan.takes_each_document_once:
        return {}
    if (work_dir / _SUMMARY_FILE).exists():
        stored = read_json_object(work_dir / _SUMMARY_FILE)
        return {name: CorpusSummary(**c) for name, c in stored.items()}
    paths = [block_path(work_dir, number) for number in range(len(blocks))]
    # A block's file holds its documents by pool, not in the corpus' order.
    orders = [
        np.argsort(plan.deal(block.documents, number), kind="stable")
        for number, block in enumerate(blocks)
    ]
    tokens = [
        document_tokens(path)[np.argsort(order)]
        for path, order in zip(paths, orders, strict=True)
    ]
    repeats, found = count_repeats(paths, blocks, tokens, plan)
    for path, order, counts in zip(paths, orders, repeats, strict=True):
        with written_beside(repeats_path(path)) as beside:
            counts[order].astype("<u2").tofile(beside)
    values = {name: dataclasses.asdict(c) for name, c in found.items()}
    write_text(work_dir / _SUMMARY_FILE, json.dumps(values))
    return found


def count_repeats(
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
      The repeats of each document of each block in the order of the corpus,
      int64 [d], and a summary of each corpus by name.
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
    all_repeats = []
    for number, (block, sums, out) in enumerate(
        zip(blocks, tokens, left_out, strict=True)
    ):
        repeats = _draw(rates[block.corpus], len(out), number, recipe.seed)
        repeats[out] = 0
        all_repeats.append(repeats)
        before = found[block.corpus]
        found[block.corpus] = CorpusSummary(
            before.documents + len(out),
            before.tokens + int(sums.sum()),
            before.near_duplicates + int(out.sum()),
            before.rate,
            before.tokens_taken + int((sums * repeats).sum()),
        )
    return all_repeats, found


def _draw(rate: float, count: int, block: int, seed: int) -> np.ndarray:
    """How often each document is taken, `rate` times on average, int64 [d].

    Each is taken the whole part of the rate, and once more by chance.
    """
    numbers = draw_numbers(count, block, seed, _PURPOSE)
    more = numbers >> np.uint64(11) < np.uint64(rate % 1 * 2**53)
    return int(rate) + more.astype(np.int64)


def rows_in_a_band(threshold: float) -> int:
    """Numbers of the signature that make a band."""
    rows = 1
    for more in range(2, HASHES // 2 + 1):
        bands = HASHES // more
        if 1 - (1 - threshold**more) ** bands >= _FOUND_SHARE:
            rows = more
    return rows


def signatures(documents: Documents) -> np.ndarray:
    """The MinHash signatures of documents, uint32 [d, 128]."""
    hashes, starts = _shingles(documents)
    constants = mix(np.arange(2 * HASHES, dtype=np.uint64)).astype(np.uint32)
    found = np.empty((len(documents), HASHES), dtype=np.uint32)
    values = np.empty_like(hashes)
    for number in range(HASHES):
        # An odd factor makes it a permutation of 32-bit numbers.
        np.multiply(hashes, constants[2 * number] | np.uint32(1), out=values)
        values += constants[2 * number + 1]
        found[:, number] = np.minimum.reduceat(values, starts)
    return found


def _shingles(documents: Documents) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of all runs of tokens, uint32 [n], and where documents begin."""
    bounds = documents.sentence_starts[documents.document_starts]
    lengths = np.diff(bounds)
    # A place counts if a whole run begins there, or it begins a document.
    counts = np.maximum(lengths - SHINGLE_TOKENS + 1, 1)
    starts = np.cumsum(counts) - counts
    places = np.arange(counts.sum()) + np.repeat(bounds[:-1] - starts, counts)
    left = np.repeat(bounds[1:], counts) - places
    # Beyond the end of a short document stands 0, which no token is.
    ids = np.append(
        documents.ids.astype(np.uint64) + np.uint64(1),
        np.zeros(SHINGLE_TOKENS, dtype=np.uint64),
    )
    hashes = np.zeros(len(places), dtype=np.uint64)
    for step in range(SHINGLE_TOKENS):
        hashes *= _FACTOR
        hashes += np.where(left > step, ids[places + step], np.uint64(0))
    return (mix(hashes) >> np.uint64(32)).astype(np.uint32), starts


def band_keys(found: np.ndarray, rows: int) -> np.ndarray:
    """One number for each band of `rows` numbers, uint64 [bands, d]."""
    keys = np.zeros((HASHES // rows, len(found)), dtype=np.uint64)
    for number in range(keys.shape[0]):
        for value in found[:, number * rows : (number + 1) * rows].T:
            keys[number] = mix(keys[number] ^ value)
    return keys


def signature_path(block: pathlib.Path) -> pathlib.Path:
    """The file with the signatures of a block's documents."""
    return block.with_suffix(".signatures")


def signature_bytes(documents: Documents, threshold: float) -> bytes:
    """The signatures, then the bands, of documents, as in a block's file."""
    found = np.zeros((0, HASHES), dtype=np.uint32)
    if len(documents):
        found = signatures(documents)
    keys = band_keys(found, rows_in_a_band(threshold))
    return found.astype("<u4").tobytes() + keys.astype("<u8").tobytes()


def write_signatures(
    block: pathlib.Path, documents: Documents, threshold: float
) -> None:
    """Writes what `signature_bytes` gives beside a block's file."""
    with written_beside(signature_path(block)) as beside:
        beside.write_bytes(signature_bytes(documents, threshold))


def find_near_duplicates(
    blocks: Sequence[pathlib.Path], counts: Sequence[int], threshold: float
) -> np.ndarray:
    """Which documents nearly repeat an earlier one, bool [d].

    Args:
      blocks: the files of the blocks, each with its signatures beside it.
      counts: documents of each block.
      threshold: of similarity.
    """
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    dropped = np.zeros(starts[-1], dtype=bool)
    for band in range(HASHES // rows_in_a_band(threshold)):
        for followers, firsts in _candidates(blocks, starts, band):
            open_ones = ~dropped[followers]
            followers, firsts = followers[open_ones], firsts[open_ones]
            for at in range(0, len(followers), _PAIRS_AT_ONCE):
                some = slice(at, at + _PAIRS_AT_ONCE)
                agree = np.mean(
                    _read_rows(blocks, starts, followers[some])
                    == _read_rows(blocks, starts, firsts[some]),
                    axis=1,
                )
                dropped[followers[some]] = agree >= threshold
    return dropped


def _candidates(
    blocks: Sequence[pathlib.Path], starts: np.ndarray, band: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Documents that share a band with an earlier one, and the first of it."""
    parts = -(-int(starts[-1]) // _KEYS_AT_ONCE)
    for part in range(parts):
        all_keys, all_documents = [], []
        for number, block in enumerate(blocks):
            count = int(starts[number + 1] - starts[number])
            # The signatures of all documents stand before the bands.
            keys = np.fromfile(
                signature_path(block),
                dtype="<u8",
                count=count,
                offset=count * HASHES * 4 + band * count * 8,
            )
            chosen = np.flatnonzero(keys % np.uint64(parts) == part)
            all_keys.append(keys[chosen])
            all_documents.append(chosen + starts[number])
        keys = np.concatenate(all_keys)
        documents = np.concatenate(all_documents)
        order = np.argsort(keys, kind="stable")
        keys, documents = keys[order], documents[order]
        begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        firsts = np.repeat(
            documents[begins], np.diff(np.append(begins, len(keys)))
        )
        follows = documents != firsts
        yield documents[follows], firsts[follows]


def _read_rows(
    blocks: Sequence[pathlib.Path], starts: np.ndarray, documents: np.ndarray
) -> np.ndarray:
    """The signatures of some documents, uint32 [d, 128]."""
    rows = np.empty((len(documents), HASHES), dtype=np.uint32)
    where = np.searchsorted(starts, documents, side="right") - 1
    for number in np.unique(where):
        count = int(starts[number + 1] - starts[number])
        stored = np.memmap(
            signature_path(blocks[number]),
            dtype="<u4",
            mode="r",
            shape=(count, HASHES),
        )
        chosen = where == number
        rows[chosen] = stored[documents[chosen] - starts[number]]
    return rows
