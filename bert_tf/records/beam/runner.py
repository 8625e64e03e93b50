"""Makes records with Apache Beam, and finishes the folder they are in."""

import errno
import json
import pathlib
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence

import apache_beam as beam
import numpy as np
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
from bert_tf.records.beam.pipeline import PipelineTask, add_steps
from bert_tf.records.build import (
    RecordsTask,
    finish,
    make_records,
)
from bert_tf.records.folder import (
    MANIFEST_FILE,
    RECIPE_FILE,
    STATE_FILE,
    WORK_FOLDER,
    Manifest,
)
from bert_tf.records.plan import RecordsPlan, held_out_warnings, plan_jobs
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.repeats import CorpusSummary
from bert_tf.records.report import (
    RecordsReport,
    first_warnings,
    manifest_of,
)
from bert_tf.records.shards import ShardResult
from bert_tf.records.token_blocks import BlockSummary
from bert_tf.text.tokenizer_protocol import TokenizerData

# What a run that was killed leaves behind.
_MARK = f"{WORK_FOLDER}/{STATE_FILE}"


def create_records_with_beam(
    inputs: Sequence[CorpusFile],
    vocab_file: str,
    output_dir: str,
    recipe: RecordsRecipe,
    options: PipelineOptions,
    overwrite: bool = False,
    log: Callable[[str], None] = print,
) -> RecordsReport:
    """Makes the records that `create_records` makes, as a Beam pipeline.

    Args:
      inputs: what `parse_inputs` gives; paths may be URLs that Beam reads.
      vocab_file: the vocabulary of a tokenizer, a path or a URL.
      output_dir: where the records go, a path that all workers share or a URL.
      recipe: how they are made.
      options: Beam's own, as `parse_options` gives them.
      overwrite: removes records of another recipe that are in output_dir.
      log: prints a line that is no result: a warning, or what happens.

    Returns:
      What the folder holds.

    Raises:
      UserError: input, vocabulary, folder or options cannot be used.
      OSError: the pipeline failed.
    """
    try:
        files = tuple(inputs)
        tokenizer = _read_tokenizer(vocab_file, recipe.lower_case)
        described = tuple(describe(file) for file in files)
        plan = RecordsPlan.of(recipe, tokenizer, described)
        task = RecordsTask(plan, files, tokenizer, log)
        if is_remote(output_dir):
            return _make_remote(task, output_dir, options, overwrite)
        # A folder of this machine, or one that it shares.
        return make_records(
            task,
            pathlib.Path(output_dir),
            overwrite,
            lambda folder, _: _run(task, str(folder.absolute()), options),
        )
    except BeamIOError as error:
        raise _failed(str(error)) from error


def _read_tokenizer(vocab_file: str, lower_case: bool) -> TokenizerData:
    if not is_remote(vocab_file):
        return read_vocabulary_file(vocab_file, lower_case)
    if size_of(vocab_file) is None:
        raise UserError(f"{vocab_file}: no such vocabulary file.")
    folder, _, name = vocab_file.rpartition("/")
    beside = [join(folder, each) for each in tokenizer_files() if each != name]
    paths = [vocab_file, *(p for p in beside if size_of(p) is not None)]
    with tempfile.TemporaryDirectory() as place, local_copies(paths) as copies:
        for copy in copies:
            path = pathlib.Path(copy)
            path.rename(pathlib.Path(place, path.name))
        try:
            return read_vocabulary_file(pathlib.Path(place, name), lower_case)
        except UserError as error:
            raise UserError(str(error).replace(place, folder)) from None


def _run(
    task: RecordsTask, output_dir: str, options: PipelineOptions
) -> Manifest:
    """Runs the pipeline, and returns what it wrote."""
    # Its own for each run, as a killed one may have left the like.
    outcome = f"{WORK_FOLDER}/outcome-{uuid.uuid4().hex}.json"
    _run_pipeline(
        PipelineTask(
            task.plan,
            task.files,
            task.tokenizer,
            output_dir,
            outcome,
        ),
        options,
        task.log,
    )
    if size_of(join(output_dir, outcome)) is None:
        raise _not_shared(output_dir, outcome)
    values = json.loads(read_bytes(join(output_dir, outcome)))
    if values["mistake"] is not None:
        raise UserError(values["mistake"])
    blocks = [BlockSummary.from_header(b) for b in values["blocks"]]
    counts = np.array(values["counts"], dtype=np.int64)
    jobs = plan_jobs(task.plan, counts)
    warnings = [line for block in blocks for line in block.warnings]
    for line in (
        *first_warnings(warnings),
        *held_out_warnings(task.plan, jobs, counts),
    ):
        task.log(f"warning: {line}")
    results = {r["name"]: ShardResult(**r) for r in values["results"]}
    for result in results.values():
        if size_of(join(output_dir, result.name)) != result.size:
            raise _not_shared(output_dir, result.name)
    corpora = {n: CorpusSummary(**c) for n, c in values["corpora"].items()}
    in_order = [results[job.name] for job in jobs]
    return manifest_of(task.plan, blocks, corpora, in_order)


def _not_shared(output_dir: str, name: str) -> OSError:
    return _failed(
        f"{output_dir} has no {name}, though a worker wrote it; `output_dir` "
        "takes a folder that all workers share, or a URL as gs://bucket/folder"
    )


def _run_pipeline(
    task: PipelineTask, options: PipelineOptions, log: Callable[[str], None]
) -> None:
    runner = options.view_as(StandardOptions).runner
    try:
        pipeline = beam.Pipeline(options=options)
    # An unknown runner, one whose library is missing, or one that lacks an
    # option that it needs.
    except (ValueError, ImportError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"`beam_options`=--runner={runner}: {reason}."
        ) from None
    add_steps(pipeline, task)
    log(f"{task.output_dir}: the pipeline runs on {runner}.")
    try:
        state = pipeline.run().wait_until_finish()
    # Every runner has errors of its own.
    except Exception as error:
        raise _failed(str(error) or repr(error)) from error
    if state not in (None, PipelineState.DONE):
        raise _failed(f"it ended as {state}")


def _failed(reason: str) -> OSError:
    """An OSError, so that the folder stays marked as unfinished."""
    # The last line of a traceback says what it is about.
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
) -> RecordsReport:
    """Makes records in a folder that only Beam can reach."""
    started = time.monotonic()
    output_dir = output_dir.rstrip("/")
    if overwrite:
        raise UserError(
            f"`overwrite`: nothing is removed from {output_dir}; remove it "
            "yourself, or choose another folder."
        )
    _claim_remote(output_dir, task.plan)
    for warning in task.plan.recipe.warnings():
        task.log(f"warning: {warning}")
    try:
        manifest = _run(task, output_dir, options)
    except UserError:
        # What repairs the mistake makes another plan of it.
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
    return RecordsReport(output_dir, manifest, seconds)


def _claim_remote(output_dir: str, plan: RecordsPlan) -> None:
    """Marks a remote folder as one whose records are unfinished.

    Raises:
      UserError: it holds something else.
    """
    text = json.dumps(plan.to_dict()).encode("utf-8")
    mark = join(output_dir, _MARK)
    is_marked = size_of(mark) is not None
    if is_marked and read_bytes(mark) != text:
        raise UserError(
            f"`output_dir`={output_dir}: holds unfinished records of another "
            "text, vocabulary or recipe; choose another folder, or remove it."
        )
    for name in (MANIFEST_FILE, RECIPE_FILE):
        if size_of(join(output_dir, name)) is not None and (
            name == MANIFEST_FILE or not is_marked
        ):
            raise UserError(
                f"`output_dir`={output_dir}: holds a {name} already; choose "
                "another folder, or remove it."
            )
    _write_bytes(output_dir, _MARK, text)


def _write_bytes(folder: str, name: str, content: bytes) -> None:
    write_whole(folder, name, lambda file: file.write(content))
