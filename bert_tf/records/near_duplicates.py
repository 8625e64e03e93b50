"""Finds near-duplicate documents by MinHash signatures.

A document is the set of its shingles, runs of five tokens (the whole document
if it is shorter). Its signature is 128 numbers: the minimum of each of 128 hash
functions over the set (MinHash, Broder 1997). The share of equal numbers in two
signatures estimates the Jaccard similarity, with a standard deviation of at
most 0.044. The signature is split into bands of equal size: the largest size
with which two documents at the threshold have an equal band in 95 of 100 cases.
A document is a near-duplicate if, for one of its bands, the first document of
the corpus with an equal band is an earlier one, and their estimated similarity
reaches the threshold. None of this depends on the recipe's seed.

Signatures and bands are on disk next to the token blocks, about 0.7 kB per
document. Bands are compared one after the other, at most `_KEYS_AT_ONCE` values
at a time, so memory is bounded but for one byte per document.
"""

import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.records.token_blocks import Documents, mix

SHINGLE_TOKENS = 5
HASHES = 128
_RECALL = 0.95
_KEYS_AT_ONCE = 1 << 21
_PAIRS_AT_ONCE = 1 << 13
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def rows_in_a_band(threshold: float) -> int:
    """Returns how many numbers of the signature form a band."""
    rows = 1
    for more in range(2, HASHES // 2 + 1):
        bands = HASHES // more
        if 1 - (1 - threshold**more) ** bands >= _RECALL:
            rows = more
    return rows


def signatures(documents: Documents) -> np.ndarray:
    """Computes the MinHash signatures of documents, uint32 [D, 128]."""
    hashes, starts = _shingles(documents)
    constants = mix(np.arange(2 * HASHES, dtype=np.uint64)).astype(np.uint32)
    minima = np.empty((len(documents), HASHES), dtype=np.uint32)
    values = np.empty_like(hashes)
    for number in range(HASHES):
        # Multiplication by an odd number permutes the 32-bit numbers.
        np.multiply(hashes, constants[2 * number] | np.uint32(1), out=values)
        values += constants[2 * number + 1]
        minima[:, number] = np.minimum.reduceat(values, starts)
    return minima


def _shingles(documents: Documents) -> tuple[np.ndarray, np.ndarray]:
    """Returns hashes of all shingles, uint32 [n], and each document's first."""
    bounds = documents.sentence_starts[documents.document_starts]
    lengths = np.diff(bounds)
    # A shingle starts at each token that four others follow, or at the first.
    counts = np.maximum(lengths - SHINGLE_TOKENS + 1, 1)
    starts = np.cumsum(counts) - counts
    token_indices = np.arange(counts.sum()) + np.repeat(
        bounds[:-1] - starts, counts
    )
    left = np.repeat(bounds[1:], counts) - token_indices
    # Short documents are padded with 0; tokens are shifted by one.
    ids = np.append(
        documents.ids.astype(np.uint64) + np.uint64(1),
        np.zeros(SHINGLE_TOKENS, dtype=np.uint64),
    )
    hashes = np.zeros(len(token_indices), dtype=np.uint64)
    for step in range(SHINGLE_TOKENS):
        hashes *= _FACTOR
        hashes += np.where(left > step, ids[token_indices + step], np.uint64(0))
    return (mix(hashes) >> np.uint64(32)).astype(np.uint32), starts


def band_keys(minima: np.ndarray, rows: int) -> np.ndarray:
    """Hashes each band of `rows` numbers, uint64 [bands, D]."""
    keys = np.zeros((HASHES // rows, len(minima)), dtype=np.uint64)
    for number in range(keys.shape[0]):
        for value in minima[:, number * rows : (number + 1) * rows].T:
            keys[number] = mix(keys[number] ^ value)
    return keys


def signature_path(block: pathlib.Path) -> pathlib.Path:
    """Returns the signature file of a block, given the block file."""
    return block.with_suffix(".signatures")


def signature_bytes(documents: Documents, threshold: float) -> bytes:
    """Returns signatures and bands of documents, as a signature file."""
    minima = np.zeros((0, HASHES), dtype=np.uint32)
    if len(documents):
        minima = signatures(documents)
    keys = band_keys(minima, rows_in_a_band(threshold))
    return minima.astype("<u4").tobytes() + keys.astype("<u8").tobytes()


def find_near_duplicates(
    blocks: Sequence[pathlib.Path], counts: Sequence[int], threshold: float
) -> np.ndarray:
    """Finds documents that nearly repeat an earlier one.

    Args:
      blocks: the block files, each with a signature file next to it.
      counts: documents of each block.
      threshold: the Jaccard similarity of near-duplicates.

    Returns:
      Whether each document is a near-duplicate, bool [D].
    """
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    dropped = np.zeros(starts[-1], dtype=bool)
    for band in range(HASHES // rows_in_a_band(threshold)):
        for followers, firsts in _candidates(blocks, starts, band):
            undecided = ~dropped[followers]
            followers, firsts = followers[undecided], firsts[undecided]
            for at in range(0, len(followers), _PAIRS_AT_ONCE):
                chunk = slice(at, at + _PAIRS_AT_ONCE)
                agree = np.mean(
                    _read_rows(blocks, starts, followers[chunk])
                    == _read_rows(blocks, starts, firsts[chunk]),
                    axis=1,
                )
                dropped[followers[chunk]] = agree >= threshold
    return dropped


def _candidates(
    blocks: Sequence[pathlib.Path], starts: np.ndarray, band: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields documents that share a band with an earlier one, and the first."""
    parts = -(-int(starts[-1]) // _KEYS_AT_ONCE)
    for part in range(parts):
        all_keys, all_documents = [], []
        for number, block in enumerate(blocks):
            count = int(starts[number + 1] - starts[number])
            # The bands follow the signatures of all documents.
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
    """Reads the signatures of documents, uint32 [D, 128]."""
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
