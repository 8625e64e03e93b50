"""Rows of token ids, end to end without padding, and batches of them."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    # It brings TensorFlow, which scoring a file needs nothing of.
    from bert_tf.text.tokenizer import BertTokenizer


# Texts tokenised at a time.
_TEXTS = 4096


@dataclasses.dataclass(frozen=True)
class TokenIds:
    """Token ids of N texts, end to end.

    Attributes:
      ids: int32 [T].
      begin: int64 [N], where each text begins in `ids`.
      count: int64 [N], how many tokens it has.
    """

    ids: np.ndarray
    begin: np.ndarray
    count: np.ndarray


@dataclasses.dataclass(frozen=True)
class EncodedRows:
    """Packed rows of token ids, end to end, without padding.

    Attributes:
      ids: int32 [T], [CLS] A [SEP] or [CLS] A [SEP] B [SEP] of every row.
      starts: int64 [R + 1], where each row begins in `ids`.
      first: int64 [R], how many tokens of a row are of segment 0.
      example: int64 [R], the example that a row is of, ascending.
      weights: float32 [R], one over the rows of its example.
      num_examples: how many examples the rows are of.
      pad_id: what pads a row.
    """

    ids: np.ndarray
    starts: np.ndarray
    first: np.ndarray
    example: np.ndarray
    weights: np.ndarray
    num_examples: int
    pad_id: int

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, int64 [R]."""
        return np.diff(self.starts)

    @property
    def segments(self) -> np.ndarray:
        """Segment of each token, int32 [T]: 1 in B and its [SEP], else 0."""
        first = np.repeat(self.first, self.lengths)
        return (counted(self.lengths) >= first).astype(np.int32)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What the rows are made of, for digests."""
        return self.ids, self.starts

    def batch(self, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """A batch of some rows, padded to the longest of them.

        Args:
          chosen: int64 [B], rows by number.

        Returns:
          The encoder's inputs, int32 [B, S].
        """
        lengths = self.lengths[chosen]
        place = np.arange(lengths.max())
        mask = place < lengths[:, None]
        ids = np.full(mask.shape, self.pad_id, np.int32)
        ids[mask] = take_ranges(self.ids, self.starts[chosen], lengths)
        segments = mask & (place >= self.first[chosen, None])
        return {
            "input_ids": ids,
            "input_mask": mask.astype(np.int32),
            "segment_ids": segments.astype(np.int32),
        }

    def __len__(self) -> int:
        return len(self.example)


def tokenize_texts(
    texts: Sequence[str], tokenizer: "BertTokenizer"
) -> TokenIds:
    """Tokenises texts, some thousands at a time."""
    ids, counts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for start in range(0, len(texts), _TEXTS):
        ragged = tokenizer.tokenize(list(texts[start : start + _TEXTS]))
        ids.append(ragged.values.numpy().astype(np.int32))
        counts.append(ragged.row_lengths().numpy().astype(np.int64))
    count = np.concatenate(counts)
    return TokenIds(np.concatenate(ids), np.cumsum(count) - count, count)


def cut_to_fit(
    first: TokenIds, second: TokenIds | None, room: int | np.ndarray
) -> tuple[TokenIds, TokenIds | None]:
    """Cuts texts, or pairs of texts, that are too long.

    A pair is cut as by `SentencePacker`: token by token at the end of the
    longer text, the second where they are equally long.

    Args:
      first: N texts.
      second: the N second texts, or None.
      room: how many tokens a row takes, or int64 [N].
    """
    if second is None:
        count = np.minimum(first.count, room)
        return dataclasses.replace(first, count=count), None
    count_a = np.minimum(
        first.count, np.maximum(room - second.count, (room + 1) // 2)
    )
    count_b = np.minimum(
        second.count, np.maximum(room - first.count, room // 2)
    )
    return (
        dataclasses.replace(first, count=count_a),
        dataclasses.replace(second, count=count_b),
    )


def counted(counts: np.ndarray) -> np.ndarray:
    """0, 1, ... count - 1 for each count, end to end."""
    starts = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(starts, counts)


def take_ranges(
    ids: np.ndarray, begin: np.ndarray, count: np.ndarray
) -> np.ndarray:
    """Stretches of an array, end to end.

    Args:
      ids: [T].
      begin: int64 [R], where each stretch begins.
      count: int64 [R], how long it is.
    """
    return ids[np.repeat(begin, count) + counted(count)]


def pack_rows(
    example: np.ndarray,
    first: TokenIds,
    second: TokenIds | None,
    num_examples: int,
    tokenizer: "BertTokenizer",
    is_pair: np.ndarray | None = None,
) -> EncodedRows:
    """Lays out [CLS] A [SEP], or with B [SEP] behind it, of every row.

    Args:
      example: int64 [R], the example that a row is of, ascending.
      first: the R texts A, which fit.
      second: the R texts B, or None.
      num_examples: how many examples the rows are of.
      tokenizer: what made the ids.
      is_pair: bool [R], which rows have a B, even an empty one; None: all, if
        there is a `second`.
    """
    vocabulary = tokenizer.vocabulary
    source = [np.array([vocabulary.cls_id, vocabulary.sep_id]), first.ids]
    zeros, ones = np.zeros_like(first.count), np.ones_like(first.count)
    # Where each piece of a row lies in the source, and how long it is.
    pieces = [(zeros, ones), (first.begin + 2, first.count), (ones, ones)]
    if second is not None:
        source.append(second.ids)
        begin = second.begin + 2 + len(first.ids)
        last = ones if is_pair is None else is_pair.astype(ones.dtype)
        pieces += [(begin, second.count), (ones, last)]
    begins = np.stack([begin for begin, _ in pieces], axis=1)
    counts = np.stack([count for _, count in pieces], axis=1)
    ids = take_ranges(np.concatenate(source), begins.ravel(), counts.ravel())
    starts = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
    rows = np.bincount(example, minlength=num_examples)
    return EncodedRows(
        ids=ids.astype(np.int32),
        starts=starts.astype(np.int64),
        first=first.count + 2,
        example=example,
        weights=(1.0 / rows[example]).astype(np.float32),
        num_examples=num_examples,
        pad_id=vocabulary.pad_id,
    )
