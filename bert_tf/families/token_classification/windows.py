"""Rows of tagged words for training and evaluation, and the loss.

Devlin et al. 2019, section 5.3: the first sub-token of a word represents it,
and the row of a sentence is filled up with the surrounding document. A row is a
window around one sentence and predicts the tags of its words; see
`word_windows`.
"""

import dataclasses
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from bert_tf.families.rows import Outputs, Rows, RowsAround
from bert_tf.families.task_model import ClassesObjective
from bert_tf.families.token_classification.answers import word_windows
from bert_tf.families.token_classification.config import (
    TokenClassificationConfig,
)
from bert_tf.families.token_classification.entities import sentence_of_words
from bert_tf.families.words import first_tokens, tokenize_words
from bert_tf.features import INPUT_MASK
from bert_tf.text.layout import TokenIds, pack_rows, ragged_range
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    from bert_tf.families.token_classification.conll_files import TaggedWords

TAG_IDS, TAG_WEIGHTS = "tag_ids", "tag_weights"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordRows(RowsAround):
    """Rows that together predict each of W words once; see `Rows`.

    Attributes:
      rows: R rows, of token ids or of vectors.
      row: int64 [W], the row that predicts each word, ascending.
      position: int64 [W], the position of the word in that row.
      tags: int32 [W], targets of the batches; None for inputs only.
    """

    rows: Rows
    row: np.ndarray
    position: np.ndarray
    tags: np.ndarray | None = None

    @functools.cached_property
    def word_starts(self) -> np.ndarray:
        """The first word that each row predicts, and W, int64 [R + 1]."""
        return np.searchsorted(self.row, np.arange(len(self) + 1))

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What determines every batch, for digests."""
        tags = () if self.tags is None else (self.tags,)
        position = self.position.astype(np.int32)
        return *self.rows.arrays, position, self.word_starts, *tags

    def words(
        self, chosen: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the words that a batch of rows predicts.

        Args:
          chosen: integers [B], the numbers of the rows.

        Returns:
          The row in the batch, the position in the row, and the number of each
          word, int32 [words].
        """
        starts = self.word_starts.astype(np.int32)
        row, number = ragged_range(tf.gather(np.diff(starts), chosen))
        word = tf.gather(tf.gather(starts, chosen), row) + number
        position = tf.gather(self.position.astype(np.int32), word)
        return row, position, word

    def batch(self, chosen: Any, width: Any = 0) -> dict[str, tf.Tensor]:
        """Makes a batch of some rows, with targets if there are `tags`.

        These are tag_ids, int32 [B, S], and tag_weights, float32 [B, S], 1 at
        predicted words and 0 elsewhere.
        """
        batch = self.rows.batch(chosen, width)
        if self.tags is not None:
            row, position, word = self.words(chosen)
            indices = tf.stack([row, position], 1)
            shape = tf.shape(batch[INPUT_MASK.name])
            tags, weights = tf.gather(self.tags, word), tf.ones(tf.shape(word))
            batch[TAG_IDS] = tf.scatter_nd(indices, tags, shape)
            batch[TAG_WEIGHTS] = tf.scatter_nd(indices, weights, shape)
        return batch

    def gather(self, batches: Iterable[tuple[np.ndarray, Outputs]]) -> Outputs:
        """Collects the logits of all words, float32 [W, C]."""
        logits = np.zeros((0, 0), np.float32)
        for chosen, outputs in batches:
            values = outputs["logits"]
            if not logits.size:
                size = (len(self.row), values.shape[-1])
                logits = np.full(size, np.nan, np.float32)
            row, position, word = map(np.asarray, self.words(chosen))
            logits[word] = values[row, position]
        return {"logits": logits}


def encode_words(
    data: "TaggedWords",
    tokenizer: Tokenizer,
    config: TokenClassificationConfig,
    tags: np.ndarray | None = None,
) -> WordRows:
    """Tokenizes the words of a file and lays out the windows.

    The config has the length, context and stride of the windows; for `tags`,
    see `WordRows`.
    """
    tokens, first = word_tokens(data.words, tokenizer)
    room = config.max_seq_length - tokenizer.packing.num_special(1)
    windows = word_windows(
        sentences_in_context(data, tokens, config.context, room),
        first,
        sentence_of_words(data.sentence_starts),
        room,
        config.doc_stride,
    )
    texts, packing = windows.texts, tokenizer.packing
    return WordRows(
        rows=pack_rows(texts, None, packing, windows.sentence, len(data)),
        row=windows.row.numpy(),
        position=windows.position.numpy() + len(packing.begin),
        tags=tags,
    )


def word_tokens(
    words: list[str], tokenizer: Tokenizer
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Returns the sub-tokens of W words, and `first_tokens` of them.

    A word that normalisation removes, such as a control character, is [UNK], or
    [MASK] if the tokenizer has no [UNK].
    """
    distinct, number = tf.unique(tf.constant(words))
    ids, _, ends = tokenize_words(tokenizer, distinct)
    shift = first_tokens(tokenizer, ids, ends)
    shift -= tf.cast(ids.row_starts(), tf.int32)
    is_empty = tf.cast(ids.row_lengths() == 0, tf.int64)
    vocabulary = tokenizer.vocabulary
    unk_id = (vocabulary.unk_id, vocabulary.blank_id)[vocabulary.unk_id < 0]
    unknown = tf.fill([tf.reduce_sum(is_empty)], unk_id)
    unknown = tf.RaggedTensor.from_row_lengths(unknown, is_empty)
    found = tf.gather(tf.concat([ids, unknown], 1), number)
    first = tf.cast(found.row_starts(), tf.int32) + tf.gather(shift, number)
    return found, first


def sentences_in_context(
    data: "TaggedWords", tokens: tf.RaggedTensor, context: str, room: int
) -> TokenIds:
    """Returns each of N sentences as a range of sub-tokens with its context.

    The context has equally many sub-tokens on both sides; where one side has
    fewer, the other has more. A sentence longer than a window has half a window
    of context on each side, so that its outer words have context too.

    Args:
      data: W words in N sentences.
      tokens: sub-tokens of the words, int32 [W, tokens].
      context: "document", or "sentence" for no context.
      room: tokens of a window.
    """
    splits = tf.cast(tokens.row_splits, tf.int32)
    bounds = tf.gather(splits, data.sentence_starts)
    first, end = bounds[:-1], bounds[1:]
    if context == "sentence":
        return TokenIds(tokens.flat_values, first, end - first)
    documents = tf.gather(bounds, data.document_starts)
    document = sentence_of_words(data.document_starts)
    before = first - tf.gather(documents, document)
    after = tf.gather(documents, document + 1) - end
    spare = room - (end - first)
    is_long = spare < 0
    half = tf.where(is_long, room, spare) // 2
    left = tf.minimum(before, half)
    right = tf.minimum(after, tf.where(is_long, half, spare - left))
    left = tf.where(is_long, left, tf.minimum(before, spare - right))
    count = end - first + left + right
    return TokenIds(tokens.flat_values, first - left, count)


class TagObjective(ClassesObjective):
    """Cross-entropy of the tags at the first sub-token of every word.

    Devlin et al. 2019, section 5.3: a softmax over the tags, no CRF. All words
    have the same weight. Logits are [B, S, C], tag_ids int32 [B, S] and
    tag_weights float32 [B, S].
    """

    label_name = TAG_IDS
    weights_name = TAG_WEIGHTS
