"""A folder of records around whatever builds them: claimed, then finished."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator

from bert_tf.corpora.sources import CorpusFile
from bert_tf.errors import UserError
from bert_tf.recipe import read_json_object
from bert_tf.records.folder import MANIFEST_FILE, RECIPE_FILE, Manifest
from bert_tf.records.plan import (
    RecordsPlan,
    is_finished,
    plan_of,
    refuse_other_folders,
    refuse_running,
    remove_records,
    work_folder,
)
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.report import RecordsReport
from bert_tf.text.tokenizer_config import (
    TokenizerConfig,
    read_tokenizer_config,
    write_tokenizer_config,
)
from bert_tf.text.tokenizer_files import (
    TOKENIZER_CONFIG_FILE,
    require_vocabulary,
)
from bert_tf.text.vocabulary import VOCABULARY_FILE, Vocabulary


@dataclasses.dataclass(frozen=True)
class RecordsTask:
    """Records that are to be made.

    Attributes:
      plan: what they are to hold.
      files: the input files.
      vocabulary: makes the ids.
      say: prints a line that is no result: a warning, or what happens.
    """

    plan: RecordsPlan
    files: tuple[CorpusFile, ...]
    vocabulary: Vocabulary
    say: Callable[[str], None]


# Is given the task, the folder of the records and one for unfinished work in
# it; returns what is to be said of the record files that it wrote.
Build = Callable[[RecordsTask, pathlib.Path, pathlib.Path], Manifest]


def checked_vocabulary(
    vocab_file: str | pathlib.Path, recipe: RecordsRecipe
) -> tuple[Vocabulary, TokenizerConfig]:
    """Reads a vocabulary and how text is split into its words.

    A tokenizer_config.json beside a vocab.txt decides about accents and
    ideographs, and must say of lower-casing what the recipe does.

    Raises:
      UserError: they contradict each other, or a file cannot be used.
    """
    vocab_file = pathlib.Path(vocab_file)
    vocabulary = Vocabulary.from_file(vocab_file)
    config = vocab_file.parent / TOKENIZER_CONFIG_FILE
    # It speaks of vocab.txt alone; a folder may hold other vocabularies.
    if vocab_file.name == VOCABULARY_FILE and config.is_file():
        said = read_json_object(config).get("do_lower_case")
        if said is not None and said != recipe.lower_case:
            raise UserError(
                f"lower_case is {recipe.lower_case}, but {config} says that "
                f"do_lower_case is {said} for this vocabulary; pass "
                f"`lower_case`={said}."
            )
    elif recipe.lower_case and vocabulary.looks_cased():
        raise UserError(
            f"lower_case is True, but {vocab_file} holds tokens with capital "
            "letters; pass `lower_case`=False for a cased vocabulary."
        )
    if vocab_file.name != VOCABULARY_FILE:
        return vocabulary, TokenizerConfig.of(recipe.lower_case)
    # With the tokens that were added to a model.
    vocabulary = require_vocabulary(vocab_file.parent)
    return vocabulary, read_tokenizer_config(
        vocab_file.parent, vocabulary, recipe.lower_case
    )


def make_records(
    task: RecordsTask, output_dir: pathlib.Path, overwrite: bool, build: Build
) -> RecordsReport:
    """Makes the records of a task, or what is missing of them.

    Args:
      task: what is to be made.
      output_dir: where the records go.
      overwrite: removes records of another plan that are in output_dir.
      build: writes the record files.

    Returns:
      What the folder holds.

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
        task.say(f"warning: {warning}")
    if overwrite and not is_finished(output_dir, plan, refuse=False):
        with _replaced(output_dir, plan) as beside:
            manifest = _make(task, beside, build)
    else:
        manifest = _make(task, output_dir, build)
    seconds = 0.0 if manifest is None else time.monotonic() - started
    manifest = manifest or Manifest.load(output_dir)
    return RecordsReport.of(output_dir, manifest, plan.input_bytes, seconds)


def _make(
    task: RecordsTask, output_dir: pathlib.Path, build: Build
) -> Manifest | None:
    """Makes the records; None where they are there already."""
    if is_finished(output_dir, task.plan):
        task.say(f"{output_dir}: all records are there already; nothing to do.")
        return None
    with work_folder(output_dir, task.plan, task.vocabulary) as work_dir:
        try:
            manifest = build(task, output_dir, work_dir)
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
    task.vocabulary.save(output_dir / VOCABULARY_FILE)
    write_tokenizer_config(
        output_dir, task.plan.tokenizer_config, task.vocabulary
    )
    manifest.save(output_dir)


@contextlib.contextmanager
def _replaced(
    output_dir: pathlib.Path, plan: RecordsPlan
) -> Iterator[pathlib.Path]:
    """A folder beside output_dir that takes its place when finished.

    Two renames do that: output_dir becomes .NAME.old, and .NAME.new becomes
    output_dir. `_finish_replacement` does what is left after a kill.

    Raises:
      UserError: output_dir cannot be renamed, or another run writes there.
    """
    refuse_other_folders(output_dir)
    if os.path.ismount(output_dir):
        raise UserError(
            f"`output_dir`={output_dir}: is a mount point, which cannot be "
            "renamed, so nothing in it is replaced; name a folder inside."
        )
    old, new = _beside(output_dir)
    there = plan_of(new)
    if there is not None and plan.difference(there):
        # Nobody has seen these, and now others are to be made.
        refuse_running(new)
        shutil.rmtree(new)
    yield new
    if output_dir.exists():
        refuse_running(output_dir)
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
    remove_records(old)
    # What is left is the user's own.
    for path in old.iterdir():
        path.rename(output_dir / path.name)
    old.rmdir()


def _beside(output_dir: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Where old records go, and where new ones are made, for a replacement."""
    return (
        output_dir.with_name(f".{output_dir.name}.old"),
        output_dir.with_name(f".{output_dir.name}.new"),
    )
