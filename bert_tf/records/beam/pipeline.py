"""The record builder as an Apache Beam pipeline.

One worker reads the text in order, since the cuts between blocks depend on all
that stands before them; blocks are tokenised anywhere. What the blocks came to
decides on one worker which documents are used and in which files; then the
documents are grouped by file, and every file is made anywhere. Each step calls
what the builder for one machine calls, so the files are the same, byte for
byte.

A mistake of the user's is passed on as a value: a runner would try a step that
raises again and again, and report it in its own way.
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

from bert_tf.corpora.sources import CorpusFile
from bert_tf.corpora.streams import Position
from bert_tf.errors import UserError
from bert_tf.records.beam.files import local_files, write_whole
from bert_tf.records.corpus import Block, read_blocks
from bert_tf.records.plan import RecordsPlan, plan_jobs
from bert_tf.records.record_file import write_frames
from bert_tf.records.repeats import (
    CorpusSummary,
    count_repeats,
    signature_bytes,
    signature_path,
)
from bert_tf.records.report import check_documents
from bert_tf.records.shards import ShardResult, write_shard
from bert_tf.records.token_blocks import (
    BlockSummary,
    Documents,
    ShardJob,
    block_path,
)
from bert_tf.records.tokenized_corpus import take_block, tokenize_block
from bert_tf.text.tokenizer_protocol import TokenizerData

_FACTS = "facts"


@dataclasses.dataclass(frozen=True)
class PipelineTask:
    """What the steps need to know; it can be pickled.

    Attributes:
      plan: what is to be built.
      files: the input files.
      tokenizer: makes the ids.
      output_dir: folder of the records, a path or a URL.
      outcome: name of the file in it that reports what the pipeline did.
    """

    plan: RecordsPlan
    files: tuple[CorpusFile, ...]
    tokenizer: TokenizerData
    output_dir: str
    outcome: str


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A mistake of the user's, and the block in which it was met."""

    block: int
    text: str


@dataclasses.dataclass(frozen=True)
class BlockFacts:
    """What is known of a tokenised block.

    Attributes:
      number: of the block.
      summary: its counts.
      tokens: of each document, int64 [d].
      signatures: as `signature_bytes` gives them; None if none are needed.
    """

    number: int
    summary: BlockSummary
    tokens: np.ndarray
    signatures: bytes | None


_TaggedFacts: TypeAlias = beam.pvalue.TaggedOutput[
    Literal["facts"], BlockFacts | Mistake
]


@dataclasses.dataclass(frozen=True)
class Decision:
    """What all blocks together came to.

    Attributes:
      mistake: what makes records impossible; None for nothing.
      blocks: what is known of each block, in order.
      corpora: what is taken of each corpus.
      counts: documents of each pool, int64 [shards + 1].
      jobs: the files to write.
      repeats: how often each document of a block is used, by the block's
        number; None where each is used once.
    """

    mistake: str | None
    blocks: tuple[BlockSummary, ...] = ()
    corpora: dict[str, CorpusSummary] = dataclasses.field(default_factory=dict)
    counts: np.ndarray | None = None
    jobs: tuple[ShardJob, ...] = ()
    repeats: dict[int, np.ndarray] | None = None


@dataclasses.dataclass(frozen=True)
class Part:
    """The documents of one block in one file.

    Attributes:
      pool: place of their pool among those of the file.
      block: number of the block.
      is_own: whether they become records, or lend their sentences only.
      documents: the documents.
    """

    pool: int
    block: int
    is_own: bool
    documents: Documents


class ReadBlocks(beam.DoFn):
    """Reads the whole text, block by block."""

    def __init__(self, task: PipelineTask) -> None:
        self.task = task

    def process(self, start: int) -> Iterator[Block | Mistake]:
        """Gives all blocks, up to a mistake."""
        number = start
        try:
            with local_files(self.task.files) as files:
                names = {
                    copy.path: file.path
                    for copy, file in zip(files, self.task.files, strict=True)
                }
                for block in read_blocks(
                    files,
                    Position(),
                    number,
                    self.task.plan.recipe,
                    os.cpu_count() or 1,
                ):
                    number = block.number + 1
                    lines = [
                        dataclasses.replace(line, path=names[line.path])
                        for line in block.long_lines
                    ]
                    yield dataclasses.replace(block, long_lines=lines)
        except UserError as error:
            yield Mistake(number, str(error))
        except FileNotFoundError as error:
            yield Mistake(
                number,
                f"`inputs`={error.filename}: the worker that reads has no such "
                "file; put it where every worker finds it.",
            )


class TokenizeBlocks(beam.DoFn):
    """Tokenises blocks; gives their documents, and aside what is known."""

    def __init__(self, task: PipelineTask) -> None:
        self.task = task

    def setup(self) -> None:
        """Makes the tokenizer, once on each worker."""
        self.tokenizer = self.task.tokenizer.worker()

    def process(
        self, block: Block | Mistake
    ) -> Iterator[tuple[int, Documents] | _TaggedFacts]:
        """Gives the number and the documents of a block."""
        if isinstance(block, Mistake):
            yield beam.pvalue.TaggedOutput(_FACTS, block)
            return
        plan = self.task.plan
        ids, lengths = tokenize_block(block, self.tokenizer)
        try:
            documents, summary = take_block(
                block,
                ids,
                lengths,
                self.task.files,
                self.task.tokenizer.vocabulary,
                plan.recipe,
            )
        except UserError as error:
            mistake = Mistake(block.number, str(error))
            yield beam.pvalue.TaggedOutput(_FACTS, mistake)
            return
        threshold = plan.recipe.near_duplicates
        signatures = (
            signature_bytes(documents, threshold) if threshold else None
        )
        bounds = documents.sentence_starts[documents.document_starts]
        facts = BlockFacts(block.number, summary, np.diff(bounds), signatures)
        yield beam.pvalue.TaggedOutput(_FACTS, facts)
        yield block.number, documents


class Decide(beam.DoFn):
    """Decides, knowing all blocks, what goes into which file."""

    def __init__(self, task: PipelineTask) -> None:
        self.task = task

    def process(
        self, element: tuple[None, Iterable[BlockFacts | Mistake]]
    ) -> Iterator[Decision]:
        """Gives the one decision."""
        with tempfile.TemporaryDirectory(prefix="bert_tf_") as folder:
            yield self._decide(pathlib.Path(folder), element[1])

    def _decide(
        self, folder: pathlib.Path, all_facts: Iterable[BlockFacts | Mistake]
    ) -> Decision:
        mistakes, kept = [], []
        for facts in all_facts:
            if isinstance(facts, Mistake):
                mistakes.append(facts)
                continue
            if facts.signatures is not None:
                path = signature_path(block_path(folder, facts.number))
                path.write_bytes(facts.signatures)
            kept.append(dataclasses.replace(facts, signatures=None))
        if mistakes:
            return Decision(min(mistakes, key=lambda m: m.block).text)
        kept.sort(key=lambda facts: facts.number)
        try:
            return self._decide_files(folder, kept)
        except UserError as error:
            return Decision(str(error))

    def _decide_files(
        self, folder: pathlib.Path, kept: list[BlockFacts]
    ) -> Decision:
        plan = self.task.plan
        blocks = [facts.summary for facts in kept]
        corpora: dict[str, CorpusSummary] = {}
        repeats = None
        if not plan.takes_each_document_once:
            paths = [block_path(folder, facts.number) for facts in kept]
            tokens = [facts.tokens for facts in kept]
            repeats, corpora = count_repeats(paths, blocks, tokens, plan)
        counts = np.zeros(plan.num_shards + 1, dtype=np.int64)
        for number, block in enumerate(blocks):
            pools = self.task.plan.deal(block.documents, number)
            if repeats is not None:
                pools = pools[repeats[number] > 0]
            counts += np.bincount(pools, minlength=len(counts))
        check_documents(plan.recipe, self.task.files, blocks, counts)
        jobs = tuple(plan_jobs(plan, counts))
        by_number = None if repeats is None else dict(enumerate(repeats))
        return Decision(None, tuple(blocks), corpora, counts, jobs, by_number)


class DealDocuments(beam.DoFn):
    """Sends the documents of a block to the files that need them."""

    def __init__(self, task: PipelineTask) -> None:
        self.task = task

    def process(
        self, element: tuple[int, Documents], decision: Decision
    ) -> Iterator[tuple[str, Part]]:
        """Gives names of files, each with some documents."""
        number, documents = element
        pools = self.task.plan.deal(len(documents), number)
        if decision.repeats is not None:
            repeats = decision.repeats[number]
            documents = dataclasses.replace(documents, repeats=repeats)
            # No pool has this number.
            pools = np.where(repeats > 0, pools, -1)
        for job in decision.jobs:
            for place, pool in enumerate((*job.pools, *job.borrowed_pools)):
                chosen = np.flatnonzero(pools == pool)
                if len(chosen):
                    is_own = place < len(job.pools)
                    part = Part(place, number, is_own, documents.take(chosen))
                    yield job.name, part


class WriteShards(beam.DoFn):
    """Writes the records of each file."""

    def __init__(self, task: PipelineTask) -> None:
        self.task = task

    def process(
        self, element: tuple[str, Iterable[Part | None]]
    ) -> Iterator[ShardResult]:
        """Gives what a file holds."""
        name, found = element
        parts = sorted(
            (part for part in found if part is not None),
            key=lambda part: (part.pool, part.block),
        )
        documents = [part.documents for part in parts] or [_NO_DOCUMENTS]
        yield write_shard(
            name,
            Documents.concatenate(documents),
            sum(len(part.documents) for part in parts if part.is_own),
            self.task.plan.recipe,
            self.task.tokenizer.vocabulary,
            self._write,
        )

    def _write(self, name: str, records: Iterator[bytes]) -> tuple[int, int]:
        return write_whole(
            self.task.output_dir,
            name,
            lambda file: write_frames(file, records),
        )


_NO_DOCUMENTS = Documents(
    np.zeros(0, dtype=np.uint16),
    np.zeros(1, dtype=np.int64),
    np.zeros(1, dtype=np.int64),
)


class WriteOutcome(beam.DoFn):
    """Writes what the pipeline did, for the command that started it."""

    def __init__(self, task: PipelineTask) -> None:
        self.task = task

    def process(
        self, results: list[ShardResult], decision: Decision
    ) -> Iterator[str]:
        """Gives the name of the file."""
        counts = decision.counts
        values = {
            "mistake": decision.mistake,
            "blocks": [block.header() for block in decision.blocks],
            "corpora": {
                name: dataclasses.asdict(corpus)
                for name, corpus in decision.corpora.items()
            },
            "counts": None if counts is None else counts.tolist(),
            "results": [dataclasses.asdict(result) for result in results],
        }
        text = json.dumps(values).encode("utf-8")
        write_whole(
            self.task.output_dir,
            self.task.outcome,
            lambda file: file.write(text),
        )
        yield self.task.outcome


def add_steps(pipeline: beam.Pipeline, task: PipelineTask) -> None:
    """Adds the steps to an empty pipeline."""
    tokenized = (
        pipeline
        | "Begin" >> beam.Create([0])
        | "ReadBlocks" >> beam.ParDo(ReadBlocks(task))
        | "SpreadBlocks" >> beam.Reshuffle()
        | "TokenizeBlocks"
        >> beam.ParDo(TokenizeBlocks(task)).with_outputs(
            _FACTS, main="documents"
        )
    )
    decided = (
        tokenized[_FACTS]
        | "KeyFacts" >> beam.Map(lambda facts: (None, facts))
        | "GatherFacts" >> beam.GroupByKey()
        | "Decide" >> beam.ParDo(Decide(task))
    )
    decision = beam.pvalue.AsSingleton(decided)
    parts = tokenized["documents"] | "DealDocuments" >> beam.ParDo(
        DealDocuments(task), decision
    )
    # So that a file without documents is written too.
    names = decided | "NameFiles" >> beam.FlatMap(
        lambda decision: [(job.name, None) for job in decision.jobs]
    )
    results = (
        (parts, names)
        | "AllParts" >> beam.Flatten()
        | "GatherParts" >> beam.GroupByKey()
        | "WriteShards" >> beam.ParDo(WriteShards(task))
    )
    (
        results
        | "GatherResults" >> beam.combiners.ToList()
        | "WriteOutcome" >> beam.ParDo(WriteOutcome(task), decision)
    )
