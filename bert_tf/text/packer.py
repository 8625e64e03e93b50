"""Packing one or two texts into the encoder's inputs."""

from typing import TypeAlias

import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.features import INPUT_IDS, INPUT_MASK, SEGMENT_IDS
from bert_tf.text.tokenizer import BertTokenizer

Ids: TypeAlias = tf.Tensor | tf.RaggedTensor


class SentencePacker(tf.Module):
    """Makes [CLS] A [SEP] or [CLS] A [SEP] B [SEP] rows of one length.

    Segment ids are 0 for A and 1 for B, each with its [SEP]. Too long a pair
    is cut token by token at the end of the longer text, B where they are
    equally long (google-research/bert, run_classifier.py,
    `_truncate_seq_pair`).
    """

    def __init__(self, tokenizer: BertTokenizer, seq_length: int):
        """Keeps the tokenizer and the length.

        Args:
          tokenizer: what turns texts into ids.
          seq_length: S, the length of a packed row.

        Raises:
          UserError: seq_length leaves no room for a token.
        """
        super().__init__()
        if not isinstance(seq_length, int) or seq_length < 3:
            raise UserError(
                f"seq_length={seq_length!r}: a whole number of at least 3 is "
                "wanted ([CLS], one token, [SEP])."
            )
        self.tokenizer = tokenizer
        self.seq_length = seq_length

    def __call__(self, text_a, text_b=None) -> dict[str, tf.Tensor]:
        """The same as `pack`."""
        return self.pack(text_a, text_b)

    def pack(self, text_a, text_b=None) -> dict[str, tf.Tensor]:
        """Tokenises and packs texts.

        Args:
          text_a: strings [B] or a scalar; Python strings or lists will do.
          text_b: the second texts, of the same shape, or None.

        Returns:
          input_ids, input_mask and segment_ids, int32 [B, S], or [S] for
          scalars.

        Raises:
          UserError: texts of another kind or of two shapes, or no room for
            a pair.
        """
        ids_b = None if text_b is None else self.tokenizer.tokenize(text_b)
        return self.pack_ids(self.tokenizer.tokenize(text_a), ids_b)

    def pack_ids(self, ids_a: Ids, ids_b: Ids | None = None):
        """Packs token ids.

        Args:
          ids_a: int32, ragged [B, tokens], or [tokens] for a single row.
          ids_b: the second texts' ids, of the same kind, or None.

        Returns:
          As `pack`.

        Raises:
          UserError: ids of two shapes, or no room for a pair.
        """
        with tf.device("/CPU:0"):
            is_single = ids_a.shape.rank == 1
            rows_a = _as_rows(ids_a)
            if ids_b is None:
                packed = self._pack_one(rows_a)
            else:
                self._check_pair(ids_a, ids_b)
                packed = self._pack_two(rows_a, _as_rows(ids_b))
            if is_single:
                packed = {name: rows[0] for name, rows in packed.items()}
            return packed

    def _check_pair(self, ids_a: Ids, ids_b: Ids) -> None:
        if self.seq_length < 4:
            raise UserError(
                f"seq_length={self.seq_length}: a pair needs at least 4 "
                "([CLS], [SEP], [SEP] and one token)."
            )
        if ids_a.shape.rank != ids_b.shape.rank or (
            ids_a.shape.rank == 2
            and not ids_a.shape[:1].is_compatible_with(ids_b.shape[:1])
        ):
            raise UserError(
                f"text_a has shape {ids_a.shape[:-1]} and text_b "
                f"{ids_b.shape[:-1]}; they must be alike."
            )

    def _pack_one(self, rows: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        lengths = tf.minimum(_lengths(rows), self.seq_length - 2)
        none = tf.zeros_like(lengths)
        return self._lay_out(rows, lengths, rows, none, 2 + lengths)

    def _pack_two(
        self, rows_a: tf.RaggedTensor, rows_b: tf.RaggedTensor
    ) -> dict[str, tf.Tensor]:
        all_a, all_b = _lengths(rows_a), _lengths(rows_b)
        same = tf.debugging.assert_equal(
            tf.size(all_a), tf.size(all_b), "text_a and text_b: unequal batches"
        )
        room = self.seq_length - 3
        with tf.control_dependencies([same] if same is not None else []):
            lengths_a = tf.minimum(
                all_a, tf.maximum(room - all_b, (room + 1) // 2)
            )
            lengths_b = tf.minimum(all_b, tf.maximum(room - all_a, room // 2))
        used = 3 + lengths_a + lengths_b
        return self._lay_out(rows_a, lengths_a, rows_b, lengths_b, used)

    def _lay_out(
        self,
        rows_a: tf.RaggedTensor,
        lengths_a: tf.Tensor,
        rows_b: tf.RaggedTensor,
        lengths_b: tf.Tensor,
        used: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Gathers every position of the packed rows from one flat list."""
        vocabulary = self.tokenizer.vocabulary
        special = [vocabulary.pad_id, vocabulary.cls_id, vocabulary.sep_id]
        pad, cls, sep = range(3)
        source = tf.concat([special, rows_a.values, rows_b.values], 0)
        begin_a = 3 + _starts(rows_a)
        begin_b = 3 + tf.size(rows_a.values) + _starts(rows_b)
        position = tf.range(self.seq_length)[tf.newaxis]  # [1, S]
        end_a, used = 1 + lengths_a[:, tf.newaxis], used[:, tf.newaxis]
        index = tf.where(
            position < end_a,
            begin_a[:, tf.newaxis] + position - 1,
            begin_b[:, tf.newaxis] + position - end_a - 1,
        )
        index = tf.where(
            (position == end_a) | (position == used - 1), sep, index
        )
        index = tf.where(position >= used, pad, index)
        index = tf.where(position == 0, cls, index)
        in_row = position < used
        return {
            INPUT_IDS.name: tf.gather(source, index),
            INPUT_MASK.name: tf.cast(in_row, tf.int32),
            SEGMENT_IDS.name: tf.cast(in_row & (position > end_a), tf.int32),
        }


def _as_rows(ids: Ids) -> tf.RaggedTensor:
    """Ids as ragged int32 [B, tokens]."""
    if isinstance(ids, tf.RaggedTensor):
        return tf.cast(ids, tf.int32)
    ids = tf.cast(ids, tf.int32)
    if ids.shape.rank == 1:
        ids = ids[tf.newaxis]
    return tf.RaggedTensor.from_tensor(ids)


def _lengths(rows: tf.RaggedTensor) -> tf.Tensor:
    return tf.cast(rows.row_lengths(), tf.int32)


def _starts(rows: tf.RaggedTensor) -> tf.Tensor:
    return tf.cast(rows.row_starts(), tf.int32)
