"""Makes sentence pairs by the algorithm of google-research/bert.

It is create_instances_from_document of create_pretraining_data.py; text B is
random with probability `random_next_prob`, there 0.5. With 0, the paper's "No
NSP" (Devlin et al. 2019, section 5.1), B follows A in every pair. The sentences
of a document are contiguous in memory, so texts A and B are ranges of tokens
and nothing is copied.
"""

import bisect
import dataclasses
import itertools
import random

import numpy as np

from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.token_blocks import Documents
from bert_tf.text.truncation import truncated_lengths


@dataclasses.dataclass(frozen=True)
class Instances:
    """Sentence pairs of texts A and B.

    Attributes:
      a_start, a_end, b_start, b_end: token ranges of A and B, int64 [n].
      is_random: whether B is from another document, bool [n].
      num_special: number of special tokens of a pair.
      tokens_cut: tokens lost by truncation, and sentences of one token, which
        cannot be divided.
    """

    a_start: np.ndarray
    a_end: np.ndarray
    b_start: np.ndarray
    b_end: np.ndarray
    is_random: np.ndarray
    num_special: int
    tokens_cut: int

    def __len__(self) -> int:
        return len(self.a_start)

    def lengths(self) -> np.ndarray:
        """Returns sequence lengths with special tokens, int64 [n]."""
        text = self.a_end - self.a_start + self.b_end - self.b_start
        return text + self.num_special


class _PairMaker:
    """Makes the pairs of documents, one document after the other."""

    def __init__(
        self,
        documents: Documents,
        recipe: RecordsRecipe,
        num_special: int,
        seed: str,
    ) -> None:
        # Lists: indexing an array takes several times as long.
        self.sentences = documents.sentence_starts.tolist()
        self.documents = documents.document_starts.tolist()
        self.max_tokens = recipe.max_seq_length - num_special
        self.short_seq_prob = recipe.short_seq_prob
        self.random_next_prob = recipe.random_next_prob
        self.rng = random.Random(seed)
        self.pairs: list[tuple[int, int, int, int, bool]] = []
        self.tokens_cut = 0

    def _below(self, bound: int) -> int:
        return int(self.rng.random() * bound)

    def _random_text(self, document: int, length: int) -> tuple[int, int]:
        """Draws sentences of another document, at least one, up to a length."""
        other = self._below(len(self.documents) - 2)
        other += other >= document
        first, last = self.documents[other], self.documents[other + 1]
        start = first + self._below(last - first)
        return start, self._sentence_reaching(start, last, length)

    def _sentence_reaching(self, start: int, last: int, length: int) -> int:
        """Returns the end of the shortest run of `length` tokens."""
        target = self.sentences[start] + length
        return bisect.bisect_left(self.sentences, target, start + 1, last)

    def _add(
        self, a_start: int, a_end: int, b_start: int, b_end: int, other: bool
    ) -> None:
        """Adds a pair of token ranges, truncated."""
        length_a, length_b = a_end - a_start, b_end - b_start
        if length_a + length_b > self.max_tokens:
            kept_a, kept_b = truncated_lengths(
                length_a, length_b, self.max_tokens, min, max
            )
            drop_a, drop_b = length_a - kept_a, length_b - kept_b
            # Each token is dropped from the front or from the back with equal
            # probability, so the number from the front is binomial.
            front_a = self.rng.getrandbits(drop_a).bit_count()
            front_b = self.rng.getrandbits(drop_b).bit_count()
            a_start, a_end = a_start + front_a, a_end - drop_a + front_a
            b_start, b_end = b_start + front_b, b_end - drop_b + front_b
            self.tokens_cut += drop_a + drop_b
        self.pairs.append((a_start, a_end, b_start, b_end, other))

    def _add_divided(self, start: int, end: int) -> None:
        """Adds the tokens of one sentence as texts A and B."""
        if end - start == 1:
            self.tokens_cut += 1
            return
        middle = start + 1 + self._below(end - start - 1)
        self._add(start, middle, middle, end, False)

    def add_document(self, document: int) -> None:
        """Adds all pairs whose text A is in a document."""
        rng, sentences = self.rng, self.sentences
        target = self.max_tokens
        if rng.random() < self.short_seq_prob:
            target = 2 + self._below(self.max_tokens - 1)
        sentence = self.documents[document]
        last = self.documents[document + 1]
        while sentence < last:
            chunk_end = self._sentence_reaching(sentence, last, target)
            start, end = sentences[sentence], sentences[chunk_end]
            size = chunk_end - sentence
            if size == 1 and not self.random_next_prob:
                self._add_divided(start, end)
                sentence = chunk_end
                continue
            a_last = sentence + 1
            if size >= 2:
                a_last += self._below(size - 1)
            middle = sentences[a_last]
            if size == 1 or rng.random() < self.random_next_prob:
                first, after = self._random_text(
                    document, target - (middle - start)
                )
                self._add(
                    start, middle, sentences[first], sentences[after], True
                )
                # The other sentences of the chunk are used again.
                sentence = a_last
            else:
                self._add(start, middle, middle, end, False)
                sentence = chunk_end


def make_instances(
    documents: Documents,
    own: int,
    recipe: RecordsRecipe,
    num_special: int,
    seed: str,
) -> Instances:
    """Makes sentence pairs, shuffled.

    Args:
      documents: documents without empty sentences, at least two unless
        `random_next_prob` is 0; one that is used several times gets new pairs
        each time.
      own: text A is from the first `own` documents; a random text B may be from
        any other document.
      recipe: lengths, passes and probabilities.
      num_special: number of special tokens of a pair.
      seed: determines all random choices.
    """
    maker = _PairMaker(documents, recipe, num_special, seed)
    used = np.arange(own)
    if documents.repeats is not None:
        used = np.repeat(used, documents.repeats[:own])
    for _ in range(recipe.dupe_factor):
        for document in used.tolist():
            maker.add_document(document)
    maker.rng.shuffle(maker.pairs)
    numbers = itertools.chain.from_iterable(maker.pairs)
    columns = np.fromiter(numbers, np.int64, 5 * len(maker.pairs))
    a_start, a_end, b_start, b_end, is_random = columns.reshape(-1, 5).T
    return Instances(
        *(a_start, a_end, b_start, b_end),
        is_random.astype(bool),
        num_special,
        maker.tokens_cut,
    )
