"""Rows filled with several whole sequences, and their records."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from bert_tf.records.instances import Instances
from bert_tf.records.record_file import (
    INT64_LIST,
    encode_example,
    encode_varints,
)
from bert_tf.text.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class PackedRows:
    """Which sequences stand in which row.

    Attributes:
      sequences: numbers of all sequences, row after row, int64 [n].
      row_starts: where each row begins in them and the end, int64 [r + 1].
    """

    sequences: np.ndarray
    row_starts: np.ndarray

    def __len__(self) -> int:
        return len(self.row_starts) - 1

    def largest_sum(self, values: np.ndarray) -> int:
        """The largest sum over the sequences of a row; 0 without rows.

        Args:
          values: of each sequence, by its number, int [n].
        """
        ends = np.concatenate([[0], np.cumsum(values[self.sequences])])
        return int(np.diff(ends[self.row_starts]).max(initial=0))


def pack_rows(lengths: np.ndarray, row_length: int, seed: str) -> PackedRows:
    """Packs sequences into rows, shuffled.

    Args:
      lengths: of each sequence, int64 [n], from 1 to row_length.
      row_length: places of a row.
      seed: decides the order of the rows.

    Returns:
      The rows; the sequences of each in the order of their numbers.
    """
    packer = _BestFit(lengths, row_length)
    packer.pack()
    # Best fit makes the rows of long sequences first.
    rng = np.random.Generator(np.random.PCG64(list(seed.encode("utf-8"))))
    row = rng.permutation(packer.num_rows)[packer.rows]
    sizes = np.bincount(row, minlength=packer.num_rows)
    return PackedRows(
        np.argsort(row, kind="stable"), np.concatenate([[0], np.cumsum(sizes)])
    )


class _BestFit:
    """Each sequence where it leaves the least room, the longest first.

    All sequences of a length are placed together, as with the histograms of
    Krell et al. 2021 ("Efficient Sequence Packing without
    Cross-contamination"), so that the work hardly grows with the number of
    sequences.

    Args:
      lengths: of each sequence, int64 [n], from 1 to row_length.
      row_length: places of a row.

    Attributes:
      rows: the row of each sequence, int64 [n].
      num_rows: number of rows.
    """

    def __init__(self, lengths: np.ndarray, row_length: int) -> None:
        self.row_length = row_length
        self.rows = np.empty(len(lengths), dtype=np.int64)
        self.num_rows = 0
        self._counts = np.bincount(lengths, minlength=row_length + 1)
        # Of equal lengths the first comes first.
        self._order = np.argsort(-lengths, kind="stable")
        self._placed = 0
        # Rows by the room left in them, in pieces.
        self._rows_with: list[list[np.ndarray]] = [
            [] for _ in range(row_length + 1)
        ]

    def pack(self) -> None:
        """Places every sequence."""
        for length in np.flatnonzero(self._counts)[::-1].tolist():
            missing = int(self._counts[length])
            for room in range(length, self.row_length):
                while missing and self._rows_with[room]:
                    rows = self._rows_with[room].pop()
                    missing -= self._place(missing, length, rows, room)
            if missing:
                new = -(-missing // (self.row_length // length))
                rows = np.arange(self.num_rows, self.num_rows + new)
                self.num_rows += new
                self._place(missing, length, rows, self.row_length)

    def _place(
        self, missing: int, length: int, rows: np.ndarray, room: int
    ) -> int:
        """Fills rows of equal room, one after the other.

        Args:
          missing: sequences to place, 1 or more.
          length: of each of them.
          rows: int64 [any number, 1 or more].
          room: left in each of them, at least the length.

        Returns:
          How many found a place.
        """
        # A row that took one has less room than the others, so it is the best
        # for the next one too as long as there is room.
        each = room // length
        used = min(len(rows), -(-missing // each))
        numbers = np.full(used, each)
        numbers[-1] = last = min(each, missing - each * (used - 1))
        placed = int(numbers.sum())
        found = self._order[self._placed : self._placed + placed]
        self.rows[found] = np.repeat(rows[:used], numbers)
        self._placed += placed
        for part, left in (
            (rows[: used - 1], room - each * length),
            (rows[used - 1 : used], room - last * length),
            (rows[used:], room),
        ):
            if len(part):
                self._rows_with[left].append(part)
        return placed


def packed_records(
    ids: np.ndarray,
    instances: Instances,
    rows: PackedRows,
    vocabulary: Vocabulary,
) -> Iterator[bytes]:
    """Encodes packed rows without masks and without padding.

    Features: input_ids and segment_ids of the sequences end to end,
    sequence_lengths, and next_sentence_labels (0 = B follows A, 1 = B is
    random) of each sequence.

    Args:
      ids: the tokens that the instances point into, [t].
      instances: the sentence pairs.
      rows: which of them stand in which row.
      vocabulary: gives the ids of [CLS] and [SEP].
    """
    # The tokens are encoded once; every record copies ranges of bytes.
    encoded, offsets = encode_varints(ids)
    cls, _ = encode_varints(np.array([vocabulary.cls_id]))
    sep, _ = encode_varints(np.array([vocabulary.sep_id]))
    order = rows.sequences
    lengths, length_offsets = encode_varints(instances.lengths()[order])
    labels = instances.is_random[order].astype(np.uint8).tobytes()
    a_start, a_end = instances.a_start[order], instances.a_end[order]
    b_start, b_end = instances.b_start[order], instances.b_end[order]
    sequences = zip(
        offsets[a_start].tolist(),
        offsets[a_end].tolist(),
        offsets[b_start].tolist(),
        offsets[b_end].tolist(),
        (a_end - a_start).tolist(),
        (b_end - b_start).tolist(),
        strict=True,
    )
    starts, places = rows.row_starts, length_offsets[rows.row_starts].tolist()
    for row, (start, end) in enumerate(
        zip(starts.tolist(), starts[1:].tolist(), strict=False)
    ):
        tokens: list[bytes] = []
        segments: list[bytes] = []
        for _ in range(start, end):
            a, after_a, b, after_b, length_a, length_b = next(sequences)
            tokens += cls, encoded[a:after_a], sep, encoded[b:after_b], sep
            segments += bytes(length_a + 2), b"\x01" * (length_b + 1)
        yield encode_example(
            {
                "input_ids": (INT64_LIST, b"".join(tokens)),
                "next_sentence_labels": (INT64_LIST, labels[start:end]),
                "segment_ids": (INT64_LIST, b"".join(segments)),
                "sequence_lengths": (
                    INT64_LIST,
                    lengths[places[row] : places[row + 1]],
                ),
            }
        )
