"""Builds a folder of pre-training records from text, on this machine.

In stage 1 the text is tokenised, block by block, and its documents are assigned
to pools at random; in stage 2 every pool becomes one file of records. Both
stages keep finished files in `output_dir/.work`, so a killed run is resumed
where it stopped. The records depend on the text, the vocabulary and the recipe
only, not on the number of workers.

All runners manage the folder in the same way (`make_records`): it is locked
while it is built, marked as finished by its manifest, and with `overwrite`
built next to the old one and renamed.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.checkpoints.tokenizers import (
    read_vocabulary_file,
    tokenizer_files,
)
from bert_tf.corpora.sources import CorpusFile, files_of
from bert_tf.errors import UserError, check_choice, whole_number
from bert_tf.files import locked, remove_partials, write_text, written_beside
from bert_tf.progress import Progress
from bert_tf.recipe import join_settings, read_json_object
from bert_tf.records.allocation import Allocation, allocate
from bert_tf.records.beam.options import parse_options
from bert_tf.records.folder import (
    MANIFEST_FILE,
    RECIPE_FILE,
    STATE_FILE,
    WORK_FOLDER,
    Manifest,
)
from bert_tf.records.plan import RecordsPlan, RecordsTask
from bert_tf.records.recipe import BEAM, LOCAL, RUNNERS, RecordsRecipe
from bert_tf.records.report import RecordsReport, manifest_of
from bert_tf.records.shards import ShardBuilder, ShardResult, build_shards
from bert_tf.records.token_blocks import (
    BlockSummary,
    block_path,
    document_tokens,
    repeats_path,
)
from bert_tf.records.tokenized_corpus import BlockWriter, tokenize_corpus

_DEFAULTS = RecordsRecipe()
_LOCK_FILE = "lock"
Log = Callable[[str], None]


def create_records(
    inputs: str | pathlib.Path | Sequence[str | pathlib.Path | CorpusFile],
    vocab_file: str | pathlib.Path,
    output_dir: str | pathlib.Path,
    recipe: RecordsRecipe = _DEFAULTS,
    workers: int = 0,
    overwrite: bool = False,
    log: Log = print,
    *,
    max_seq_length: int | None = None,
    max_predictions_per_seq: int | None = None,
    dupe_factor: int | None = None,
    settings: Mapping[str, Any] | None = None,
    runner: str = LOCAL,
    beam_options: str = "",
    **others: Any,
) -> RecordsReport:
    """Builds pre-training records, as `bert-tf create-pretraining-data` does.

        report = bert_tf.create_records("corpus/*.txt", "vocab.txt", "records")

    Calling it again resumes an interrupted build.

    Args:
      inputs: files and globs of text, comma-separated, as the command takes
        them: also as .gz, .bz2 or .zst, in named corpora, or tfds:DATA_SET; or
        a list of files.
      vocab_file: the vocabulary of a tokenizer.
      output_dir: the folder of the records.
      recipe: settings that the following ones replace.
      workers: parallel processes; 0 is one per processor. The records do not
        depend on it.
      overwrite: replaces records of another recipe in `output_dir`.
      log: prints warnings and progress messages.
      max_seq_length: maximum sequence length, special tokens included.
      max_predictions_per_seq: maximum number of masked tokens in a sequence.
      dupe_factor: passes over the corpus, each with new sentence pairs.
      settings: other settings by name, as a mapping.
      runner: local, this machine; or beam, an Apache Beam pipeline.
      beam_options: Apache Beam's command-line options.
      **others: any other setting of the recipe, such as sequences.

    Returns:
      What the folder holds; as a string, a report to print.

    Raises:
      UserError: input, vocabulary, folder or a setting cannot be used.
      OSError: the disk is full, or another system error; finished parts are
        kept for the next run.
    """
    whole_number("workers", workers, 0)
    check_choice("`runner`", runner, RUNNERS)
    arguments = {
        "max_seq_length": max_seq_length,
        "max_predictions_per_seq": max_predictions_per_seq,
        "dupe_factor": dupe_factor,
    }
    if given := join_settings(arguments | others, settings):
        recipe = RecordsRecipe.from_arguments(
            recipe.to_dict() | given,
            "the settings of create_records",
            create_records,
        )
    if runner == BEAM:
        if workers:
            raise UserError(
                f"`workers`={workers}: is for `runner`=local; for beam pass an "
                "option of its runner, as `beam_options`=--direct_num_workers=2"
            )
        options = parse_options(beam_options)
        # Needs Apache Beam.
        from bert_tf.records.beam.files import expand
        from bert_tf.records.beam.runner import create_records_with_beam

        return create_records_with_beam(
            files_of(inputs, recipe, expand),
            str(vocab_file),
            str(output_dir),
            recipe,
            options,
            overwrite,
            log,
        )
    if beam_options:
        raise UserError(
            f"`beam_options`={beam_options}: is for `runner`=beam, and the "
            "runner is local."
        )
    files = files_of(inputs, recipe)
    tokenizer = read_vocabulary_file(vocab_file, recipe.lower_case)
    task = RecordsTask.of(recipe, tokenizer, files)
    build = _LocalBuild(task, workers or os.cpu_count() or 1, log)
    return make_records(
        task, pathlib.Path(output_dir), overwrite, build.run, log
    )


@dataclasses.dataclass(frozen=True)
class _LocalBuild:
    """Both stages of a build, on this machine."""

    task: RecordsTask
    workers: int
    log: Log

    def run(self, output_dir: pathlib.Path, work_dir: pathlib.Path) -> Manifest:
        """Builds what is missing and returns the manifest."""
        blocks = self._tokenize(output_dir, work_dir)
        if self.task.plan.recipe.near_duplicates:
            self.log(f"{output_dir}: looking for near-duplicates.")
        paths = [block_path(work_dir, number) for number in range(len(blocks))]

        # A block file holds its documents by pool, not in corpus order.
        def file_order(number: int) -> np.ndarray:
            pools = self.task.plan.assign_pools(
                blocks[number].documents, number
            )
            return np.argsort(pools, kind="stable")

        allocation = allocate(
            self.task,
            blocks,
            lambda: [
                document_tokens(path)[np.argsort(file_order(number))]
                for number, path in enumerate(paths)
            ],
            work_dir,
        )
        for number, repeats in enumerate(allocation.repeats or ()):
            with written_beside(repeats_path(paths[number])) as partial:
                repeats[file_order(number)].astype("<u2").tofile(partial)
        for warning in allocation.warnings:
            self.log(f"warning: {warning}")
        results = self._build_shards(output_dir, work_dir, allocation)
        return manifest_of(self.task.plan, allocation, results)

    def _tokenize(
        self, output_dir: pathlib.Path, work_dir: pathlib.Path
    ) -> list[BlockSummary]:
        blocks: list[BlockSummary] = []
        while (path := block_path(work_dir, len(blocks))).exists():
            blocks.append(BlockSummary.load(path))
        read = blocks[-1].bytes_read if blocks else 0
        if blocks:
            self.log(f"{output_dir}: resuming after {len(blocks)} blocks.")
        if blocks and blocks[-1].end.file == len(self.task.files):
            return blocks
        writer = BlockWriter(self.task, work_dir)
        started, documents = time.monotonic(), 0
        total = sum(file.size for file in self.task.plan.inputs)
        with Progress("tokenising", total, read, "B") as progress:
            for block in tokenize_corpus(writer, self.workers, list(blocks)):
                blocks.append(block)
                documents += block.documents
                speed = documents / (time.monotonic() - started)
                progress.update(
                    block.bytes_read - read, f"{speed:,.0f} documents/s"
                )
                read = block.bytes_read
        return blocks

    def _build_shards(
        self,
        output_dir: pathlib.Path,
        work_dir: pathlib.Path,
        allocation: Allocation,
    ) -> list[ShardResult]:
        results, missing = [], []
        for job in allocation.jobs:
            result = None
            path, records = work_dir / f"{job.name}.json", output_dir / job.name
            if path.exists() and records.exists():
                result = ShardResult(**read_json_object(path))
            if result and records.stat().st_size == result.size:
                results.append(result)
            else:
                missing.append(job)
        count = len(allocation.jobs)
        if results:
            self.log(
                f"{output_dir}: {len(results)} of {count} files are there "
                "already."
            )
        builder = ShardBuilder(
            self.task, work_dir, output_dir, len(allocation.blocks)
        )
        done = sum(result.documents for result in results)
        total = allocation.num_documents
        with Progress("writing records", total, done, " documents") as progress:
            for result in build_shards(builder, missing, self.workers):
                results.append(result)
                text = json.dumps(dataclasses.asdict(result))
                write_text(work_dir / f"{result.name}.json", text)
                progress.update(
                    result.documents, f"{len(results)}/{count} files"
                )
        return results


# Builds the record files in the first folder, with unfinished work in the
# second, and returns their manifest.
Build = Callable[[pathlib.Path, pathlib.Path], Manifest]


def make_records(
    task: RecordsTask,
    output_dir: pathlib.Path,
    overwrite: bool,
    build: Build,
    log: Log,
) -> RecordsReport:
    """Builds the records of a task in a folder, unless they exist already.

    Raises:
      UserError: input or folder cannot be used.
      OSError: a system error; finished parts are kept for the next run.
    """
    started = time.monotonic()
    plan = task.plan
    # Of a link, the folder that it points to is renamed.
    output_dir = pathlib.Path(os.path.realpath(output_dir))
    _finish_replacement(output_dir)
    for warning in plan.recipe.warnings():
        log(f"warning: {warning}")
    if _is_finished(output_dir, plan, refuse=not overwrite):
        log(f"{output_dir}: all records are there already; nothing to do.")
        manifest = Manifest.load(output_dir)
        return RecordsReport(
            output_dir, manifest, plan.recipe, task.tokenizer, 0.0
        )
    with contextlib.ExitStack() as stack:
        folder = output_dir
        if overwrite:
            folder = stack.enter_context(_replaced(output_dir, plan))
        if _is_finished(folder, plan):
            manifest = Manifest.load(folder)
        else:
            work_dir = stack.enter_context(work_folder(folder, plan))
            manifest = build(folder, work_dir)
            finish(task, folder, manifest)
    seconds = time.monotonic() - started
    return RecordsReport(
        output_dir, manifest, plan.recipe, task.tokenizer, seconds
    )


def finish(
    task: RecordsTask, output_dir: pathlib.Path, manifest: Manifest
) -> None:
    """Writes recipe, tokenizer, and then the manifest next to the records."""
    task.plan.recipe.save(output_dir / RECIPE_FILE)
    task.tokenizer.save(output_dir)
    manifest.save(output_dir)


def _is_finished(
    output_dir: pathlib.Path, plan: RecordsPlan, refuse: bool = True
) -> bool:
    """Returns whether the folder holds the plan's records, undamaged.

    Raises:
      UserError: it holds records of another plan, and `refuse` is true; a file
        is damaged.
    """
    if not (output_dir / MANIFEST_FILE).exists():
        return False
    stored = RecordsPlan.of_folder(output_dir)
    assert stored is not None, "a finished folder has a plan"
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
    """Raises `UserError` if another run is writing."""
    work_dir = output_dir / WORK_FOLDER
    if work_dir.exists():
        with locked(work_dir / _LOCK_FILE, output_dir):
            pass


def _refuse_foreign(output_dir: pathlib.Path) -> None:
    """Raises `UserError` for a file, or a folder of another kind."""
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
    output_dir: pathlib.Path, plan: RecordsPlan
) -> Iterator[pathlib.Path]:
    """Locks the folder of unfinished work; removes it on success.

    It is removed after a `UserError` too, since correcting the mistake changes
    the plan; after other errors it is kept for the next run.
    """
    work_dir = output_dir / WORK_FOLDER
    _refuse_foreign(output_dir)
    work_dir.mkdir(parents=True, exist_ok=True)
    with locked(work_dir / _LOCK_FILE, output_dir):
        stored = RecordsPlan.of_folder(output_dir)
        if stored is not None:
            _refuse_difference(output_dir, plan, stored)
        remove_partials(output_dir)
        write_text(work_dir / STATE_FILE, plan.to_json())
        try:
            yield work_dir
        except UserError:
            shutil.rmtree(work_dir)
            with contextlib.suppress(OSError):
                output_dir.rmdir()
            raise
        except BaseException as error:
            # Partial files cannot be resumed, and the disk may be full.
            remove_partials(work_dir)
            if isinstance(error, OSError):
                # A full disk does not say which file could not grow.
                error.filename = error.filename or str(output_dir)
            raise
        shutil.rmtree(work_dir)


@contextlib.contextmanager
def _replaced(
    output_dir: pathlib.Path, plan: RecordsPlan
) -> Iterator[pathlib.Path]:
    """Yields a folder next to output_dir that replaces it on success.

    Two renames replace it: output_dir becomes .NAME.old, and .NAME.new becomes
    output_dir. `_finish_replacement` completes them after a kill.
    """
    _refuse_foreign(output_dir)
    if os.path.ismount(output_dir):
        raise UserError(
            f"`output_dir`={output_dir}: is a mount point, which cannot be "
            "renamed, so nothing in it is replaced; name a folder inside."
        )
    old, new = _replacement_paths(output_dir)
    stored = RecordsPlan.of_folder(new)
    if stored is not None and plan.difference(stored):
        # Left by a killed run with another plan.
        _refuse_running(new)
        shutil.rmtree(new)
    yield new
    if output_dir.exists():
        _refuse_running(output_dir)
        output_dir.rename(old)
    new.rename(output_dir)
    _finish_replacement(output_dir)


def _finish_replacement(output_dir: pathlib.Path) -> None:
    """Completes a replacement that was killed at any point."""
    old, new = _replacement_paths(output_dir)
    if not old.exists():
        return
    if not (output_dir / MANIFEST_FILE).exists():
        if not new.exists():
            # The user has removed it since.
            old.rename(output_dir)
            return
        new.rename(output_dir)
    work_dir, manifest = old / WORK_FOLDER, old / MANIFEST_FILE
    if work_dir.exists() or manifest.exists():
        _refuse_running(old)
        shutil.rmtree(work_dir, ignore_errors=True)
        for kind in ("records", "held_out"):
            for path in old.glob(f"{kind}-*-of-*.tfrecord"):
                path.unlink()
        # The manifest goes last: it marks the files as records.
        for name in (RECIPE_FILE, *tokenizer_files(old), MANIFEST_FILE):
            (old / name).unlink(missing_ok=True)
    # The remaining files are the user's.
    for path in old.iterdir():
        path.rename(output_dir / path.name)
    old.rmdir()


def _replacement_paths(
    output_dir: pathlib.Path,
) -> tuple[pathlib.Path, pathlib.Path]:
    """Returns where old records are moved to, and where new ones are built."""
    return (
        output_dir.with_name(f".{output_dir.name}.old"),
        output_dir.with_name(f".{output_dir.name}.new"),
    )
