"""One shard of records from tokenised documents, without TensorFlow."""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Callable, Iterator

import numpy as np

from bert_tf.files import partial_path
from bert_tf.records.fixed_examples import FixedExamples, FixedFeature
from bert_tf.records.instances import Instances, make_instances
from bert_tf.records.masking import (
    MaskingRule,
    mask_rows,
    predictions_by_length,
)
from bert_tf.records.packing import pack_rows, packed_records
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.record_file import (
    INT64_LIST,
    encode_example,
    encode_varints,
    write_records,
)
from bert_tf.records.token_blocks import Documents, read_pool
from bert_tf.text.vocabulary import VOCABULARY_FILE, Vocabulary

_ROWS_AT_ONCE = 1024


@dataclasses.dataclass(frozen=True)
class ShardJob:
    """What a worker needs to write one shard.

    Attributes:
      name: file name of the records.
      pools: the pools whose documents become records, in order.
      borrowed_pools: pools whose documents may serve as random text B, in
        order.
    """

    name: str
    pools: tuple[int, ...]
    borrowed_pools: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ShardResult:
    """What one shard holds.

    Attributes:
      name: file name of the records.
      records: number of records.
      size: bytes of the file.
      documents: documents they were made from.
      random_next: sequences whose text B is from another document.
      tokens: tokens of all records, specials included.
      tokens_cut: tokens that truncation left out.
      sequences: number of sequences.
      most_sequences: sequences of the record that has most of them.
      most_predictions: masked tokens of the record that has most of them, if
        it is packed.
    """

    name: str
    records: int
    size: int
    documents: int
    random_next: int
    tokens: int
    tokens_cut: int
    sequences: int = 0
    most_sequences: int = 0
    most_predictions: int = 0


@dataclasses.dataclass(frozen=True)
class ShardBuilder:
    """Writes shards; all it holds is small and can be sent to a process.

    Attributes:
      work_dir: where the block files are and unfinished files go.
      output_dir: where finished shards go.
      num_blocks: number of block files.
      recipe: how records are made.
    """

    work_dir: pathlib.Path
    output_dir: pathlib.Path
    num_blocks: int
    recipe: RecordsRecipe

    def _read_pools(self, pools: tuple[int, ...]) -> Documents:
        paths = [
            block_path(self.work_dir, number)
            for number in range(self.num_blocks)
        ]
        return Documents.concatenate([read_pool(paths, p) for p in pools])

    def build(self, job: ShardJob) -> ShardResult:
        """Writes one shard, whole or not at all."""
        vocabulary = Vocabulary.from_file(self.work_dir / VOCABULARY_FILE)
        documents = self._read_pools(job.pools)
        own = len(documents)
        if job.borrowed_pools:
            borrowed = self._read_pools(job.borrowed_pools)
            documents = Documents.concatenate([documents, borrowed])
        return write_shard(
            job.name, documents, own, self.recipe, vocabulary, self._write
        )

    def _write(self, name: str, records: Iterator[bytes]) -> tuple[int, int]:
        path = self.output_dir / name
        with partial_path(path, self.work_dir) as unfinished:
            written = write_records(unfinished, records)
            os.replace(unfinished, path)
        return written


def write_shard(
    name: str,
    documents: Documents,
    own: int,
    recipe: RecordsRecipe,
    vocabulary: Vocabulary,
    write: Callable[[str, Iterator[bytes]], tuple[int, int]],
) -> ShardResult:
    """Makes the records of one shard and has them written.

    Args:
      name: file name of the records; with the recipe's seed it decides every
        choice.
      documents: those of the shard, then the borrowed ones.
      own: how many are the shard's.
      recipe: how records are made.
      vocabulary: made the ids.
      write: writes records as the file of a name, whole or not at all, and
        gives the number of records and of bytes.
    """
    seed = f"{recipe.seed} {name}"
    instances = make_instances(documents, own, recipe, seed)
    lengths = instances.lengths()
    most_sequences, most_predictions = 1, 0
    if recipe.static_masking:
        records = static_records(
            documents.ids, instances, recipe, vocabulary, seed
        )
    elif recipe.packing:
        rows = pack_rows(lengths, recipe.max_seq_length, seed)
        most_sequences = rows.largest_sum(np.ones_like(lengths))
        wanted = predictions_by_length(recipe)[lengths]
        most_predictions = rows.largest_sum(wanted)
        records = packed_records(documents.ids, instances, rows, vocabulary)
    else:
        records = plain_records(documents.ids, instances, vocabulary)
    count, size = write(name, records)
    return ShardResult(
        name=name,
        records=count,
        size=size,
        documents=own,
        random_next=int(instances.is_random.sum()),
        tokens=int(lengths.sum()),
        tokens_cut=instances.tokens_cut,
        sequences=len(instances),
        most_sequences=most_sequences,
        most_predictions=most_predictions,
    )


def block_path(work_dir: pathlib.Path, number: int) -> pathlib.Path:
    """The file of a tokenised block."""
    return work_dir / f"block-{number:06d}.tokens"


def _slices(count: int) -> Iterator[slice]:
    """Rows to be worked on together: lists of all would take much memory."""
    for start in range(0, count, _ROWS_AT_ONCE):
        yield slice(start, start + _ROWS_AT_ONCE)


def plain_records(
    ids: np.ndarray, instances: Instances, vocabulary: Vocabulary
) -> Iterator[bytes]:
    """Encodes instances without masks and without padding.

    Features: input_ids, segment_ids and next_sentence_labels (0 = B follows A,
    1 = B is random).

    Args:
      ids: the tokens that the instances point into, [t].
      instances: the sentence pairs.
      vocabulary: gives the ids of [CLS] and [SEP].
    """
    # The tokens are encoded once; every record copies ranges of bytes.
    encoded, offsets = encode_varints(ids)
    cls, _ = encode_varints(np.array([vocabulary.cls_id]))
    sep, _ = encode_varints(np.array([vocabulary.sep_id]))
    ranges = itertools.chain.from_iterable(
        zip(
            offsets[instances.a_start[rows]].tolist(),
            offsets[instances.a_end[rows]].tolist(),
            offsets[instances.b_start[rows]].tolist(),
            offsets[instances.b_end[rows]].tolist(),
            (instances.a_end - instances.a_start)[rows].tolist(),
            (instances.b_end - instances.b_start)[rows].tolist(),
            instances.is_random[rows].tolist(),
            strict=True,
        )
        for rows in _slices(len(instances))
    )
    for a_start, a_end, b_start, b_end, length_a, length_b, other in ranges:
        text_a, text_b = encoded[a_start:a_end], encoded[b_start:b_end]
        yield encode_example(
            {
                "input_ids": (
                    INT64_LIST,
                    b"".join((cls, text_a, sep, text_b, sep)),
                ),
                "next_sentence_labels": (
                    INT64_LIST,
                    b"\x01" if other else b"\x00",
                ),
                "segment_ids": (
                    INT64_LIST,
                    bytes(length_a + 2) + b"\x01" * (length_b + 1),
                ),
            }
        )


def gather_rows(
    ids: np.ndarray,
    instances: Instances,
    rows: slice,
    max_seq_length: int,
    vocabulary: Vocabulary,
) -> tuple[np.ndarray, np.ndarray]:
    """Gathers [CLS] A [SEP] B [SEP] into padded rows.

    Args:
      ids: the tokens that the instances point into, [t].
      instances: the sentence pairs.
      rows: which of them.
      max_seq_length: S.
      vocabulary: gives the ids of [CLS] and [SEP].

    Returns:
      input_ids and segment_ids, int32 [rows, S], zero-padded.
    """
    a_start, b_start = instances.a_start[rows], instances.b_start[rows]
    first_sep = instances.a_end[rows] - a_start + 1
    second_sep = first_sep + instances.b_end[rows] - b_start + 1
    numbers, place = np.arange(len(a_start)), np.arange(max_seq_length)
    after_a = place > first_sep[:, None]
    source = np.where(
        after_a, (b_start - first_sep - 1)[:, None], (a_start - 1)[:, None]
    )
    source += place
    # Places of no text are written over, or past the end of the row.
    input_ids = ids.take(source, mode="clip").astype(np.int32)
    input_ids[:, 0] = vocabulary.cls_id
    input_ids[numbers, first_sep] = vocabulary.sep_id
    input_ids[numbers, second_sep] = vocabulary.sep_id
    in_sequence = place <= second_sep[:, None]
    input_ids *= in_sequence
    return input_ids, (after_a & in_sequence).astype(np.int32)


def static_records(
    ids: np.ndarray,
    instances: Instances,
    recipe: RecordsRecipe,
    vocabulary: Vocabulary,
    seed: str,
) -> Iterator[bytes]:
    """Encodes instances with masks, as google-research/bert writes them.

    Features: input_ids, input_mask, segment_ids, masked_lm_positions,
    masked_lm_ids and next_sentence_labels (int64), masked_lm_weights (float),
    all zero-padded.

    Args:
      ids: the tokens that the instances point into, [t].
      instances: the sentence pairs.
      recipe: lengths and masking.
      vocabulary: gives the special ids and the words' pieces.
      seed: decides the masks.
    """
    rule = MaskingRule.from_recipe(recipe, vocabulary)
    rng = np.random.Generator(np.random.PCG64(list(seed.encode("utf-8"))))
    lengths = instances.lengths()
    layout = _static_layout(recipe, len(vocabulary))
    for rows in _slices(len(instances)):
        input_ids, segment_ids = gather_rows(
            ids, instances, rows, recipe.max_seq_length, vocabulary
        )
        masked = mask_rows(input_ids, lengths[rows], rule, rng)
        yield from layout.encode(
            {
                "input_ids": masked.input_ids,
                "input_mask": np.arange(recipe.max_seq_length)
                < lengths[rows, None],
                "masked_lm_ids": masked.masked_lm_ids,
                "masked_lm_positions": masked.masked_lm_positions,
                "masked_lm_weights": masked.masked_lm_weights,
                "next_sentence_labels": instances.is_random[rows, None],
                "segment_ids": segment_ids,
            }
        )


def _static_layout(recipe: RecordsRecipe, vocab_size: int) -> FixedExamples:
    length = recipe.max_seq_length
    predictions = recipe.max_predictions_per_seq
    return FixedExamples(
        [
            FixedFeature("input_ids", length, vocab_size),
            FixedFeature("input_mask", length, 2),
            FixedFeature("masked_lm_ids", predictions, vocab_size),
            FixedFeature("masked_lm_positions", predictions, length),
            FixedFeature("masked_lm_weights", predictions, None),
            FixedFeature("next_sentence_labels", 1, 2),
            FixedFeature("segment_ids", length, 2),
        ]
    )
