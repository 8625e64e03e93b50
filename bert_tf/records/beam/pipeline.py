"""The build of records as an Apache Beam pipeline.

One worker reads the text in order, since the boundary of a block depends on all
text before it; blocks are tokenised in parallel. One worker allocates the
documents to record files; then the documents are grouped by file, and the files
are written in parallel. Every step calls the functions of the local build, so
the files are identical, byte for byte.

User errors are passed on as values: a runner would retry a step that raises,
and report it in a form of its own.
"""

import dataclasses
import json
import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import apache_beam as beam
import numpy as np

from bert_tf.corpora.streams import Position
from bert_tf.errors import UserError
from bert_tf.records.allocation import Allocation, allocate
from bert_tf.records.beam.files import local_copies, write_whole
from bert_tf.records.corpus import Block, read_blocks
from bert_tf.records.near_duplicates import signature_bytes, signature_path
from bert_tf.records.plan import RecordsTask
from bert_tf.records.record_file import write_frames
from bert_tf.records.report import manifest_of
from bert_tf.records.shards import ShardResult, write_shard
from bert_tf.records.token_blocks import BlockSummary, Documents, block_path
from bert_tf.records.tokenized_corpus import tokenize_block

_FACTS = "facts"


@dataclasses.dataclass(frozen=True)
class InputError:
    """The message of a `UserError`, and the block where it was raised."""

    block: int
    message: str


@dataclasses.dataclass(frozen=True)
class BlockFacts:
    """What the allocation of documents needs to know of a block.

    Attributes:
      block: number of the block.
      summary: its statistics.
      tokens: number of tokens of each document, int64 [D].
      signatures: the content of its signature file; empty if not needed.
    """

    block: int
    summary: BlockSummary
    tokens: np.ndarray
    signatures: bytes


@dataclasses.dataclass(frozen=True)
class Part:
    """The documents of one block in one record file.

    Attributes:
      pool: index of their pool among those of the file.
      block: number of the block.
      is_own: whether they become records, or are borrowed.
      documents: the documents.
    """

    pool: int
    block: int
    is_own: bool
    documents: Documents


_TaggedFacts: TypeAlias = beam.pvalue.TaggedOutput[
    Literal["facts"], BlockFacts | InputError
]


class _Step(beam.DoFn):
    """A step of the build.

    Args:
      task: what is built.
      output_dir: the folder of the records, a path or a URL.
      outcome: name of the file in it for the result of the pipeline.
    """

    def __init__(
        self, task: RecordsTask, output_dir: str, outcome: str
    ) -> None:
        self.task = task
        self.output_dir = output_dir
        self.outcome = outcome


class ReadBlocks(_Step):
    """Reads the whole text in blocks, up to the first user error."""

    def process(self, start: int) -> Iterator[Block | InputError]:
        """Yields all blocks."""
        number = start
        try:
            paths = [file.path for file in self.task.files]
            with local_copies(paths) as copies:
                original = dict(zip(copies, paths, strict=True))
                pairs = zip(self.task.files, copies, strict=True)
                for block in read_blocks(
                    [dataclasses.replace(f, path=copy) for f, copy in pairs],
                    Position(),
                    number,
                    self.task.plan.recipe,
                    os.cpu_count() or 1,
                ):
                    number = block.number + 1
                    lines = [
                        line._replace(path=original[line.path])
                        for line in block.long_lines
                    ]
                    yield dataclasses.replace(block, long_lines=lines)
        except UserError as error:
            yield InputError(number, str(error))
        except FileNotFoundError as error:
            yield InputError(
                number,
                f"`inputs`={error.filename}: the worker that reads has no such "
                "file; put it where every worker finds it.",
            )


class TokenizeBlocks(_Step):
    """Tokenises blocks; yields documents, and facts as a second output."""

    def setup(self) -> None:
        """Loads the tokenizer, once in each worker."""
        self.tokenizer = self.task.tokenizer.worker()

    def process(
        self, block: Block | InputError
    ) -> Iterator[tuple[int, Documents] | _TaggedFacts]:
        """Yields the number and the documents of a block."""
        if isinstance(block, InputError):
            yield beam.pvalue.TaggedOutput(_FACTS, block)
            return
        try:
            documents, summary = tokenize_block(
                block, self.tokenizer, self.task
            )
        except UserError as error:
            failed = InputError(block.number, str(error))
            yield beam.pvalue.TaggedOutput(_FACTS, failed)
            return
        threshold = self.task.plan.recipe.near_duplicates
        facts = BlockFacts(
            block.number,
            summary,
            documents.lengths(),
            signature_bytes(documents, threshold) if threshold else b"",
        )
        yield beam.pvalue.TaggedOutput(_FACTS, facts)
        yield block.number, documents


class AllocateDocuments(_Step):
    """Allocates the documents of all blocks to record files."""

    def process(
        self, element: tuple[None, Iterable[BlockFacts | InputError]]
    ) -> Iterator[Allocation | str]:
        """Yields the allocation, or the message of a user error."""
        errors: list[InputError] = []
        all_facts: list[BlockFacts] = []
        with tempfile.TemporaryDirectory(prefix="bert_tf_") as name:
            folder = pathlib.Path(name)
            for facts in element[1]:
                if isinstance(facts, InputError):
                    errors.append(facts)
                    continue
                # On disk, since all together may not fit the memory.
                path = signature_path(block_path(folder, facts.block))
                path.write_bytes(facts.signatures)
                all_facts.append(dataclasses.replace(facts, signatures=b""))
            if errors:
                yield min(errors, key=lambda error: error.block).message
                return
            all_facts.sort(key=lambda facts: facts.block)
            try:
                yield allocate(
                    self.task,
                    [facts.summary for facts in all_facts],
                    lambda: [facts.tokens for facts in all_facts],
                    folder,
                )
            except UserError as error:
                yield str(error)


class SendDocuments(_Step):
    """Sends the documents of a block to the record files that need them."""

    def process(
        self, element: tuple[int, Documents], allocation: Allocation | str
    ) -> Iterator[tuple[str, Part]]:
        """Yields names of files, each with documents."""
        number, documents = element
        if isinstance(allocation, str):
            return
        pools = self.task.plan.assign_pools(len(documents), number)
        if allocation.repeats is not None:
            repeats = allocation.repeats[number]
            documents = dataclasses.replace(documents, repeats=repeats)
            # No pool has this number.
            pools = np.where(repeats > 0, pools, -1)
        for job in allocation.jobs:
            for index, pool in enumerate(job.pools + job.borrowed_pools):
                chosen = np.flatnonzero(pools == pool)
                if len(chosen):
                    is_own = index < len(job.pools)
                    part = Part(index, number, is_own, documents.take(chosen))
                    yield job.name, part


class WriteShards(_Step):
    """Writes record files."""

    def process(
        self, element: tuple[str, Iterable[Part | None]]
    ) -> Iterator[ShardResult]:
        """Yields the statistics of a file."""
        name, unsorted = element
        parts = sorted(
            (part for part in unsorted if part is not None),
            key=lambda part: (part.pool, part.block),
        )
        empty = Documents(
            np.zeros(0, np.uint16), np.zeros(1, np.int64), np.zeros(1, np.int64)
        )
        yield write_shard(
            name,
            Documents.concatenate(
                [part.documents for part in parts] or [empty]
            ),
            sum(len(part.documents) for part in parts if part.is_own),
            self.task,
            lambda name, records: write_whole(
                self.output_dir, name, lambda file: write_frames(file, records)
            ),
        )


class WriteOutcome(_Step):
    """Writes the result of the pipeline for the process that started it."""

    def process(
        self, results: list[ShardResult], allocation: Allocation | str
    ) -> Iterator[str]:
        """Yields the name of the file."""
        values: dict[str, object] = {"error": allocation}
        if not isinstance(allocation, str):
            manifest = manifest_of(self.task.plan, allocation, results)
            values = {
                "warnings": allocation.warnings,
                "manifest": json.loads(manifest.to_json()),
            }
        text = json.dumps(values).encode("utf-8")
        write_whole(
            self.output_dir, self.outcome, lambda file: file.write(text)
        )
        yield self.outcome


def add_steps(
    pipeline: beam.Pipeline, task: RecordsTask, output_dir: str, outcome: str
) -> None:
    """Adds all steps to an empty pipeline; see `_Step` for the arguments."""
    arguments = (task, output_dir, outcome)
    tokenized = (
        pipeline
        | "Begin" >> beam.Create([0])
        | "ReadBlocks" >> beam.ParDo(ReadBlocks(*arguments))
        | "SpreadBlocks" >> beam.Reshuffle()
        | "TokenizeBlocks"
        >> beam.ParDo(TokenizeBlocks(*arguments)).with_outputs(
            _FACTS, main="documents"
        )
    )
    allocated = (
        tokenized[_FACTS]
        | "KeyFacts" >> beam.Map(lambda facts: (None, facts))
        | "GatherFacts" >> beam.GroupByKey()
        | "AllocateDocuments" >> beam.ParDo(AllocateDocuments(*arguments))
    )
    allocation = beam.pvalue.AsSingleton(allocated)
    parts = tokenized["documents"] | "SendDocuments" >> beam.ParDo(
        SendDocuments(*arguments), allocation
    )
    # Files without documents are written too.
    names = allocated | "NameFiles" >> beam.FlatMap(
        lambda result: (
            []
            if isinstance(result, str)
            else [(job.name, None) for job in result.jobs]
        )
    )
    (
        (parts, names)
        | "AllParts" >> beam.Flatten()
        | "GatherParts" >> beam.GroupByKey()
        | "WriteShards" >> beam.ParDo(WriteShards(*arguments))
        | "GatherResults" >> beam.combiners.ToList()
        | "WriteOutcome" >> beam.ParDo(WriteOutcome(*arguments), allocation)
    )
