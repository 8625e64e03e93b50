"""One shard of records from tokenised documents.

Run as a module this is a worker process that writes shards, without
TensorFlow.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_tf.checkpoints.tokenizers import read_tokenizer
from bert_tf.files import partial_path
from bert_tf.processes import WorkerPool, give_memory_back, serve
from bert_tf.records.examples import (
    pack_rows,
    packed_records,
    plain_records,
    static_records,
)
from bert_tf.records.instances import make_instances
from bert_tf.records.masking import predictions_by_length
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.record_file import write_records
from bert_tf.records.token_blocks import (
    Documents,
    ShardJob,
    block_path,
    read_pool,
)
from bert_tf.text.token_table import TokenTable


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
      most_sequences: K, of one record.
      most_predictions: P, masked tokens of one record, if it is packed.
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

    The block files are in `work_dir`, where unfinished shards are written too.
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
        vocabulary = read_tokenizer(self.work_dir, notify=False).vocabulary
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
    vocabulary: TokenTable,
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
      write: writes records as the file of a name, whole or not at all; returns
        the number of records and of bytes.
    """
    seed = f"{recipe.seed} {name}"
    packing = vocabulary.packing
    instances = make_instances(
        documents, own, recipe, packing.num_special(2), seed
    )
    lengths = instances.lengths()
    most_sequences, most_predictions = 1, 0
    if recipe.static_masking:
        records = static_records(
            documents.ids, instances, recipe, vocabulary, seed
        )
    elif recipe.packing:
        rows = pack_rows(lengths, recipe.max_seq_length, seed)
        most_sequences = rows.largest_sum(np.ones_like(lengths))
        predictions = predictions_by_length(recipe)[lengths]
        most_predictions = rows.largest_sum(predictions)
        records = packed_records(documents.ids, instances, rows, packing)
    else:
        records = plain_records(documents.ids, instances, packing)
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


def build_shards(
    builder: ShardBuilder, jobs: Sequence[ShardJob], workers: int
) -> Iterator[ShardResult]:
    """Builds shards in worker processes; yields each as it is finished.

    With one worker it is done in this process.
    """
    count = min(workers, len(jobs))
    if count <= 1:
        for job in jobs:
            yield builder.build(job)
            give_memory_back()
        return
    with WorkerPool("bert_tf.records.shards", builder, count) as pool:
        futures = [pool.submit(job) for job in jobs]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()


if __name__ == "__main__":
    serve(lambda builder: builder.build)
