"""Worker processes that write shards; they import no TensorFlow."""

import concurrent.futures
from collections.abc import Iterator, Sequence

from bert_tf.processes import WorkerPool, serve
from bert_tf.records.shards import ShardBuilder, ShardJob, ShardResult


def build_shards(
    builder: ShardBuilder, jobs: Sequence[ShardJob], workers: int
) -> Iterator[ShardResult]:
    """Builds shards in worker processes; yields each as it is finished.

    Raises:
      OSError: what stopped the writing, such as a full disk, or killed a
        process.
      RuntimeError: a process failed.
    """
    count = min(workers, len(jobs))
    with WorkerPool("bert_tf.records.workers", builder, count) as pool:
        asked = [pool.submit(job) for job in jobs]
        for future in concurrent.futures.as_completed(asked):
            yield future.result()


if __name__ == "__main__":
    serve(lambda builder: builder.build)
