"""Builds a folder of pre-training records from text, on this machine.

First the text is tokenised, block by block, and its documents are dealt to
pools by chance; then every pool becomes one file of records. Both stages keep
what is finished in `output_dir/.work`, so a run that was killed is resumed
where it stopped. What is written depends on the text, the vocabulary and the
recipe alone, not on the number of workers.

The life of the folder is the same for every runner (`make_records`): it is
locked while it is built, marked as finished by its manifest, and with
`overwrite` built beside the old one and renamed.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_tf.checkpoints.tokenizers import (
    read_vocabulary_file,
    tokenizer_files,
)
from bert_tf.corpora.sources import CorpusFile, files_of
from bert_tf.errors import UserError, whole_number
from bert_tf.files import locked, remove_partials, write_text
from bert_tf.progress import Progress
from bert_tf.recipe import read_json_object
from bert_tf.records.folder import (
    MANIFEST_FILE,
    RECIPE_FILE,
    STATE_FILE,
    WORK_FOLDER,
    InputFile,
    Manifest,
)
from bert_tf.records.plan import RecordsPlan, held_out_warnings, plan_jobs
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.repeats import decide_repeats
from bert_tf.records.report import (
    RecordsReport,
    check_documents,
    first_warnings,
    manifest_of,
)
from bert_tf.records.shards import ShardBuilder, ShardResult, build_shards
from bert_tf.records.token_blocks import ShardJob, block_path, pool_documents
from bert_tf.records.tokenized_corpus import (
    BlockSummary,
    BlockWriter,
    finished_blocks,
    tokenize_corpus,
)
from bert_tf.text.tokenizer_protocol import TokenizerData

_LOCK_FILE = "lock"


@dataclasses.dataclass(frozen=True)
class RecordsTask:
    """Records that are to be made; `log` prints what is no result."""

    plan: RecordsPlan
    files: tuple[CorpusFile, ...]
    tokenizer: TokenizerData
    log: Callable[[str], None]


def create_records(
    inputs: Sequence[str | pathlib.Path | CorpusFile],
    vocab_file: str | pathlib.Path,
    output_dir: str | pathlib.Path,
    recipe: RecordsRecipe,
    workers: int = 0,
    overwrite: bool = False,
    log: Callable[[str], None] = print,
) -> RecordsReport:
    """Makes pre-training records from text, or what is missing of them.

    Args:
      inputs: files of text (plain, .gz or .bz2) in the format that the recipe
        or their names tell, or what `parse_inputs` gives.
      vocab_file: the vocabulary of a tokenizer.
      output_dir: where the records go.
      recipe: how they are made.
      workers: parallel workers; 0 takes one for each processor. The records do
        not depend on it.
      overwrite: replaces records of another recipe that are in output_dir.
      log: prints a line that is no result: a warning, or what happens.

    Returns:
      What the folder holds.

    Raises:
      UserError: input, vocabulary or folder cannot be used.
      OSError: the disk is full, or another error of the system; what was
        finished is kept for the next run.
    """
    whole_number("workers", workers, 0)
    tokenizer = read_vocabulary_file(vocab_file, recipe.lower_case)
    files = files_of(inputs, recipe)
    described = tuple(InputFile.of(file) for file in files)
    plan = RecordsPlan.of(recipe, tokenizer, described)
    task = RecordsTask(plan, files, tokenizer, log)
    workers = workers or os.cpu_count() or 1
    return make_records(
        task,
        pathlib.Path(output_dir),
        overwrite,
        lambda folder, work_dir: _Stages(task, folder, work_dir, workers).run(),
    )


@dataclasses.dataclass(frozen=True)
class _Stages:
    """One run of the two stages on this machine."""

    task: RecordsTask
    output_dir: pathlib.Path
    work_dir: pathlib.Path
    workers: int

    def run(self) -> Manifest:
        """Does what is missing."""
        plan, log = self.task.plan, self.task.log
        blocks = self._tokenize()
        if plan.recipe.near_duplicates:
            log(f"{self.output_dir}: looking for near-duplicates.")
        corpora = decide_repeats(self.work_dir, blocks, plan)
        # Documents of each pool, the held-out one last.
        counts = np.zeros(plan.num_shards + 1, dtype=np.int64)
        for number in range(len(blocks)):
            counts += pool_documents(block_path(self.work_dir, number))
        check_documents(plan.recipe, self.task.files, blocks, counts)
        jobs = plan_jobs(plan, counts)
        for warning in held_out_warnings(plan, jobs, counts):
            log(f"warning: {warning}")
        results = self._build_shards(jobs, len(blocks), int(counts.sum()))
        return manifest_of(plan, blocks, corpora, results)

    def _tokenize(self) -> list[BlockSummary]:
        """The first stage: every block of text as a file of tokens."""
        task, plan = self.task, self.task.plan
        blocks = finished_blocks(self.work_dir)
        read = blocks[-1].bytes_read if blocks else 0
        if blocks:
            task.log(f"{self.output_dir}: resuming after {len(blocks)} blocks.")
        if blocks and blocks[-1].end.file == len(task.files):
            return blocks
        writer = BlockWriter(task.files, task.tokenizer, plan, self.work_dir)
        warnings: list[str] = []
        started, documents = time.monotonic(), 0
        with Progress("tokenising", plan.input_bytes, read, "B") as progress:
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
            task.log(f"warning: {warning}")
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
            self.task.log(
                f"{self.output_dir}: {len(results)} of {len(jobs)} files are "
                "there already."
            )
        builder = ShardBuilder(
            self.work_dir, self.output_dir, num_blocks, self.task.plan.recipe
        )
        done = sum(result.documents for result in results.values())
        progress = Progress("writing records", documents, done, " documents")
        with progress:
            for result in build_shards(builder, missing, self.workers):
                results[result.name] = result
                text = json.dumps(dataclasses.asdict(result))
                write_text(self.work_dir / f"{result.name}.json", text)
                files = f"{len(results)}/{len(jobs)} files"
                progress.update(result.documents, files)
        return [results[job.name] for job in jobs]

    def _finished_shard(self, name: str) -> ShardResult | None:
        """What an earlier run wrote of a shard, if it is whole."""
        path, records = self.work_dir / f"{name}.json", self.output_dir / name
        if not path.exists() or not records.exists():
            return None
        result = ShardResult(**read_json_object(path))
        return result if records.stat().st_size == result.size else None


# Is given the folder of the records and one for unfinished work in it; returns
# the manifest of the record files that it wrote.
Build = Callable[[pathlib.Path, pathlib.Path], Manifest]


def make_records(
    task: RecordsTask, output_dir: pathlib.Path, overwrite: bool, build: Build
) -> RecordsReport:
    """Makes the records of a task, or what is missing of them.

    Raises:
      UserError: input or folder cannot be used.
      OSError: an error of the system; what was finished is kept for the next
        run.
    """
    started = time.monotonic()
    plan = task.plan
    # A folder is renamed where it is, not where a link to it is.
    output_dir = pathlib.Path(os.path.realpath(output_dir))
    _finish_replacement(output_dir)
    for warning in plan.recipe.warnings():
        task.log(f"warning: {warning}")
    if overwrite and not _is_finished(output_dir, plan, refuse=False):
        with _replaced(output_dir, plan) as beside:
            manifest = _make(task, beside, build)
    else:
        manifest = _make(task, output_dir, build)
    seconds = 0.0 if manifest is None else time.monotonic() - started
    manifest = manifest or Manifest.load(output_dir)
    return RecordsReport(output_dir, manifest, seconds)


def _make(
    task: RecordsTask, output_dir: pathlib.Path, build: Build
) -> Manifest | None:
    """Makes the records; None where they are there already."""
    if _is_finished(output_dir, task.plan):
        task.log(f"{output_dir}: all records are there already; nothing to do.")
        return None
    with work_folder(output_dir, task.plan, task.tokenizer) as work_dir:
        try:
            manifest = build(output_dir, work_dir)
            finish(task, output_dir, manifest)
        except OSError as error:
            # A full disk does not say which file could not grow.
            error.filename = error.filename or str(output_dir)
            raise
    return manifest


def finish(
    task: RecordsTask, output_dir: pathlib.Path, manifest: Manifest
) -> None:
    """Writes what stands beside the record files, the manifest last."""
    task.plan.recipe.save(output_dir / RECIPE_FILE)
    task.tokenizer.save(output_dir)
    manifest.save(output_dir)


def _is_finished(
    output_dir: pathlib.Path, plan: RecordsPlan, refuse: bool = True
) -> bool:
    """Whether the folder holds the plan's records, finished and undamaged.

    Args:
      output_dir: the folder.
      plan: what it should hold.
      refuse: whether records of another plan are an error.
    """
    if not (output_dir / MANIFEST_FILE).exists():
        return False
    stored = RecordsPlan.of_folder(output_dir)
    assert stored is not None, "what is finished has a plan"
    if not refuse and plan.difference(stored):
        return False
    _refuse_difference(output_dir, plan, stored)
    for file in Manifest.load(output_dir).files(output_dir):
        file.check()
    shutil.rmtree(output_dir / WORK_FOLDER, ignore_errors=True)
    return True


def _refuse_difference(
    output_dir: pathlib.Path, plan: RecordsPlan, stored: RecordsPlan
) -> None:
    if difference := plan.difference(stored):
        raise UserError(
            f"`output_dir`={output_dir}: holds other records ({difference}); "
            "choose another folder, or pass `overwrite`=True to replace them."
        )


def _refuse_running(output_dir: pathlib.Path) -> None:
    """Raises `UserError` where another run is writing."""
    work_dir = output_dir / WORK_FOLDER
    if work_dir.exists():
        with locked(work_dir / _LOCK_FILE, output_dir):
            pass


def _refuse_other_folders(output_dir: pathlib.Path) -> None:
    """Raises `UserError` for a file, or a folder of something else."""
    if output_dir.exists() and not output_dir.is_dir():
        raise UserError(
            f"`output_dir`={output_dir}: is a file; choose a folder."
        )
    ours = (output_dir / WORK_FOLDER, output_dir / MANIFEST_FILE)
    if (output_dir / RECIPE_FILE).exists() and not any(
        path.exists() for path in ours
    ):
        raise UserError(
            f"`output_dir`={output_dir}: holds the {RECIPE_FILE} of something "
            "else; choose another folder."
        )


@contextlib.contextmanager
def work_folder(
    output_dir: pathlib.Path, plan: RecordsPlan, tokenizer: TokenizerData
) -> Iterator[pathlib.Path]:
    """Claims the folder of unfinished work, and removes it when all is done.

    It is kept when the run stops for another reason than a mistake of the
    user's.
    """
    work_dir = output_dir / WORK_FOLDER
    _refuse_other_folders(output_dir)
    work_dir.mkdir(parents=True, exist_ok=True)
    with locked(work_dir / _LOCK_FILE, output_dir):
        stored = RecordsPlan.of_folder(output_dir)
        if stored is not None:
            _refuse_difference(output_dir, plan, stored)
        remove_partials(output_dir)
        tokenizer.save(work_dir)
        plan.save(work_dir / STATE_FILE)
        try:
            yield work_dir
        except UserError:
            # What repairs the mistake makes another plan of it.
            shutil.rmtree(work_dir)
            with contextlib.suppress(OSError):
                output_dir.rmdir()
            raise
        except BaseException:
            # Of use to nobody, and the disk may be full.
            remove_partials(work_dir)
            raise
        shutil.rmtree(work_dir)


@contextlib.contextmanager
def _replaced(
    output_dir: pathlib.Path, plan: RecordsPlan
) -> Iterator[pathlib.Path]:
    """A folder beside output_dir that takes its place when finished.

    Two renames do that: output_dir becomes .NAME.old, and .NAME.new becomes
    output_dir. `_finish_replacement` does what is left after a kill.
    """
    _refuse_other_folders(output_dir)
    if os.path.ismount(output_dir):
        raise UserError(
            f"`output_dir`={output_dir}: is a mount point, which cannot be "
            "renamed, so nothing in it is replaced; name a folder inside."
        )
    old, new = _beside(output_dir)
    stored = RecordsPlan.of_folder(new)
    if stored is not None and plan.difference(stored):
        # Nobody has seen these, and now others are to be made.
        _refuse_running(new)
        shutil.rmtree(new)
    yield new
    if output_dir.exists():
        _refuse_running(output_dir)
        output_dir.rename(old)
    new.rename(output_dir)
    _finish_replacement(output_dir)


def _finish_replacement(output_dir: pathlib.Path) -> None:
    """Ends what `_replaced` has begun, from wherever it was killed."""
    old, new = _beside(output_dir)
    if not old.exists():
        return
    if not (output_dir / MANIFEST_FILE).exists():
        if not new.exists():
            # Somebody has removed it since.
            old.rename(output_dir)
            return
        new.rename(output_dir)
    _remove_records(old)
    # What is left is the user's own.
    for path in old.iterdir():
        path.rename(output_dir / path.name)
    old.rmdir()


def _remove_records(output_dir: pathlib.Path) -> None:
    """Removes what an earlier run made; the manifest last, as it claims it."""
    work_dir = output_dir / WORK_FOLDER
    if not work_dir.exists() and not (output_dir / MANIFEST_FILE).exists():
        return
    _refuse_running(output_dir)
    if work_dir.exists():
        shutil.rmtree(work_dir)
    for kind in ("records", "held_out"):
        for path in output_dir.glob(f"{kind}-*-of-*.tfrecord"):
            path.unlink()
    for name in (RECIPE_FILE, *tokenizer_files(output_dir), MANIFEST_FILE):
        (output_dir / name).unlink(missing_ok=True)


def _beside(output_dir: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Where old records go, and where new ones are made, for a replacement."""
    return (
        output_dir.with_name(f".{output_dir.name}.old"),
        output_dir.with_name(f".{output_dir.name}.new"),
    )
