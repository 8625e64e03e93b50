"""Makes the sequences of records: pairs of texts, or whole sentences.

Pairs are those of create_instances_from_document of create_pretraining_data.py
in google-research/bert: text B is random with probability `random_next_prob`,
there 0.5. With 0, the paper's "No NSP" (Devlin et al. 2019, section 5.1), B
follows A in every pair. With `sequences`=sentence_order they are those of
google-research/albert (Lan et al. 2020, section 3.1), whose texts are swapped
instead.

Otherwise sequences are filled with whole sentences (Liu et al. 2019, section
4.2, FULL-SENTENCES and DOC-SENTENCES).

Sentences are contiguous in memory, so texts are ranges of tokens.
"""

import array
import bisect
import dataclasses
import itertools
import random

import numpy as np

from bert_tf.records.recipe import (
    FULL_SENTENCES,
    SENTENCE_ORDER,
    RecordsRecipe,
)
from bert_tf.records.token_blocks import Documents
from bert_tf.text.token_table import Packing
from bert_tf.text.truncation import truncated_lengths


@dataclasses.dataclass(frozen=True)
class Instances:
    """Sequences of texts A and B, or of a text A.

    Attributes:
      a_start, a_end, b_start, b_end: token ranges of A and B, int64 [n]; B is
        empty if there is one text.
      labels: 0: B follows A, 1: B is from another document, or the texts are
        swapped, -1: there is no B; int8 [n].
      ids: the token ids that the ranges refer to, [T].
      packing: the special tokens around the texts.
      tokens_cut: tokens lost by truncation, and sentences of one token, which
        cannot be divided.
    """

    a_start: np.ndarray
    a_end: np.ndarray
    b_start: np.ndarray
    b_end: np.ndarray
    labels: np.ndarray
    ids: np.ndarray
    packing: Packing
    tokens_cut: int

    def __len__(self) -> int:
        return len(self.a_start)

    def lengths(self) -> np.ndarray:
        """Returns sequence lengths with special tokens, int64 [n]."""
        text = self.a_end - self.a_start + self.b_end - self.b_start
        return text + self.packing.num_special(2)


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
        self.swaps = recipe.sequences == SENTENCE_ORDER
        self.rng = random.Random(seed)
        # Of one pair after the other: start and end of A and of B, label.
        self.pairs = array.array("q")
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
        self, a_start: int, a_end: int, b_start: int, b_end: int, label: bool
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
        self.pairs.extend((a_start, a_end, b_start, b_end, label))

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
            label = size == 1 or rng.random() < self.random_next_prob
            if size == 1 or (label and not self.swaps):
                first, after = self._random_text(
                    document, target - (middle - start)
                )
                self._add(
                    start, middle, sentences[first], sentences[after], True
                )
                # The other sentences of the chunk are used again.
                sentence = a_last
                continue
            if label:
                self._add(middle, end, start, middle, True)
            else:
                self._add(start, middle, middle, end, False)
            sentence = chunk_end


def _joined(documents: Documents, separator: int) -> Documents:
    """Returns all documents as one, each separator a sentence of its own."""
    sentences = documents.sentence_starts
    ends = sentences[documents.document_starts[1:-1]]
    moved = sentences + np.searchsorted(ends, sentences, side="right")
    separators = ends + np.arange(len(ends))
    starts = np.sort(np.concatenate([moved, separators]))
    return Documents(
        np.insert(documents.ids, ends, separator),
        starts,
        np.array([0, len(starts) - 1]),
    )


def _whole_sentences(
    documents: Documents,
    used: np.ndarray,
    recipe: RecordsRecipe,
    packing: Packing,
    seed: str,
) -> Instances:
    """Fills sequences with the sentences of documents in random order.

    A sequence ends before the sentence that would exceed its length, and at the
    end of a document unless `sequences` is full_sentences: it then continues
    with the next document behind a separator, the token that ends a text. A
    sentence longer than a sequence is divided.
    """
    packing = packing.of_one_text()
    room = recipe.max_seq_length - packing.num_special(2)
    rng = np.random.Generator(np.random.PCG64(list(seed.encode("utf-8"))))
    passes = [rng.permutation(used) for _ in range(recipe.dupe_factor)]
    documents = documents.take(np.concatenate(passes))
    separator = packing.end[0]
    if recipe.sequences == FULL_SENTENCES:
        documents = _joined(documents, separator)
    sentences, ids = documents.sentence_starts, documents.ids
    # Sentences, or parts of long ones.
    lengths = np.diff(sentences)
    counts = -(-lengths // room)
    ends = np.concatenate([[0], np.cumsum(counts)])
    within = np.arange(ends[-1]) - np.repeat(ends[:-1], counts)
    starts = np.repeat(sentences[:-1], counts) + room * within
    is_separator = np.repeat(
        (lengths == 1) & (ids[sentences[:-1]] == separator), counts
    ).tolist()
    bounds = [*starts.tolist(), len(ids)]
    rows: list[tuple[int, int]] = []
    for first, last in itertools.pairwise(
        ends[documents.document_starts].tolist()
    ):
        while first < last:
            if is_separator[first]:
                first += 1
                continue
            after = bisect.bisect_right(bounds, bounds[first] + room, first)
            after = min(after - 1, last)
            rows.append(
                (bounds[first], bounds[after - is_separator[after - 1]])
            )
            first = after
    a_start, a_end = rng.permutation(np.array(rows, np.int64).reshape(-1, 2)).T
    none = np.zeros_like(a_start)
    return Instances(
        *(a_start, a_end, none, none, none.astype(np.int8) - 1),
        *(ids, packing, 0),
    )


def make_instances(
    documents: Documents,
    own: int,
    recipe: RecordsRecipe,
    packing: Packing,
    seed: str,
) -> Instances:
    """Makes sequences, shuffled.

    Args:
      documents: documents without empty sentences, at least two if a text B may
        be random; one that is used several times gets new sequences each time.
      own: text A is from the first `own` documents; a random text B may be from
        any other document.
      recipe: the kind of sequences, lengths, passes and probabilities.
      packing: the special tokens of a row.
      seed: determines all random choices.
    """
    used = np.arange(own)
    if documents.repeats is not None:
        used = np.repeat(used, documents.repeats[:own])
    if not recipe.has_pairs:
        return _whole_sentences(documents, used, recipe, packing, seed)
    maker = _PairMaker(documents, recipe, packing.num_special(2), seed)
    for _ in range(recipe.dupe_factor):
        for document in used.tolist():
            maker.add_document(document)
    pairs = np.frombuffer(maker.pairs, np.int64).reshape(-1, 5)
    order = list(range(len(pairs)))
    maker.rng.shuffle(order)
    a_start, a_end, b_start, b_end, labels = pairs[order].T
    return Instances(
        *(a_start, a_end, b_start, b_end, labels.astype(np.int8)),
        *(documents.ids, packing, maker.tokens_cut),
    )
