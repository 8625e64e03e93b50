"""Exact search of vectors beside NumPy and faiss.

All find the nearest of the same vectors by cosine, in turns: `bert_tf.search`,
in float32 and of quantized vectors; NumPy, as it is written without thinking of
memory (a product of some queries with all vectors, and argpartition); and
faiss' IndexFlatIP, in an environment of peers with faiss-cpu. Each counts from
normalised vectors to sorted results. "found" is the share of the results in
float64 that are found.

python -m benchmarks.search --peers=.venv-peers/bin/python
"""

import pathlib
import statistics
import tempfile

import numpy as np
from absl import flags

from benchmarks import comparison
from bert_tf.errors import UserError
from tools import command_line

_PEERS = flags.DEFINE_string("peers", "", "Python with faiss-cpu.")
_VECTORS = flags.DEFINE_integer("vectors", 200_000, "Vectors to search.")
_QUERIES = flags.DEFINE_list("queries", ["1", "1000"], "Numbers of queries.")
_WIDTH = flags.DEFINE_integer("width", 384, "Numbers of a vector.")
_TOP_K = flags.DEFINE_integer("top_k", 10, "Results of each query.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds to take the median of.")

_PEER = "benchmarks/search_faiss.py"
# At most this many scores of NumPy at a time.
_SCORES = 1 << 26


def vectors(count: int, seed: int) -> np.ndarray:
    """Normalised vectors with as many directions as texts have."""
    width = _WIDTH.value
    plan = np.random.default_rng(0).normal(size=(width // 6, width))
    random = np.random.default_rng(seed)
    found = random.normal(size=(count, width // 6)) @ plan
    found += 0.5 * random.normal(size=(count, width))
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found.astype(np.float32)


def by_numpy(queries: np.ndarray, corpus: np.ndarray) -> np.ndarray:
    """The indices of the nearest vectors, best first."""
    top_k = _TOP_K.value
    step = max(1, _SCORES // len(corpus))
    found = []
    for begin in range(0, len(queries), step):
        scores = queries[begin : begin + step] @ corpus.T
        best = np.argpartition(scores, -top_k)[:, -top_k:]
        values = np.take_along_axis(scores, best, 1)
        order = np.argsort(-values, 1)
        found.append(np.take_along_axis(best, order, 1))
    return np.concatenate(found)


def share(found: np.ndarray, exact: np.ndarray) -> float:
    """The share of the right results that are found."""
    pairs = zip(found.tolist(), exact.tolist(), strict=True)
    return np.mean([len({*a} & {*b}) / len(b) for a, b in pairs])


def compare(queries: np.ndarray, corpus: np.ndarray, folder: str) -> None:
    """Prints the table of some queries."""
    import bert_tf
    from bert_tf.inference.quantized_vectors import number_ranges, quantize

    top_k = _TOP_K.value
    results: dict[str, np.ndarray] = {}
    ranges = number_ranges(corpus)
    packed = {
        name: quantize(corpus, name, ranges) for name in ("int8", "ubinary")
    }

    def ours(precision: str = "float32") -> np.ndarray:
        indices, _ = bert_tf.search(
            *(queries, packed.get(precision, corpus), top_k),
            precision=precision,
            calibration=ranges,
        )
        return indices

    works = {
        "bert_tf": ours,
        "bert_tf, int8": lambda: ours("int8"),
        "bert_tf, bits": lambda: ours("ubinary"),
        "NumPy": lambda: by_numpy(queries, corpus),
    }
    for name, work in works.items():
        results[name] = work()
    peer = None
    if _PEERS.value:
        np.save(f"{folder}/queries.npy", queries)
        given = folder, str(top_k), str(comparison.threads())
        try:
            peer = comparison.Peer(_PEERS.value, _PEER, *given)
            works[peer.said["name"]] = lambda: peer.ask("")["seconds"]
            peer.ask("")
            results[peer.said["name"]] = np.load(f"{folder}/found.npy")
        except UserError as error:
            print(f"missing: faiss: {error}")
    seconds = comparison.seconds_in_turns(works, _ROUNDS.value)
    if peer is not None:
        peer.close()
    exact = by_numpy(queries.astype(np.float64), corpus.astype(np.float64))
    plain = statistics.median(seconds["NumPy"])
    print(
        f"\n{len(queries):,} queries, {len(corpus):,} vectors of {_WIDTH.value}"
    )
    for name, each in seconds.items():
        middle = statistics.median(each)
        print(
            f"{name:<20} {middle * 1000:>10,.0f} ms  "
            f"{plain / middle:>6.2f} x NumPy  "
            f"found {share(results[name], exact):.4f}",
            flush=True,
        )


def main() -> None:
    """Prints a table for each number of queries."""
    comparison.show_machine("benchmarks.search", "numpy")
    corpus = vectors(_VECTORS.value, 1)
    with tempfile.TemporaryDirectory() as folder:
        np.save(pathlib.Path(folder, "corpus.npy"), corpus)
        for count in map(int, _QUERIES.value):
            compare(vectors(count, 2), corpus, folder)


if __name__ == "__main__":
    command_line.run(main)
