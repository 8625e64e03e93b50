"""`SentencePacker`, which makes rows of one length of texts."""

from typing import TypeAlias

import tensorflow as tf

from bert_tf.errors import UserError, whole_number
from bert_tf.text.layout import HOST, pack_rows, token_ids, truncate
from bert_tf.text.tokenizer_protocol import Tokenizer

Ids: TypeAlias = tf.Tensor | tf.RaggedTensor


class SentencePacker(tf.Module):
    """Makes rows of one length: [CLS] A [SEP] or [CLS] A [SEP] B [SEP].

    Segment ids are 0 for A and 1 for B, each with its [SEP]; a tokenizer of
    another `packing` gives other rows. Too long a pair loses tokens one by one
    at the end of the longer text, of B where they are equally long
    (google-research/bert, run_classifier.py, `_truncate_seq_pair`).
    """

    def __init__(self, tokenizer: Tokenizer, seq_length: int):
        """Keeps the tokenizer and the length.

        Args:
          tokenizer: what turns texts into ids.
          seq_length: S, the length of a packed row.

        Raises:
          UserError: seq_length leaves no room for a token.
        """
        super().__init__()
        least = tokenizer.packing.num_special(1) + 1
        self.tokenizer = tokenizer
        # Special tokens and one other.
        self.seq_length = whole_number("seq_length", seq_length, least)

    def __repr__(self) -> str:
        return (
            f"SentencePacker({self.tokenizer!r}, seq_length={self.seq_length})"
        )

    def __call__(self, text_a, text_b=None) -> dict[str, tf.Tensor]:
        """The same as `pack`."""
        return self.pack(text_a, text_b)

    def pack(self, text_a, text_b=None) -> dict[str, tf.Tensor]:
        """Tokenizes and packs texts.

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
        with tf.device(HOST):
            is_single = ids_a.shape.rank == 1
            first, second = token_ids(_as_rows(ids_a)), None
            packing, checks = self.tokenizer.packing, []
            if ids_b is not None:
                self._check_pair(ids_a, ids_b)
                second = token_ids(_as_rows(ids_b))
                check = tf.debugging.assert_equal(
                    tf.size(first.count),
                    tf.size(second.count),
                    "text_a and text_b: unequal batches",
                )
                # None when run eagerly.
                checks = [] if check is None else [check]
            texts = 1 if second is None else 2
            room = self.seq_length - packing.num_special(texts)
            with tf.control_dependencies(checks):
                rows = pack_rows(*truncate(first, second, room), packing)
                packed = rows.padded(self.seq_length)
            if is_single:
                packed = {name: rows[0] for name, rows in packed.items()}
            return packed

    def _check_pair(self, ids_a: Ids, ids_b: Ids) -> None:
        least = self.tokenizer.packing.num_special(2) + 1
        if self.seq_length < least:
            raise UserError(
                f"seq_length={self.seq_length}: a pair needs at least {least}, "
                "for special tokens and one other."
            )
        if ids_a.shape.rank != ids_b.shape.rank or (
            ids_a.shape.rank == 2
            and not ids_a.shape[:1].is_compatible_with(ids_b.shape[:1])
        ):
            raise UserError(
                f"text_a has shape {ids_a.shape[:-1]} and text_b "
                f"{ids_b.shape[:-1]}; they must have one shape."
            )


def _as_rows(ids: Ids) -> tf.RaggedTensor:
    """Ids as ragged int32 [B, tokens]."""
    ids = tf.cast(ids, tf.int32)
    if isinstance(ids, tf.RaggedTensor):
        return ids
    if ids.shape.rank == 1:
        ids = ids[tf.newaxis]
    return tf.RaggedTensor.from_tensor(ids)
