"""Encodes sequences as tf.train.Examples: plain, packed or masked.

`pack_rows` groups sequences into records with little padding.
"""

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from bert_tf.records.instances import Instances
from bert_tf.records.masking import MaskingRule, mask_rows
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.record_file import (
    INT64_LIST,
    FixedExamples,
    FixedFeature,
    encode_example,
    encode_varints,
)
from bert_tf.text.token_table import TokenTable

# Rows processed at a time; lists of all rows would take much memory.
_ROWS_AT_ONCE = 1024
# The varints of labels 0, 1 and -1, by index.
_ENCODED_LABELS = (b"\x00", b"\x01", b"\xff" * 9 + b"\x01")


@dataclasses.dataclass(frozen=True)
class PackedRows:
    """Sequences grouped into rows.

    Attributes:
      sequences: indices of the sequences, row after row, int64 [n].
      row_starts: the first of them in each row, and the end, int64 [rows + 1].
    """

    sequences: np.ndarray
    row_starts: np.ndarray

    def __len__(self) -> int:
        return len(self.row_starts) - 1

    def largest_sum(self, values: np.ndarray) -> int:
        """Returns the maximum over rows of the sum of values, int [n]."""
        ends = np.concatenate([[0], np.cumsum(values[self.sequences])])
        return int(np.diff(ends[self.row_starts]).max(initial=0))


def pack_rows(lengths: np.ndarray, row_length: int, seed: str) -> PackedRows:
    """Packs sequences into rows, shuffled.

    Args:
      lengths: length of each sequence, int64 [n], from 1 to row_length.
      row_length: number of positions of a row.
      seed: determines the order of the rows.

    Returns:
      The rows, each with its sequences in increasing order.
    """
    rows, num_rows = _best_fit(lengths, row_length)
    # Best fit fills rows of long sequences first.
    rng = np.random.Generator(np.random.PCG64(list(seed.encode("utf-8"))))
    row = rng.permutation(num_rows)[rows]
    sizes = np.bincount(row, minlength=num_rows)
    return PackedRows(
        np.argsort(row, kind="stable"), np.concatenate([[0], np.cumsum(sizes)])
    )


def _best_fit(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, int]:
    """Returns the row of each sequence, int64 [n], and the number of rows.

    Best-fit decreasing: each sequence, the longest first, goes to the row with
    the least sufficient room. Sequences of equal length are placed together,
    like the histograms of Krell et al. 2021 (Efficient Sequence Packing without
    Cross-contamination), so the time hardly depends on their number.
    """
    row_of = np.empty(len(lengths), dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    placed = num_rows = 0
    # Rows by the room left in them, as lists of arrays.
    rows_with: list[list[np.ndarray]] = [[] for _ in range(row_length + 1)]

    def place(missing: int, length: int, rows: np.ndarray, room: int) -> int:
        """Fills rows of equal room; returns how many sequences are left."""
        nonlocal placed
        # A row that got a sequence has the least room, so it is the best fit
        # for the next sequences too, until it is full.
        each = room // length
        used = min(len(rows), -(-missing // each))
        numbers = np.full(used, each)
        numbers[-1] = last = min(each, missing - each * (used - 1))
        count = int(numbers.sum())
        row_of[order[placed : placed + count]] = np.repeat(rows[:used], numbers)
        placed += count
        for part, left in (
            (rows[: used - 1], room - each * length),
            (rows[used - 1 : used], room - last * length),
            (rows[used:], room),
        ):
            if len(part):
                rows_with[left].append(part)
        return missing - count

    counts = np.bincount(lengths, minlength=row_length + 1)
    for length in np.flatnonzero(counts)[::-1].tolist():
        missing = int(counts[length])
        for room in range(length, row_length):
            while missing and rows_with[room]:
                missing = place(missing, length, rows_with[room].pop(), room)
        if missing:
            new = -(-missing // (row_length // length))
            rows = np.arange(num_rows, num_rows + new)
            num_rows += new
            place(missing, length, rows, row_length)
    return row_of, num_rows


def _encoded_sequences(
    instances: Instances, order: np.ndarray
) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yields input_ids, segment_ids and the label of instances as varints."""
    packing = instances.packing
    # Tokens are encoded once; sequences copy ranges of the bytes.
    encoded, offsets = encode_varints(instances.ids)
    begin, middle, end = (
        encode_varints(np.array(special, np.int64))[0]
        for special in (packing.begin, packing.middle, packing.end)
    )
    before, behind = packing.before_second(0), len(packing.end)
    second = bytes([packing.second_segment])
    for start in range(0, len(order), _ROWS_AT_ONCE):
        rows = order[start : start + _ROWS_AT_ONCE]
        a_start, a_end = instances.a_start[rows], instances.a_end[rows]
        b_start, b_end = instances.b_start[rows], instances.b_end[rows]
        for a, after_a, b, after_b, length_a, length_b, label in zip(
            offsets[a_start].tolist(),
            offsets[a_end].tolist(),
            offsets[b_start].tolist(),
            offsets[b_end].tolist(),
            (a_end - a_start).tolist(),
            (b_end - b_start).tolist(),
            instances.labels[rows].tolist(),
            strict=True,
        ):
            yield (
                b"".join(
                    (begin, encoded[a:after_a], middle, encoded[b:after_b], end)
                ),
                bytes(length_a + before) + second * (length_b + behind),
                _ENCODED_LABELS[label],
            )


def plain_records(instances: Instances) -> Iterator[bytes]:
    """Encodes instances without masks and without padding.

    Features: input_ids, segment_ids and next_sentence_labels (see
    `Instances.labels`).
    """
    order = np.arange(len(instances))
    for tokens, segments, label in _encoded_sequences(instances, order):
        yield encode_example(
            {
                "input_ids": (INT64_LIST, tokens),
                "next_sentence_labels": (INT64_LIST, label),
                "segment_ids": (INT64_LIST, segments),
            }
        )


def packed_records(instances: Instances, rows: PackedRows) -> Iterator[bytes]:
    """Encodes packed rows without masks and without padding.

    Features: input_ids and segment_ids, concatenated over the sequences of a
    row; sequence_lengths and next_sentence_labels of each sequence. See
    `plain_records`.
    """
    order = rows.sequences
    lengths, offsets = encode_varints(instances.lengths()[order])
    sequences = _encoded_sequences(instances, order)
    for start, end in itertools.pairwise(rows.row_starts.tolist()):
        tokens, segments, labels = zip(
            *itertools.islice(sequences, end - start), strict=True
        )
        yield encode_example(
            {
                "input_ids": (INT64_LIST, b"".join(tokens)),
                "next_sentence_labels": (INT64_LIST, b"".join(labels)),
                "segment_ids": (INT64_LIST, b"".join(segments)),
                "sequence_lengths": (
                    INT64_LIST,
                    lengths[offsets[start] : offsets[end]],
                ),
            }
        )


def _gather_rows(
    instances: Instances, rows: slice, max_seq_length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns input_ids and segment_ids of instances, int32 [rows, S]."""
    packing = instances.packing
    a_start, b_start = instances.a_start[rows], instances.b_start[rows]
    end_a = instances.a_end[rows] - a_start + len(packing.begin)
    begin_b = end_a + len(packing.middle)
    end_b = begin_b + instances.b_end[rows] - b_start
    row, position = np.arange(len(a_start)), np.arange(max_seq_length)
    in_second = position >= begin_b[:, None]
    begin_a = a_start - len(packing.begin)
    source = np.where(in_second, (b_start - begin_b)[:, None], begin_a[:, None])
    source += position
    # Positions outside the texts are overwritten below.
    input_ids = instances.ids.take(source, mode="clip").astype(np.int32)
    for start, special in (
        (np.zeros_like(end_a), packing.begin),
        (end_a, packing.middle),
        (end_b, packing.end),
    ):
        for number, token in enumerate(special):
            input_ids[row, start + number] = token
    in_sequence = position < end_b[:, None] + len(packing.end)
    input_ids[~in_sequence] = packing.pad_id
    in_second &= in_sequence
    return input_ids, packing.second_segment * in_second.astype(np.int32)


def static_records(
    instances: Instances,
    recipe: RecordsRecipe,
    vocabulary: TokenTable,
    seed: str,
) -> Iterator[bytes]:
    """Encodes instances with masks, in the layout of google-research/bert.

    Features: input_ids, input_mask, segment_ids, masked_lm_positions,
    masked_lm_ids and next_sentence_labels (int64), masked_lm_weights (float);
    input_ids are padded by [PAD], the others by 0.

    Args:
      instances: the sentence pairs.
      recipe: the settings of the masks.
      vocabulary: the vocabulary of the ids.
      seed: determines the masks.
    """
    width, predictions = recipe.max_seq_length, recipe.max_predictions_per_seq
    layout = FixedExamples(
        [
            FixedFeature("input_ids", width, len(vocabulary)),
            FixedFeature("input_mask", width, 2),
            FixedFeature("masked_lm_ids", predictions, len(vocabulary)),
            FixedFeature("masked_lm_positions", predictions, width),
            FixedFeature("masked_lm_weights", predictions, None),
            FixedFeature("next_sentence_labels", 1, 2),
            FixedFeature("segment_ids", width, 2),
        ]
    )
    rule = MaskingRule.from_recipe(recipe, vocabulary)
    rng = np.random.Generator(np.random.PCG64(list(seed.encode("utf-8"))))
    lengths = instances.lengths()
    for start in range(0, len(instances), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        input_ids, segment_ids = _gather_rows(instances, rows, width)
        masked = mask_rows(input_ids, lengths[rows], rule, rng)
        yield from layout.encode(
            {
                **masked,
                "input_mask": np.arange(width) < lengths[rows, None],
                "next_sentence_labels": instances.labels[rows, None],
                "segment_ids": segment_ids,
            }
        )
