"""Runs the Beam pipeline that builds records, and completes their folder."""

import errno
import json
import pathlib
import tempfile
import time
import uuid
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.options.pipeline_options import (
    PipelineOptions,
    StandardOptions,
)
from apache_beam.runners.runner import PipelineState

from bert_tf.checkpoints.tokenizers import (
    read_vocabulary_file,
    tokenizer_files,
)
from bert_tf.corpora.sources import CorpusFile
from bert_tf.errors import UserError
from bert_tf.records.beam.files import (
    describe,
    is_remote,
    join,
    local_copies,
    read_bytes,
    remove_work_folder,
    size_of,
    write_whole,
)
from bert_tf.records.beam.pipeline import add_steps
from bert_tf.records.build import Log, finish, make_records
from bert_tf.records.folder import (
    MANIFEST_FILE,
    RECIPE_FILE,
    STATE_FILE,
    WORK_FOLDER,
    Manifest,
)
from bert_tf.records.plan import RecordsTask
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.report import RecordsReport
from bert_tf.text.tokenizer_protocol import TokenizerData

# A killed run leaves this file behind.
_STATE = f"{WORK_FOLDER}/{STATE_FILE}"


def create_records_with_beam(
    inputs: Sequence[CorpusFile],
    vocab_file: str,
    output_dir: str,
    recipe: RecordsRecipe,
    options: PipelineOptions,
    overwrite: bool = False,
    log: Log = print,
) -> RecordsReport:
    """Builds the same records as `create_records`, as a Beam pipeline.

    Args:
      inputs: the result of `parse_inputs`; paths may be URLs that Beam reads.
      vocab_file: the vocabulary of a tokenizer, a path or a URL.
      output_dir: the folder of the records, a path that all workers share or a
        URL.
      recipe: how they are made.
      options: Beam's options, from `parse_options`.
      overwrite: replaces records of another recipe in `output_dir`.
      log: prints warnings and progress messages.

    Returns:
      What the folder holds.

    Raises:
      UserError: input, vocabulary, folder or options cannot be used.
      OSError: the pipeline failed.
    """
    try:
        tokenizer = _read_tokenizer(vocab_file, recipe.lower_case)
        task = RecordsTask.of(recipe, tokenizer, inputs, describe)
        if is_remote(output_dir):
            return _make_remote(task, output_dir, options, overwrite, log)
        return make_records(
            task,
            pathlib.Path(output_dir),
            overwrite,
            lambda folder, _: _run(task, str(folder.absolute()), options, log),
            log,
        )
    except BeamIOError as error:
        raise _failed(str(error)) from error


def _read_tokenizer(vocab_file: str, lower_case: bool | None) -> TokenizerData:
    if not is_remote(vocab_file):
        return read_vocabulary_file(vocab_file, lower_case)
    if size_of(vocab_file) is None:
        raise UserError(f"{vocab_file}: no such vocabulary file.")
    folder, _, name = vocab_file.rpartition("/")
    others = [join(folder, each) for each in tokenizer_files() if each != name]
    paths = [vocab_file, *(p for p in others if size_of(p) is not None)]
    with tempfile.TemporaryDirectory() as local, local_copies(paths) as copies:
        for copy in copies:
            path = pathlib.Path(copy)
            path.rename(pathlib.Path(local, path.name))
        try:
            return read_vocabulary_file(pathlib.Path(local, name), lower_case)
        except UserError as error:
            raise UserError(str(error).replace(local, folder)) from None


def _run(
    task: RecordsTask, output_dir: str, options: PipelineOptions, log: Log
) -> Manifest:
    """Runs the pipeline and returns the manifest of its files."""
    # A killed run may have left the file of another name.
    outcome = f"{WORK_FOLDER}/outcome-{uuid.uuid4().hex}.json"
    runner = options.view_as(StandardOptions).runner
    try:
        pipeline = beam.Pipeline(options=options)
    # The runner is unknown, its library is missing, or it lacks an option.
    except (ValueError, ImportError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"`beam_options`=--runner={runner}: {reason}."
        ) from None
    add_steps(pipeline, task, output_dir, outcome)
    log(f"{output_dir}: the pipeline runs on {runner}.")
    try:
        state = pipeline.run().wait_until_finish()
    # Every runner raises errors of its own types.
    except Exception as error:
        raise _failed(str(error) or repr(error)) from error
    if state not in (None, PipelineState.DONE):
        raise _failed(f"it ended as {state}")

    def check(name: str, size: int | None) -> None:
        found = size_of(join(output_dir, name))
        if found is None or size not in (None, found):
            raise _failed(
                f"{output_dir} has no {name}, though a worker wrote it; "
                "`output_dir` takes a folder that all workers share, or a URL "
                "as gs://bucket/folder"
            )

    check(outcome, None)
    values = json.loads(read_bytes(join(output_dir, outcome)))
    if "error" in values:
        raise UserError(values["error"])
    for line in values["warnings"]:
        log(f"warning: {line}")
    manifest = Manifest.from_dict(values["manifest"], join(output_dir, outcome))
    for name, _, size in manifest.training + manifest.held_out:
        check(name, size)
    return manifest


def _failed(reason: str) -> OSError:
    """Returns an OSError, after which the folder stays unfinished."""
    # The last line of a traceback is its message.
    last = [line for line in reason.split("\n") if line.strip()][-1].strip()
    return ChildProcessError(
        errno.ECHILD,
        f"the pipeline of Apache Beam failed ({last.rstrip('.')}); run the "
        "same command again when that is repaired",
    )


def _make_remote(
    task: RecordsTask,
    output_dir: str,
    options: PipelineOptions,
    overwrite: bool,
    log: Log,
) -> RecordsReport:
    """`make_records` for a folder that only Beam can access."""
    started = time.monotonic()
    output_dir = output_dir.rstrip("/")
    if overwrite:
        raise UserError(
            f"`overwrite`: nothing is removed from {output_dir}; remove it "
            "yourself, or choose another folder."
        )
    _claim_remote(output_dir, task.plan.to_json().encode("utf-8"))
    for warning in task.plan.recipe.warnings():
        log(f"warning: {warning}")
    try:
        manifest = _run(task, output_dir, options, log)
    except UserError:
        # Correcting the mistake changes the plan.
        remove_work_folder(output_dir)
        raise
    with tempfile.TemporaryDirectory() as folder:
        finish(task, pathlib.Path(folder), manifest)
        for path in sorted(
            pathlib.Path(folder).iterdir(),
            key=lambda path: path.name == MANIFEST_FILE,
        ):
            _write_bytes(output_dir, path.name, path.read_bytes())
    remove_work_folder(output_dir)
    seconds = time.monotonic() - started
    return RecordsReport(
        output_dir, manifest, task.plan.recipe, task.tokenizer, seconds
    )


def _claim_remote(output_dir: str, plan: bytes) -> None:
    """Marks a remote folder as unfinished records of a plan.

    Raises:
      UserError: it holds something else.
    """
    state = join(output_dir, _STATE)
    is_unfinished = size_of(state) is not None
    if is_unfinished and json.loads(read_bytes(state)) != json.loads(plan):
        raise UserError(
            f"`output_dir`={output_dir}: holds unfinished records of another "
            "text, vocabulary or recipe; choose another folder, or remove it."
        )
    for name in (MANIFEST_FILE, RECIPE_FILE):
        if size_of(join(output_dir, name)) is not None and (
            name == MANIFEST_FILE or not is_unfinished
        ):
            raise UserError(
                f"`output_dir`={output_dir}: holds a {name} already; choose "
                "another folder, or remove it."
            )
    _write_bytes(output_dir, _STATE, plan)


def _write_bytes(folder: str, name: str, content: bytes) -> None:
    write_whole(folder, name, lambda file: file.write(content))
