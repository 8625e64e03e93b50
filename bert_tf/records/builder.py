"""Builds a folder of pre-training records from text.

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
from bert_tf.records.folder import (
    MANIFEST_FILE,
    RECIPE_FILE,
    InputFile,
    Manifest,
    shard_name,
)
from bert_tf.records.plan import (
    RecordsPlan,
    is_finished,
    refuse_other_folders,
    remove_records,
    work_folder,
)
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
    finished_blocks,
    tokenize_corpus,
)
from bert_tf.records.visits import decide_visits
from bert_tf.records.workers import build_shards
from bert_tf.text.casing import TOKENIZER_CONFIG_FILE
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocabulary import VOCABULARY_FILE, Vocabulary

# A held-out random next sentence needs a second held-out document.
_FEWEST_DOCUMENTS = 2
_MOST_WARNINGS = 5


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
    started = time.monotonic()
    if workers < 0:
        raise UserError(f"workers is {workers}; it must be 0 or more.")
    output_dir = pathlib.Path(output_dir)
    vocabulary = Vocabulary.from_file(vocab_file)
    _check_case(pathlib.Path(vocab_file), recipe, vocabulary)
    files = files_of(inputs, recipe)
    plan = RecordsPlan(
        recipe, vocabulary.digest(), tuple(InputFile.of(f) for f in files)
    )
    for warning in recipe.warnings():
        say(f"warning: {warning}")
    if overwrite and not is_finished(output_dir, plan, refuse=False):
        return _replace(inputs, vocab_file, output_dir, recipe, workers, say)
    if is_finished(output_dir, plan):
        say(f"{output_dir}: all records are there already; nothing to do.")
        manifest = Manifest.load(output_dir)
        return RecordsReport.of(output_dir, manifest, plan.input_bytes, 0.0)
    with work_folder(output_dir, plan, vocabulary) as work_dir:
        workers = workers or os.cpu_count() or 1
        builder = _Builder(plan, files, output_dir, work_dir, workers, say)
        try:
            manifest = builder.run(vocabulary)
        except OSError as error:
            # A full disk does not say which file could not grow.
            error.filename = error.filename or str(output_dir)
            raise
    seconds = time.monotonic() - started
    return RecordsReport.of(output_dir, manifest, plan.input_bytes, seconds)


def _replace(
    inputs: Sequence[str | pathlib.Path | CorpusFile],
    vocab_file: str | pathlib.Path,
    output_dir: pathlib.Path,
    recipe: RecordsRecipe,
    workers: int,
    say: Callable[[str], None],
) -> RecordsReport:
    """Builds beside output_dir, and replaces it by what is finished."""
    refuse_other_folders(output_dir)
    beside = output_dir.with_name(f".{output_dir.name}.new")
    report = create_records(
        inputs, vocab_file, beside, recipe, workers, False, say
    )
    remove_records(output_dir)
    output_dir.mkdir(exist_ok=True)
    # The manifest last: with it the folder counts as finished.
    for path in sorted(
        beside.iterdir(), key=lambda path: path.name == MANIFEST_FILE
    ):
        path.rename(output_dir / path.name)
    beside.rmdir()
    return dataclasses.replace(report, output_dir=output_dir)


def _check_case(
    vocab_file: pathlib.Path, recipe: RecordsRecipe, vocabulary: Vocabulary
) -> None:
    """Refuses a vocabulary that contradicts the recipe's lower_case."""
    config = vocab_file.parent / TOKENIZER_CONFIG_FILE
    # It speaks of vocab.txt alone; a folder may hold other vocabularies.
    if vocab_file.name == VOCABULARY_FILE and config.is_file():
        said = read_json_object(config).get("do_lower_case")
        if said is not None and said != recipe.lower_case:
            raise UserError(
                f"lower_case is {recipe.lower_case}, but {config} says that "
                f"do_lower_case is {said} for this vocabulary; pass "
                f"--lower_case={str(said).lower()}."
            )
    elif recipe.lower_case and vocabulary.looks_cased():
        raise UserError(
            f"lower_case is True, but {vocab_file} holds tokens with capital "
            "letters; pass --lower_case=false for a cased vocabulary."
        )


@dataclasses.dataclass(frozen=True)
class _Builder:
    """One run of the two stages."""

    plan: RecordsPlan
    files: tuple[CorpusFile, ...]
    output_dir: pathlib.Path
    work_dir: pathlib.Path
    workers: int
    say: Callable[[str], None]

    def run(self, vocabulary: Vocabulary) -> Manifest:
        """Does what is missing; returns what the folder holds."""
        recipe = self.plan.recipe
        tokenizer = BertTokenizer(vocabulary, recipe.lower_case)
        blocks = self._tokenize(tokenizer)
        if recipe.near_duplicates:
            self.say(f"{self.output_dir}: looking for near-duplicates.")
        corpora = decide_visits(self.work_dir, blocks, self.plan)
        jobs = self._jobs(blocks)
        results = self._build_shards(jobs, len(blocks))
        num_training = self.plan.num_shards
        training, held_out = results[:num_training], results[num_training:]
        statistics = {
            "documents": sum(block.documents for block in blocks),
            "sentences": sum(block.sentences for block in blocks),
            "tokens": sum(block.tokens for block in blocks),
            "unknown": sum(block.unknown for block in blocks),
            "near_duplicates": sum(
                corpus.near_duplicates for corpus in corpora.values()
            ),
            "passes": recipe.dupe_factor,
            "shards": num_training,
            "records": sum(r.records for r in training),
            "random_next": sum(r.random_next for r in training),
            "record_tokens": sum(r.tokens for r in training),
            "tokens_cut": sum(r.tokens_cut for r in training),
            "held_out_documents": sum(r.documents for r in held_out),
            "held_out_records": sum(r.records for r in held_out),
        }
        recipe.save(self.output_dir / RECIPE_FILE)
        tokenizer.save(self.output_dir)
        manifest = Manifest(
            self.plan.vocabulary_digest,
            self.plan.inputs,
            tuple((r.name, r.records, r.size) for r in training),
            tuple((r.name, r.records, r.size) for r in held_out),
            statistics,
            {name: dataclasses.asdict(c) for name, c in corpora.items()},
        )
        manifest.save(self.output_dir)
        return manifest

    def _tokenize(self, tokenizer: BertTokenizer) -> list[BlockSummary]:
        """The first stage: every block of text as a file of tokens."""
        blocks = finished_blocks(self.work_dir)
        read = blocks[-1].bytes_read if blocks else 0
        if blocks:
            self.say(f"{self.output_dir}: going on after {len(blocks)} blocks.")
        if blocks and blocks[-1].end.file == len(self.files):
            return blocks
        warnings: list[str] = []
        started, documents = time.monotonic(), 0
        with Progress(
            "tokenising", self.plan.input_bytes, read, "B"
        ) as progress:
            for block in tokenize_corpus(
                self.files,
                tokenizer,
                self.plan.recipe,
                self.plan.num_shards,
                self.work_dir,
                self.workers,
                list(blocks),
            ):
                blocks.append(block)
                documents += block.documents
                speed = documents / (time.monotonic() - started)
                progress.update(
                    block.bytes_read - read, f"{speed:,.0f} documents/s"
                )
                read = block.bytes_read
                warnings += block.warnings
        for warning in warnings[:_MOST_WARNINGS]:
            self.say(f"warning: {warning}")
        if len(warnings) > _MOST_WARNINGS:
            self.say(
                f"warning: {len(warnings) - _MOST_WARNINGS} more lines like "
                "these."
            )
        return blocks

    def _jobs(self, blocks: Sequence[BlockSummary]) -> list[ShardJob]:
        """The files to write; the held-out one last, if there is one."""
        shards = self.plan.num_shards
        counts = self._pool_documents(len(blocks))
        self._check_documents(blocks, int(counts.sum()))
        fewest = min(counts[:shards].sum(), counts[shards])
        held_out = fewest >= _FEWEST_DOCUMENTS
        if self.plan.recipe.held_out and not held_out:
            self.say(
                f"warning: {counts.sum():,} documents are too few to hold out "
                f"{self.plan.recipe.held_out:.1%} of them; there are no "
                "held-out records."
            )
        # Documents that were to be held out and cannot be join the first file.
        returned = () if held_out else (shards,)
        jobs = []
        for number in range(shards):
            others = [(number + k) % shards for k in range(1, shards)]
            jobs.append(
                ShardJob(
                    shard_name("records", number, shards),
                    (number, *(returned if number == 0 else ())),
                    (*others, *(returned if number else ())),
                )
            )
        if held_out:
            jobs.append(ShardJob(shard_name("held_out", 0, 1), (shards,), ()))
        return jobs

    def _check_documents(
        self, blocks: Sequence[BlockSummary], documents: int
    ) -> None:
        names = ", ".join(file.path for file in self.files[:3])
        more = f" and {len(self.files) - 3} more" if self.files[3:] else ""
        documents -= sum(block.cut for block in blocks)
        if not documents:
            raise UserError(f"--input={names}{more}: holds no text.")
        if documents == 1:
            raise UserError(
                f"--input={names}{more}: is one single document, and a random "
                "next sentence must come from another one; put a blank line "
                "between documents."
            )

    def _build_shards(
        self, jobs: Sequence[ShardJob], num_blocks: int
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
        total = int(sum(self._pool_documents(num_blocks)))
        done = sum(result.documents for result in results.values())
        with Progress("writing records", total, done, " documents") as progress:
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
