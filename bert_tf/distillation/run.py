"""Runs a distillation: trains the student with and without the teacher, and
compares both with the teacher.
"""

import dataclasses
import json
import math
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bert_tf.checkpoints import load_checkpoint, save_checkpoint
from bert_tf.distillation.report import Distillation, write_report
from bert_tf.distillation.students import make_student
from bert_tf.errors import UserError
from bert_tf.families.model_folder import load_model
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.task import Split, TaskTemplate
from bert_tf.files import new_folder, write_text
from bert_tf.finetuning.evaluation import Predictor, Scorer
from bert_tf.finetuning.measured import (
    Measured,
    rows_per_second,
    seconds_of,
)
from bert_tf.finetuning.run import run_finetuning
from bert_tf.lazy_arrays import shapes_of_arrays
from bert_tf.pretraining.objective import ObjectiveTraits, load_objective
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.pretraining.report import perplexity
from bert_tf.pretraining.run import load_pretrainer, run_pretraining
from bert_tf.pretraining.setup import open_records
from bert_tf.recipe import read_json_object
from bert_tf.records.dataset import (
    held_out_batches,
    reading_errors,
    training_batches,
)
from bert_tf.teacher_settings import StudentSettings
from bert_tf.training.cluster import DEFAULT_DEVICES, Devices
from bert_tf.training.run_folder import has_trained, refuse_other_folders
from bert_tf.training.step import EvaluationStep
from bert_tf.training.strategies import make_strategy

# Subfolders of the distillation.
STUDENT, UNDISTILLED = "student", "undistilled"
_STUDENT_FILE = "student.json"
_TIMED_BATCHES = 10
# Scores by name, and their standard deviations.
_Scores = tuple[dict[str, float], dict[str, float]]
_Recipe = TypeVar("_Recipe", PretrainingRecipe, FinetuningRecipe)


def distill_task(
    task: TaskTemplate,
    recipe: FinetuningRecipe,
    student: StudentSettings,
    output_dir: str | pathlib.Path,
    undistilled: bool = True,
    devices: Devices = DEFAULT_DEVICES,
) -> Distillation:
    """Fine-tunes a student on a task with the outputs of a teacher.

    Args:
      task: the task.
      recipe: of the student's training; names the teacher.
      student: the architecture of the student, unless `init_from` names it.
      output_dir: becomes the student's model folder, with the files of
        `write_report`; an interrupted distillation resumes.
      undistilled: whether to also train the student without a teacher.
      devices: the devices of the recipe's strategy.

    Raises:
      UserError: settings, data and models do not fit each other.
    """
    output_dir = pathlib.Path(output_dir)
    recipe = _with_student(recipe, student, output_dir)
    paths, results = _train(
        recipe,
        output_dir,
        undistilled,
        lambda each, folder: run_finetuning(
            task, each, folder, ("train",), devices
        )["train"],
    )
    prepared = task.resolve(recipe)
    split, *_ = prepared.splits(prepared.dev_splits, recipe)
    dev = prepared.load(split, recipe)
    loaded = {
        name: load_model(path, prepared, recipe.precision)
        for name, path in paths.items()
    }
    models = [model for model, _, _ in loaded.values()]
    teacher, tokenizer, config = loaded["teacher"]
    rows = prepared.encode(dev, tokenizer, config)
    predictor = Predictor(
        [teacher], make_strategy("one_device"), recipe.eval_batch_size
    )
    scorer = Scorer(prepared, config, tokenizer, predictor)
    scores: dict[str, _Scores] = {
        "teacher": (scorer.score(Split(dev, rows)).scores, {})
    }
    scores |= {n: _over_seeds(found, split) for n, found in results.items()}
    speeds = rows_per_second(models, rows, recipe.eval_batch_size)
    return _reported(
        f"{prepared.name}, {split}",
        prepared.main_metric,
        paths,
        scores,
        dict(zip(paths, speeds, strict=True)),
        output_dir,
    )


def distill_text(
    recipe: PretrainingRecipe,
    student: StudentSettings,
    output_dir: str | pathlib.Path,
    undistilled: bool = True,
    devices: Devices = DEFAULT_DEVICES,
) -> Distillation:
    """Pre-trains a student on records with the predictions of a teacher.

    See `distill_task`; `output_dir` becomes the folder of a pre-training.
    """
    output_dir = pathlib.Path(output_dir)
    recipe = _with_student(recipe, student, output_dir)
    paths, results = _train(
        recipe,
        output_dir,
        undistilled,
        lambda each, folder: run_pretraining(each, folder, devices),
    )
    objective = load_objective(recipe.objective)
    traits = ObjectiveTraits.of(objective)
    task = traits.token_task
    records = open_records(recipe, traits)[-1]
    size = recipe.eval_batch_size
    batches = training_batches(records, size, recipe.seed)
    if records.num_held_out:
        batches = held_out_batches(records, size)
    models = {
        name: load_pretrainer(load_checkpoint(path), recipe.precision)
        for name, path in paths.items()
    }
    found = {name: dict(result.held_out) for name, result in results.items()}
    with reading_errors(records):
        if records.num_held_out:
            of_tokens = EvaluationStep(
                models["teacher"],
                load_objective(
                    "left_to_right" if traits.reads_next_tokens else "masked_lm"
                ),
                make_strategy("one_device"),
            )
            found["teacher"] = of_tokens.means(batches)
        few = batches.take(_TIMED_BATCHES).cache()
        seconds = seconds_of([m.encoder for m in models.values()], few)
        num_batches = sum(1 for _ in few)
    scores: dict[str, _Scores] = {
        name: (_of_tokens(found.get(name, {}), task), {}) for name in paths
    }
    speeds = {
        name: size * num_batches / each
        for name, each in zip(models, seconds, strict=True)
    }
    return _reported(
        "held-out records",
        f"{task}_accuracy",
        paths,
        scores,
        speeds,
        output_dir,
    )


def _with_student(
    recipe: _Recipe, settings: StudentSettings, output_dir: pathlib.Path
) -> _Recipe:
    """The recipe that starts from the student, which is created if needed."""
    if not recipe.teacher:
        raise UserError("`teacher`: name the model to learn from.")
    if recipe.strategy == "multi_worker":
        raise UserError(
            "`strategy`=multi_worker: several trainings of one command run on "
            "one machine; train a student by bert-tf pretrain or "
            "bert-tf finetune with `teacher`."
        )
    if recipe.init_from:
        if settings != StudentSettings():
            raise UserError(
                f"`init_from`={recipe.init_from}: is already the student; "
                "leave out `size`, `layers` and `architecture`."
            )
        return recipe
    folder = output_dir / STUDENT
    recipe = dataclasses.replace(recipe, init_from=str(folder))
    refuse_other_folders(output_dir, recipe)
    values = {
        "teacher": recipe.teacher,
        "seed": recipe.seed,
        **settings.to_dict(),
    }
    made = folder / _STUDENT_FILE
    if made.exists() and read_json_object(made) == values:
        return recipe
    if made.exists():
        # A student that is not trained yet is replaced.
        if has_trained(output_dir):
            raise UserError(
                f"`output_dir`={output_dir}: holds another student ({made}); "
                "choose another folder, or the same teacher, seed and student "
                "to resume."
            )
        shutil.rmtree(folder)
    teacher = load_checkpoint(recipe.teacher)
    checkpoint = make_student(settings, teacher, recipe.seed)
    output_dir.mkdir(parents=True, exist_ok=True)
    with new_folder(folder) as beside:
        save_checkpoint(beside, checkpoint)
        text = json.dumps(values, indent=2)
        write_text(beside / _STUDENT_FILE, text + "\n")
    return recipe


def _train(
    recipe: _Recipe,
    output_dir: pathlib.Path,
    undistilled: bool,
    train: Callable[[_Recipe, pathlib.Path], Any],
) -> tuple[dict[str, str], dict[str, Any]]:
    """Trains the student with the teacher and, if asked for, without.

    Returns:
      The path of each model by name, the teacher first, and the result of each
      training.
    """
    paths, results = {"teacher": recipe.teacher}, {}
    runs = [(STUDENT, recipe, output_dir)]
    if undistilled:
        folder = output_dir / UNDISTILLED
        runs.append((UNDISTILLED, recipe.without_teacher(), folder))
    for name, each, folder in runs:
        how = f"with {each.teacher}" if each.teacher else "without a teacher"
        print(f"{name}: trains {how}", flush=True)
        paths[name], results[name] = str(folder), train(each, folder)
    return paths, results


def _of_tokens(numbers: Mapping[str, float], task: str) -> dict[str, float]:
    """Accuracy and perplexity of held-out tokens; empty without records."""
    if f"{task}_loss" not in numbers:
        return {}
    return {
        f"{task}_accuracy": numbers[f"{task}_accuracy"],
        f"{task}_perplexity": perplexity(numbers[f"{task}_loss"]),
    }


def _over_seeds(results: Mapping[str, Any], split: str) -> _Scores:
    """Scores of a fine-tuning, or means over the seeds and their spread."""
    if "summary" not in results:
        return dict(results["dev"][split]), {}
    summary = results["summary"]
    mean, spread = (
        {name: values[key] for name, values in summary.items()}
        for key in ("mean", "standard_deviation")
    )
    return mean, spread


def _reported(
    title: str,
    metric: str,
    paths: Mapping[str, Any],
    scores: Mapping[str, _Scores],
    speeds: Mapping[str, float],
    output_dir: pathlib.Path,
) -> Distillation:
    """Measures the size of the models, writes and returns the report."""
    measured = {}
    for name, path in paths.items():
        shapes = shapes_of_arrays(load_checkpoint(path).arrays).values()
        parameters = sum(map(math.prod, shapes))
        values, spread = scores[name]
        # Model folders are float32.
        measured[name] = Measured(
            values, speeds[name], parameters, 4 * parameters, spread
        )
    distillation = Distillation(title, metric, measured)
    write_report(distillation, output_dir)
    return distillation
