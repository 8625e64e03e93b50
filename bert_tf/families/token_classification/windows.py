"""Words of documents as rows of token ids, and outputs back to words.

Devlin et al. 2019, section 5.3: the first sub-token of a word stands for it,
and a sentence is shown with as much of its document as there is room for. A
row is a window on its document, in the middle of which is the sentence whose
words it predicts; longer sentences have several windows. The loss is of the
words.
"""

import abc
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from keras import ops

from bert_tf.distiller import soft_target_loss
from bert_tf.families.rows import Outputs
from bert_tf.families.task_model import LOSS, Sums, weighted
from bert_tf.families.token_classification.conll_files import TaggedWords
from bert_tf.features import INPUT_MASK
from bert_tf.text.packing import (
    EncodedRows,
    TokenIds,
    make_windows,
    most_context,
    pack_rows,
    ragged_range,
    take_ranges,
    tokenize_texts,
)
from bert_tf.text.tokenizer_protocol import Tokenizer
from bert_tf.text.truncation import num_windows

TAG_IDS, TAG_WEIGHTS = "tag_ids", "tag_weights"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordRows(abc.ABC):
    """Rows that together predict every one of W words once; see `Rows`.

    Attributes:
      tags: int32 [W], the tag of each word, for batches to hold what the
        model is to learn; None for the inputs alone.
    """

    tags: np.ndarray | None = None

    @property
    @abc.abstractmethod
    def num_words(self) -> int:
        """W."""

    @abc.abstractmethod
    def words(
        self, chosen: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which words the rows of some numbers predict, and where.

        Returns:
          Of each word its row in the batch, its place in the row and its
          number, each int64 [words].
        """

    @abc.abstractmethod
    def inputs(self, chosen: np.ndarray, width: int) -> dict[str, np.ndarray]:
        """The model's inputs of some rows, padded; see `Rows.batch`."""

    @property
    def label_arrays(self) -> tuple[np.ndarray, ...]:
        """The tags, if there are any, for digests."""
        return () if self.tags is None else (self.tags,)

    def batch(
        self, chosen: np.ndarray, width: int = 0
    ) -> dict[str, np.ndarray]:
        """The inputs of some rows and, with `tags`, what to learn.

        That is tag_ids, int32 [B, S], and tag_weights, float32 [B, S], 1 at
        the places of the words predicted and else 0.
        """
        batch = self.inputs(chosen, width)
        if self.tags is not None:
            row, place, word = self.words(chosen)
            shape = batch[INPUT_MASK.name].shape
            batch[TAG_IDS] = np.zeros(shape, np.int32)
            batch[TAG_IDS][row, place] = self.tags[word]
            batch[TAG_WEIGHTS] = np.zeros(shape, np.float32)
            batch[TAG_WEIGHTS][row, place] = 1.0
        return batch

    def gather(self, batches: Iterable[tuple[np.ndarray, Outputs]]) -> Outputs:
        """The logits of every word, float32 [W, C]; see `Rows.gather`."""
        logits = np.zeros((0, 0), np.float32)
        for chosen, outputs in batches:
            found = outputs["logits"]
            if not logits.size:
                size = (self.num_words, found.shape[-1])
                logits = np.full(size, np.nan, np.float32)
            row, place, word = self.words(chosen)
            logits[word] = found[row, place]
        return {"logits": logits}


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordWindows(WordRows):
    """Words as windows of token ids.

    Attributes:
      rows: R rows, each of a window; a row's example is its sentence.
      places: int32 [W], where in its row the first sub-token of a word is.
      word_starts: int64 [R + 1], which words a row predicts: those from its
        entry on to the next one.
    """

    rows: EncodedRows
    places: np.ndarray
    word_starts: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, int64 [R]."""
        return self.rows.lengths

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What decides every batch, for digests."""
        own = self.places, self.word_starts
        return *self.rows.arrays, *own, *self.label_arrays

    @property
    def num_words(self) -> int:
        """W."""
        return len(self.places)

    @property
    def sentence_starts(self) -> np.ndarray:
        """Where each of the N sentences begins in the words, int64 [N + 1]."""
        sentences = np.arange(self.rows.num_examples + 1)
        return self.word_starts[np.searchsorted(self.rows.example, sentences)]

    def words(
        self, chosen: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which words some rows predict, and where."""
        first = self.word_starts[chosen]
        count = self.word_starts[chosen + 1] - first
        word = np.repeat(first, count) + ragged_range(count)
        row = np.repeat(np.arange(len(chosen)), count)
        return row, self.places[word].astype(np.int64), word

    def inputs(self, chosen: np.ndarray, width: int) -> dict[str, np.ndarray]:
        """The encoder's inputs of some rows, int32 [B, S]."""
        return self.rows.batch(chosen, width)

    def __len__(self) -> int:
        return len(self.rows)


def encode_words(
    data: TaggedWords,
    tokenizer: Tokenizer,
    max_seq_length: int,
    context: str = "document",
    doc_stride: int = 0,
    tags: np.ndarray | None = None,
) -> WordWindows:
    """Tokenises words and lays out a window for each sentence.

    A word of which nothing is left, such as a control character, is [UNK]. A
    sentence stands amid sub-tokens of those before and after it in equal
    number, or where one side has fewer, the other has more. A sentence that
    is longer than a row has windows that overlap, and each of its words is
    predicted in the one that shows most context; see `most_context`.

    Args:
      data: the words, their sentences and documents.
      tokenizer: what turns words into ids.
      max_seq_length: S, the longest row.
      context: "document" shows what comes before and after a sentence in its
        document, "sentence" the sentence alone.
      doc_stride: tokens from the start of a window of a long sentence to that
        of the next; 0 is half of a window, which leaves each word at least
        about a quarter to both sides.
      tags: see `WordRows`.
    """
    room = max_seq_length - tokenizer.packing.num_special(1)
    stride = _stride(room, doc_stride)
    ids, word_tokens = token_stream(data.words, tokenizer)
    begin, count = _shown(data, word_tokens, context, room)
    windows = make_windows(
        num_windows(count, room, stride), count, room, stride, align_last=True
    )
    # What is shown of each sentence, concatenated: where each word is there,
    # and which window shows it best.
    sentence = np.repeat(np.arange(len(data)), np.diff(data.sentence_starts))
    shown_before = np.cumsum(count) - count
    place = word_tokens[:-1] - begin[sentence] + shown_before[sentence]
    best_begin, _ = most_context(windows)
    best_begin += shown_before[windows.text] + windows.offset
    window = np.searchsorted(best_begin, place, side="right") - 1
    # The context of a long sentence may be as long as a window.
    used, row = np.unique(window, return_inverse=True)
    sentence = windows.text[used]
    first_token = begin[sentence] + windows.offset[used]
    rows = pack_rows(
        sentence,
        TokenIds(ids, first_token, windows.count[used]),
        None,
        len(data),
        tokenizer,
    )
    places = word_tokens[:-1] - first_token[row] + len(rows.packing.begin)
    return WordWindows(
        tags=tags,
        rows=rows,
        places=places.astype(np.int32),
        word_starts=np.searchsorted(row, np.arange(len(used) + 1)),
    )


def token_stream(
    words: list[str], tokenizer: Tokenizer
) -> tuple[np.ndarray, np.ndarray]:
    """The ids of all words, int32 [T], and where words begin, int64 [W + 1].

    A word of which nothing is left is [UNK], so each has one token at least.
    """
    place = {word: number for number, word in enumerate(dict.fromkeys(words))}
    unique = tokenize_texts(list(place), tokenizer)
    # What every word that comes to nothing points to.
    unknown = np.int32(tokenizer.vocabulary.unk_id)
    ids = np.append(unique.ids, unknown)
    empty = unique.count == 0
    begin = np.where(empty, len(unique.ids), unique.begin)
    count = np.where(empty, 1, unique.count)
    word = np.fromiter(map(place.__getitem__, words), np.int64, len(words))
    starts = np.concatenate([[0], np.cumsum(count[word])])
    return take_ranges(ids, begin[word], count[word]), starts


def windows_per_sentence(
    data: TaggedWords,
    word_tokens: np.ndarray,
    room: int,
    context: str,
    doc_stride: int,
) -> np.ndarray:
    """How many windows each sentence needs at most, int64 [N].

    `word_tokens` are where words begin in sub-tokens, int64 [W + 1], and
    `room` is how many of them a window takes; for the rest see `encode_words`.
    """
    _, count = _shown(data, word_tokens, context, room)
    return num_windows(count, room, _stride(room, doc_stride))


def _stride(room: int, doc_stride: int) -> int:
    """Tokens from one window to the next."""
    return min(doc_stride or max(room // 2, 1), room)


def _shown(
    data: TaggedWords, word_tokens: np.ndarray, context: str, room: int
) -> tuple[np.ndarray, np.ndarray]:
    """What is shown of the document for each sentence, in sub-tokens.

    Returns:
      Where it begins, and how long it is, more than the room of a window for
      a sentence that is longer itself; each int64 [N].
    """
    bounds = word_tokens[data.sentence_starts]
    documents = data.document_starts
    if context == "sentence":
        documents = np.arange(len(bounds))
    document = np.repeat(np.arange(len(documents) - 1), np.diff(documents))
    document_bounds = bounds[documents]
    first, end = bounds[:-1], bounds[1:]
    before = first - document_bounds[document]
    after = document_bounds[document + 1] - end
    spare = room - (end - first)
    # The words at the ends of a long sentence stand amid others too.
    half = np.where(spare >= 0, spare // 2, room // 2)
    left = np.minimum(before, half)
    right = np.minimum(after, np.where(spare >= 0, spare - left, half))
    left = np.where(spare >= 0, np.minimum(before, spare - right), left)
    return first - left, end - first + left + right


class TagObjective:
    """Cross-entropy of the first sub-token of every word.

    Devlin et al. 2019, section 5.3: a softmax over the tags, no CRF. Every
    word counts as much as any other, whatever the length of its sentence.
    """

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """How many words there are."""
        return {LOSS: ops.sum(batch[TAG_WEIGHTS])}

    def normalise(
        self, losses: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The mean loss of a word."""
        return {LOSS: losses[LOSS] / weights[LOSS]}

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums the loss and the correct tags (accuracy).

        Args:
          outputs: logits [B, S, C].
          batch: tag_ids int32 [B, S], tag_weights float32 [B, S].
        """
        tags, weights = batch[TAG_IDS], batch[TAG_WEIGHTS]
        logits = ops.cast(outputs["logits"], "float32")
        nll = ops.sparse_categorical_crossentropy(
            tags, logits, from_logits=True
        )
        guesses = ops.argmax(logits, axis=-1)
        correct = ops.equal(guesses, ops.cast(tags, guesses.dtype))
        accuracy = weighted(ops.cast(correct, "float32"), weights)
        return {LOSS: ops.sum(nll * weights)}, {"accuracy": accuracy}

    def soft_target_weight(self, batch: Mapping[str, Any]) -> Any:
        """What the sum of `soft_target_loss` is divided by: the words."""
        return ops.sum(batch[TAG_WEIGHTS])

    def soft_target_loss(
        self,
        outputs: Mapping[str, Any],
        teacher: Mapping[str, Any],
        batch: Mapping[str, Any],
        temperature: float,
    ) -> Any:
        """Sums the divergence of logits [B, S, C] from a teacher's."""
        loss = soft_target_loss(
            outputs["logits"], teacher["logits"], temperature
        )
        return ops.sum(loss * batch[TAG_WEIGHTS])
