"""Builds a folder of pre-training records from text, on this machine.

First the text is tokenised, block by block, and its documents are dealt to
pools by chance; then every pool becomes one file of records. Both stages keep
what is finished in `output_dir/.work`, so a run that was killed goes on where
it stopped. What is written depends on the text, the vocabulary and the recipe
alone, not on the number of workers.
"""

import dataclasses
import json
import os
import pathlib
import time
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.corpora.sources import CorpusFile, files_of
from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.progress import Progress
from bert_tf.recipe import read_json_object
from bert_tf.records.folder import InputFile, Manifest
from bert_tf.records.jobs import (
    check_documents,
    first_warnings,
    held_out_warnings,
    manifest_of,
    plan_jobs,
)
from bert_tf.records.making import (
    RecordsTask,
    checked_vocabulary,
    make_records,
)
from bert_tf.records.plan import RecordsPlan
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.report import RecordsReport
from bert_tf.records.shards import (
    ShardBuilder,
    ShardJob,
    ShardResult,
    block_path,
)
from bert_tf.records.token_blocks import pool_documents
from bert_tf.records.tokenized_corpus import (
    BlockSummary,
    BlockWriter,
    finished_blocks,
    tokenize_corpus,
)
from bert_tf.records.visits import decide_visits
from bert_tf.records.workers import build_shards


def create_records(
    inputs: Sequence[str | pathlib.Path | CorpusFile],
    vocab_file: str | pathlib.Path,
    output_dir: str | pathlib.Path,
    recipe: RecordsRecipe,
    workers: int = 0,
    overwrite: bool = False,
    say: Callable[[str], None] = print,
) -> RecordsReport:
    """Makes pre-training records from text, or what is missing of them.

    Args:
      inputs: files of text (plain, .gz or .bz2) in the format that the recipe
        or their names tell, or what `parse_inputs` gives.
      vocab_file: the WordPiece vocabulary.
      output_dir: where the records go.
      recipe: how they are made.
      workers: parallel workers; 0 takes one for each processor. The records do
        not depend on it.
      overwrite: removes records of another recipe that are in output_dir.
      say: prints a line that is no result: a warning, or what happens.

    Returns:
      What the folder holds.

    Raises:
      UserError: input, vocabulary or folder cannot be used.
      OSError: the disk is full, or another error of the system; what was
        finished is kept for the next run.
    """
    if workers < 0:
        raise UserError(f"workers is {workers}; it must be 0 or more.")
    vocabulary, config = checked_vocabulary(vocab_file, recipe)
    files = files_of(inputs, recipe)
    described = tuple(InputFile.of(file) for file in files)
    plan = RecordsPlan(recipe, vocabulary.digest(), described, config)
    workers = workers or os.cpu_count() or 1

    def build(
        task: RecordsTask, output_dir: pathlib.Path, work_dir: pathlib.Path
    ) -> Manifest:
        return _Builder(task, output_dir, work_dir, workers).run()

    task = RecordsTask(plan, files, vocabulary, say)
    return make_records(task, pathlib.Path(output_dir), overwrite, build)


@dataclasses.dataclass(frozen=True)
class _Builder:
    """One run of the two stages."""

    task: RecordsTask
    output_dir: pathlib.Path
    work_dir: pathlib.Path
    workers: int

    @property
    def plan(self) -> RecordsPlan:
        return self.task.plan

    def say(self, line: str) -> None:
        self.task.say(line)

    def run(self) -> Manifest:
        """Does what is missing; returns what the folder holds."""
        blocks = self._tokenize()
        if self.plan.recipe.near_duplicates:
            self.say(f"{self.output_dir}: looking for near-duplicates.")
        corpora = decide_visits(self.work_dir, blocks, self.plan)
        counts = self._pool_documents(len(blocks))
        check_documents(self.task.files, blocks, counts)
        jobs = plan_jobs(self.plan, counts)
        for warning in held_out_warnings(self.plan, jobs, counts):
            self.say(f"warning: {warning}")
        results = self._build_shards(jobs, len(blocks), int(counts.sum()))
        return manifest_of(self.plan, blocks, corpora, results)

    def _tokenize(self) -> list[BlockSummary]:
        """The first stage: every block of text as a file of tokens."""
        blocks = finished_blocks(self.work_dir)
        read = blocks[-1].bytes_read if blocks else 0
        if blocks:
            self.say(f"{self.output_dir}: going on after {len(blocks)} blocks.")
        if blocks and blocks[-1].end.file == len(self.task.files):
            return blocks
        writer = BlockWriter(
            self.task.files,
            self.task.vocabulary,
            self.plan.tokenizer_config,
            self.plan.recipe,
            self.plan.num_shards,
            self.work_dir,
        )
        warnings: list[str] = []
        started, documents = time.monotonic(), 0
        with Progress(
            "tokenising", self.plan.input_bytes, read, "B"
        ) as progress:
            for block in tokenize_corpus(writer, self.workers, list(blocks)):
                blocks.append(block)
                documents += block.documents
                speed = documents / (time.monotonic() - started)
                progress.update(
                    block.bytes_read - read, f"{speed:,.0f} documents/s"
                )
                read = block.bytes_read
                warnings += block.warnings
        for warning in first_warnings(warnings):
            self.say(f"warning: {warning}")
        return blocks

    def _build_shards(
        self, jobs: Sequence[ShardJob], num_blocks: int, documents: int
    ) -> list[ShardResult]:
        """The second stage: every pool of documents as a file of records."""
        results = {
            job.name: result
            for job in jobs
            if (result := self._finished_shard(job.name))
        }
        missing = [job for job in jobs if job.name not in results]
        if results:
            self.say(
                f"{self.output_dir}: {len(results)} of {len(jobs)} files are "
                "there already."
            )
        builder = ShardBuilder(
            self.work_dir, self.output_dir, num_blocks, self.plan.recipe
        )
        done = sum(result.documents for result in results.values())
        with Progress(
            "writing records", documents, done, " documents"
        ) as progress:
            for result in build_shards(builder, missing, self.workers):
                results[result.name] = result
                text = json.dumps(dataclasses.asdict(result))
                write_text(self._result_path(result.name), text)
                progress.update(
                    result.documents, f"{len(results)}/{len(jobs)} files"
                )
        return [results[job.name] for job in jobs]

    def _pool_documents(self, num_blocks: int) -> np.ndarray:
        """Number of documents of each pool, int64 [shards + 1]."""
        counts = np.zeros(self.plan.num_shards + 1, dtype=np.int64)
        for number in range(num_blocks):
            counts += pool_documents(block_path(self.work_dir, number))
        return counts

    def _result_path(self, name: str) -> pathlib.Path:
        return self.work_dir / f"{name}.json"

    def _finished_shard(self, name: str) -> ShardResult | None:
        """What an earlier run wrote of a shard, if it is whole."""
        path, records = self._result_path(name), self.output_dir / name
        if not path.exists() or not records.exists():
            return None
        result = ShardResult(**read_json_object(path))
        return result if records.stat().st_size == result.size else None
