"""Fine-tuning from Python: data in, scores and a loaded model out."""

import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bert_tf.errors import OtherRun, UserError, check_choice
from bert_tf.families import task_of_users
from bert_tf.families.model_folder import RESULTS_FILE
from bert_tf.families.task import TaskTemplate
from bert_tf.family_list import USER_TASKS
from bert_tf.files import write_text
from bert_tf.finetuning.finished import DERIVED
from bert_tf.finetuning.report_files import REPORT_FILE
from bert_tf.finetuning.run import run_finetuning
from bert_tf.inference.finished_model import FinishedModel
from bert_tf.inference.load import LoadedModel, load
from bert_tf.progress import log
from bert_tf.recipe import join_settings, read_json_object
from bert_tf.training.run_folder import (
    RECIPE_FILE,
    has_trained,
    refuse_other_folders,
)

if TYPE_CHECKING:
    # Most data are files.
    from bert_tf.families.in_memory import DataFile


@dataclasses.dataclass(frozen=True)
class FinetuningRun(FinishedModel):
    """A finished fine-tuning.

    Attributes:
      folder: the model folder, with all files of the run.
      scores: scores of the best model, by dev split and name.
      report: the HTML report.
      results: contents of results.json: scores of each seed, the majority
        baseline, the statistics of the data check, speeds.
      task: the task.
    """

    folder: pathlib.Path
    scores: Mapping[str, Mapping[str, float]]
    report: pathlib.Path
    results: Mapping[str, Any] = dataclasses.field(repr=False)
    task: TaskTemplate = dataclasses.field(repr=False)

    @functools.cached_property
    def model(self) -> LoadedModel:
        """The best model, loaded on first access; see `bert_tf.load`."""
        return load(self.folder)

    @property
    def _loaded(self) -> LoadedModel:
        return self.model


def finetune(
    init_from: str | os.PathLike,
    train: Any,
    dev: Any = None,
    *,
    task: str | TaskTemplate = "sentence",
    output_dir: str | os.PathLike | None = None,
    overwrite: bool = False,
    text_columns: str | None = None,
    label_column: str | None = None,
    label_kind: str | None = None,
    learning_rate: float | None = None,
    num_train_epochs: float | None = None,
    train_batch_size: int | None = None,
    max_seq_length: int | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    settings: Mapping[str, Any] | None = None,
    **others: Any,
) -> FinetuningRun:
    """Fine-tunes a model on the user's data, as `bert-tf finetune` does.

        run = bert_tf.finetune(folder, (texts, labels), learning_rate=3e-5)
        run.scores["dev"]["accuracy"]
        run.model("A lovely film.")["label"]
        run.predict("new.csv", "answers.csv")
        run.evaluate("test.csv")["accuracy"]
        run.export("served/films")

    The data are checked first, a report is written, and calling it again
    resumes an interrupted run, or returns a finished one. Data in memory are
    written to the folder `data` in output_dir and read from there, so errors
    name files and rows, and this command repeats the run:
    `bert-tf finetune --recipe=finetuned/recipe.json --output_dir=again`.

    Args:
      init_from: the model to start from: a folder of any family,
        hf://organisation/name or keras_hub://preset.
      train: training data. The path of a file, or for tasks with a fixed set
        of files their folder. In memory, for sentence: (texts, labels), N
        strings or pairs of strings, and N class names or whole numbers (for a
        regression numbers, for multi-label lists of names); for tagging:
        (sentences, tags), lists of lists of words and tags; for all tasks but
        tagging: a DataFrame of pandas or polars, a table of pyarrow, a data set
        of `datasets` or a mapping of columns; for questions also a list
        of rows, or {"data": ...} as in a JSON file. A missing text or label
        (None, NaN) becomes an empty cell; see the settings `empty_text` and
        `bad_rows`.
      dev: evaluation data, in the same forms; None splits the share `dev_share`
        of `train` off, by default a tenth.
      task: sentence, choice, questions, tagging, ranking or embedding, or a
        task object: TASK of a task file, or `UserFileTask(...)` with custom
        scores.
      output_dir: becomes the model folder; a folder of a run with other
        settings or data is refused. None is the first of finetuned,
        finetuned_2 and so on that has no finished run of others.
      overwrite: replaces any fine-tuning in output_dir when the new settings
        and data have been checked; other files in it are kept.
      text_columns: column of the text, or two columns of a pair,
        comma-separated; by default text and text_b for data in memory.
      label_column: column of the label; by default label for data in memory.
      label_kind: classes, regression or multi_label.
      learning_rate: peak learning rate.
      num_train_epochs: passes over the training examples.
      train_batch_size: rows in a step.
      max_seq_length: longest input in tokens.
      seed: of new weights, dropout and order.
      seeds: trainings, each with the next seed; the best is kept.
      settings: other settings by name, as a mapping.
      **others: any other setting of the task's recipe, such as early_stopping.

    Returns:
      The finished run.

    Raises:
      UserError: settings, data, model and output_dir that do not fit each
        other, or data that are none.
    """
    if isinstance(task, str):
        check_choice(
            *("`task`", task, USER_TASKS),
            ", or a task, such as TASK of a task file",
        )
        task = task_of_users(task)
    arguments = {
        "text_columns": text_columns,
        "label_column": label_column,
        "label_kind": label_kind,
        "learning_rate": learning_rate,
        "num_train_epochs": num_train_epochs,
        "train_batch_size": train_batch_size,
        "max_seq_length": max_seq_length,
        "seed": seed,
        "seeds": seeds,
    }
    given = join_settings(arguments | others, settings, DERIVED)
    values = {**task.defaults, **given}
    values |= {"task": task.name, "init_from": os.fspath(init_from)}
    files: dict[str, tuple[str, DataFile]] = {}
    for name, data in (("train", train), ("dev", dev)):
        if data is None and name == "dev":
            continue
        in_files = "train_file" in task.recipe_type.kinds()
        key = f"{name}_file" if in_files else "data_dir"
        if isinstance(data, str | os.PathLike):
            values[key] = os.fspath(data)
        else:
            file = task.stored(data, f"`{name}`", values)
            files[key] = name, file
            values |= file.settings
    for number in itertools.count(1):
        folder = pathlib.Path(output_dir or "finetuned")
        if number > 1:
            folder = folder.with_name(f"{folder.name}_{number}")
        paths = {
            key: _data_path(folder, key, f"{name}.{file.ending}", overwrite)
            for key, (name, file) in files.items()
        }
        recipe = task.recipe_type.from_arguments(
            values | {key: str(path) for key, path in paths.items()},
            f"the settings of {task.name}",
            finetune,
        )
        try:
            refuse_other_folders(folder, recipe, overwrite)
            for key, (name, file) in files.items():
                _write(paths[key], file.text, name, folder, overwrite)
            modes = ["train"]
            done = run_finetuning(
                task, recipe, folder, modes, overwrite=overwrite
            )
            break
        except OtherRun:
            is_finished = (folder / RESULTS_FILE).exists()
            if output_dir is not None or overwrite or not is_finished:
                raise
            log(f"{folder}: has a run with other settings or data, and is kept")
    for path in paths.values():
        for each in _data_names(path):
            if each != path:
                each.unlink(missing_ok=True)
    results = done["train"]
    return FinetuningRun(
        folder, results["dev"], folder / REPORT_FILE, results, task
    )


def _data_names(path: pathlib.Path) -> list[pathlib.Path]:
    """Returns the two names for data, so that new ones replace no old ones."""
    name = path.stem.removesuffix("_2")
    return [path.with_stem(name), path.with_stem(f"{name}_2")]


def _data_path(
    folder: pathlib.Path, key: str, name: str, overwrite: bool
) -> pathlib.Path:
    """Returns the path for data in memory.

    It is that of the data of the run in the folder, or with `overwrite` the
    other one.
    """
    first, second = _data_names(folder.absolute() / "data" / name)
    stored = read_json_object(folder / RECIPE_FILE, missing_ok=True)
    used = pathlib.Path(stored.get(key) or "").name
    replaced = first if overwrite else second
    return second if used == replaced.name else first


def _write(
    path: pathlib.Path,
    text: str,
    name: str,
    folder: pathlib.Path,
    overwrite: bool,
) -> None:
    """Writes a data file; refuses other data than the run was trained on."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    runs = [folder, *folder.glob("seed_*")]
    if path.exists() and not overwrite and any(map(has_trained, runs)):
        raise OtherRun(
            f"`{name}`: is not what the run in {folder} has been trained on, "
            f"{path}; choose another `output_dir`, or pass `overwrite`=True."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise UserError(
            f"`output_dir`={folder}: {error.strerror}; choose a folder that "
            "can be written."
        ) from None
