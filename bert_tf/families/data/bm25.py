"""BM25, the baseline of retrieval without a model."""

import array
import collections
import re
from collections.abc import Iterable

import numpy as np

# Those of BEIR's baseline (Thakur et al. 2021, with Anserini's Lucene).
_K1, _B = 0.9, 0.4
_WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """Returns the runs of letters, digits and underscores in lower case.

    Without stemming and without stop words.
    """
    return _WORD.findall(text.lower())


class Bm25:
    """The index of a corpus for some queries (Robertson et al. 1994).

    The score of a document is the sum over the words of the query of
    log(1 + (N - n + 0.5) / (n + 0.5)) times f / (f + k1 (1 - b + b l / m)), as
    Lucene's: of N documents n have the word, which occurs f times in this one
    of l words, and m is the mean of l. Only words of queries are stored.

    Args:
      queries: the queries.
    """

    def __init__(self, queries: Iterable[str]):
        self._queries = [collections.Counter(words_of(q)) for q in queries]
        # The documents of each word, and how often it occurs in them.
        self._postings = {
            word: (array.array("q"), array.array("q"))
            for query in self._queries
            for word in query
        }
        self._lengths = array.array("q")

    def add(self, document: str) -> None:
        """Adds the next document of the corpus."""
        words = collections.Counter(words_of(document))
        for word in words.keys() & self._postings.keys():
            numbers, counts = self._postings[word]
            numbers.append(len(self._lengths))
            counts.append(words[word])
        self._lengths.append(words.total())

    def scores(self, query: int) -> np.ndarray:
        """Computes the scores of all documents for a query, float64 [N]."""
        lengths = np.frombuffer(self._lengths, np.int64)
        total, mean = len(lengths), max(lengths.mean(), 1)
        found = np.zeros(total)
        for word, repeats in self._queries[query].items():
            numbers, counts = (
                np.frombuffer(each, np.int64) for each in self._postings[word]
            )
            number = len(numbers)
            weight = np.log1p((total - number + 0.5) / (number + 0.5))
            norms = _K1 * (1 - _B + _B * lengths[numbers] / mean)
            found[numbers] += repeats * weight * counts / (counts + norms)
        return found

    def best(self, query: int, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the best documents with a common word, and their scores.

        Ties have the order of the corpus.

        Returns:
          int64 [K] and float64 [K], K at most `top_k`.
        """
        scores = self.scores(query)
        found = np.flatnonzero(scores > 0)
        if len(found) > top_k:
            worst = np.partition(scores[found], -top_k)[-top_k]
            found = found[scores[found] >= worst]
        order = found[np.argsort(-scores[found], kind="stable")][:top_k]
        return order, scores[order]
