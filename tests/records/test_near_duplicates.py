import pathlib
import random

import numpy as np
import pytest
from records_corpus import documents, flat

from bert_tf.records import near_duplicates
from bert_tf.records.near_duplicates import (
    HASHES,
    band_keys,
    find_near_duplicates,
    rows_in_a_band,
    signature_bytes,
    signature_path,
    signatures,
)

Corpus = list[list[list[int]]]


def runs(document: list[list[int]]) -> set[tuple[int, ...]]:
    tokens = [token for sentence in document for token in sentence]
    starts = range(max(len(tokens) - 4, 1))
    return {tuple(tokens[start : start + 5]) for start in starts}


def similarity(one: list[list[int]], other: list[list[int]]) -> float:
    a, b = runs(one), runs(other)
    return len(a & b) / len(a | b)


def changed(document: list[list[int]], share: float, seed: int) -> list:
    rng = random.Random(seed)
    return [
        [rng.randint(500, 999) if rng.random() < share else t for t in sentence]
        for sentence in document
    ]


def long_documents(count: int, seed: int = 1) -> Corpus:
    return [
        [
            sentence
            for part in documents(8, seed * 1000 + n)
            for sentence in part
        ]
        for n in range(count)
    ]


def test_signatures_estimate_the_similarity() -> None:
    originals = long_documents(60)
    shares = [0.0, 0.005, 0.02, 0.05, 0.1, 1.0] * 10
    others = [
        changed(d, share, n)
        for n, (d, share) in enumerate(zip(originals, shares, strict=True))
    ]
    agree = (signatures(flat(originals)) == signatures(flat(others))).mean(1)
    true = [similarity(*pair) for pair in zip(originals, others, strict=True)]
    errors = agree - np.array(true)
    assert abs(errors).max() < 4 * 0.5 / HASHES**0.5
    assert abs(errors.mean()) < 4 * 0.5 / (HASHES * 60) ** 0.5
    assert (agree[::6] == 1).all()


def test_a_signature_is_that_of_the_set_of_runs() -> None:
    text = [[1, 2, 3], [4, 5, 6, 7], [8]]
    corpus = [text, [[1, 2], [3, 4, 5, 6, 7, 8]], [[*range(1, 9)] * 3], [[5]]]
    corpus += [[[5, 6]], [[5], [6]], [[6, 5]], text[::-1]]
    found = signatures(flat(corpus))
    assert (found[0] == found[1]).all()
    assert (found[4] == found[5]).all()
    for one, other in ((0, 2), (3, 4), (4, 6), (0, 7)):
        assert (found[one] != found[other]).any()
    # A document's signature does not depend on its neighbours.
    for number, document in enumerate(corpus):
        assert (signatures(flat([document]))[0] == found[number]).all()


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8, 0.95, 1.0])
def test_bands_find_what_is_at_the_threshold(threshold: float) -> None:
    def found(rows: int) -> float:
        return 1 - (1 - threshold**rows) ** (HASHES // rows)

    rows = rows_in_a_band(threshold)
    assert found(rows) >= 0.95
    assert rows == 64 or found(rows + 1) < 0.95


def in_blocks(
    folder: pathlib.Path, corpus: Corpus, sizes: list[int], threshold: float
) -> np.ndarray:
    paths, start = [], 0
    for number, size in enumerate(sizes):
        paths.append(folder / f"block-{number:06d}.tokens")
        part = flat(corpus[start : start + size])
        signature_path(paths[-1]).write_bytes(signature_bytes(part, threshold))
        start += size
    assert start == len(corpus)
    return find_near_duplicates(paths, sizes, threshold)


def by_the_rule(corpus: Corpus, threshold: float) -> list[bool]:
    """The same rule, one document after the other."""
    found = signatures(flat(corpus))
    keys = band_keys(found, rows_in_a_band(threshold))
    dropped = [False] * len(corpus)
    for band in keys.tolist():
        for number, key in enumerate(band):
            first = band.index(key)
            if first < number:
                agree = (found[first] == found[number]).mean()
                dropped[number] |= bool(agree >= threshold)
    return dropped


def test_near_duplicates_go_and_others_stay(tmp_path: pathlib.Path) -> None:
    originals = long_documents(40)
    near = [changed(d, 0.01, n) for n, d in enumerate(originals[:20])]
    far = [changed(d, 0.15, n) for n, d in enumerate(originals[20:])]
    assert min(map(similarity, originals, near)) > 0.85
    assert max(map(similarity, originals[20:], far)) < 0.6
    corpus = originals + near + far + originals[:5]
    found = in_blocks(tmp_path, corpus, [len(corpus)], 0.75)
    expected = [False] * 40 + [True] * 20 + [False] * 20 + [True] * 5
    assert found.tolist() == expected
    exact = in_blocks(tmp_path, corpus, [len(corpus)], 1.0)
    assert exact.tolist() == [False] * 80 + [True] * 5


@pytest.mark.parametrize("threshold", [0.5, 0.8])
def test_blocks_and_memory_do_not_matter(tmp_path, threshold, monkeypatch):
    rng = random.Random(5)
    corpus = long_documents(30, seed=2)
    corpus += [
        changed(rng.choice(corpus), rng.choice([0.005, 0.03, 0.1]), n)
        for n in range(60)
    ]
    rng.shuffle(corpus)
    corpus += [[[1]], [[1], [2]], [[1]]]
    whole = in_blocks(tmp_path, corpus, [len(corpus)], threshold)
    assert whole.tolist() == by_the_rule(corpus, threshold)
    assert 10 < whole.sum() < 80
    assert whole[-3:].tolist() == [False, False, True]
    monkeypatch.setattr(near_duplicates, "_KEYS_AT_ONCE", 11)
    monkeypatch.setattr(near_duplicates, "_PAIRS_AT_ONCE", 3)
    again = in_blocks(tmp_path, corpus, [40, 0, 1, 52], threshold)
    assert again.tolist() == whole.tolist()
