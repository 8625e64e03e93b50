"""Stage 2 of a build: from the documents of a pool to a file of records.

Run as a module, this is a worker process that writes shards, without
TensorFlow.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_tf.files import partial_path
from bert_tf.processes import WorkerPool, give_memory_back, serve
from bert_tf.records.allocation import ShardJob
from bert_tf.records.examples import (
    pack_rows,
    packed_records,
    plain_records,
    static_records,
)
from bert_tf.records.instances import make_instances
from bert_tf.records.masking import predictions_by_length
from bert_tf.records.plan import RecordsTask
from bert_tf.records.record_file import write_records
from bert_tf.records.token_blocks import Documents, block_path, read_pool


@dataclasses.dataclass(frozen=True)
class ShardResult:
    """Statistics of one shard.

    Attributes:
      name: file name of the records.
      records: number of records.
      size: bytes of the file.
      documents: documents the records were made from.
      random_next: sequences with label 1.
      tokens: tokens of all records, specials included.
      tokens_cut: tokens lost by truncation.
      sequences: number of sequences.
      most_sequences: K, the maximum number of sequences in a record.
      most_predictions: P, the maximum number of masked tokens in a record, if
        records are packed.
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


def write_shard(
    name: str,
    documents: Documents,
    own: int,
    task: RecordsTask,
    write: Callable[[str, Iterator[bytes]], tuple[int, int]],
) -> ShardResult:
    """Makes the records of one shard and writes them.

    Args:
      name: file name of the records; with the recipe's seed it determines all
        random choices.
      documents: the documents of the shard, then the borrowed ones.
      own: number of documents that are not borrowed.
      task: what is built.
      write: writes records to the file of a name, atomically; returns the
        number of records and of bytes.
    """
    recipe, vocabulary = task.plan.recipe, task.tokenizer.vocabulary
    seed = f"{recipe.seed} {name}"
    instances = make_instances(documents, own, recipe, vocabulary.packing, seed)
    lengths = instances.lengths()
    most_sequences, most_predictions = 1, 0
    if recipe.static_masking:
        records = static_records(instances, recipe, vocabulary, seed)
    elif recipe.packing:
        rows = pack_rows(lengths, recipe.max_seq_length, seed)
        most_sequences = rows.largest_sum(np.ones_like(lengths))
        predictions = predictions_by_length(recipe)[lengths]
        most_predictions = rows.largest_sum(predictions)
        records = packed_records(instances, rows)
    else:
        records = plain_records(instances)
    count, size = write(name, records)
    return ShardResult(
        name=name,
        records=count,
        size=size,
        documents=own,
        random_next=int(np.sum(instances.labels == 1)),
        tokens=int(lengths.sum()),
        tokens_cut=instances.tokens_cut,
        sequences=len(instances),
        most_sequences=most_sequences,
        most_predictions=most_predictions,
    )


@dataclasses.dataclass(frozen=True)
class ShardBuilder:
    """Builds shards from block files; picklable.

    Attributes:
      task: what is built.
      work_dir: holds the block files and unfinished shards.
      output_dir: where finished shards are moved.
      num_blocks: number of block files.
    """

    task: RecordsTask
    work_dir: pathlib.Path
    output_dir: pathlib.Path
    num_blocks: int

    def build(self, job: ShardJob) -> ShardResult:
        """Writes one shard, atomically."""
        paths = [block_path(self.work_dir, n) for n in range(self.num_blocks)]
        own, borrowed = (
            [read_pool(paths, pool) for pool in pools]
            for pools in (job.pools, job.borrowed_pools)
        )
        documents = Documents.concatenate(own + borrowed)
        count = sum(map(len, own))
        del own, borrowed
        return write_shard(job.name, documents, count, self.task, self._write)

    def _write(self, name: str, records: Iterator[bytes]) -> tuple[int, int]:
        path = self.output_dir / name
        with partial_path(path, self.work_dir) as unfinished:
            written = write_records(unfinished, records)
            os.replace(unfinished, path)
        return written


def build_shards(
    builder: ShardBuilder, jobs: Sequence[ShardJob], workers: int
) -> Iterator[ShardResult]:
    """Builds shards in worker processes; yields each when it is finished.

    With one worker, this process builds them.
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
