"""Several trainings of a task, each with the next seed; the best is kept."""

import dataclasses
import pathlib
import shutil
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints.checkpoint import LABELS_FILE
from bert_tf.errors import UserError
from bert_tf.files import locked, written_beside
from bert_tf.finetuning.evaluation import DEV_PREDICTIONS
from bert_tf.finetuning.model_folder import TASK_FILE
from bert_tf.finetuning.recipe import FinetuningRecipe
from bert_tf.finetuning.report.statistics import FinishedRun
from bert_tf.finetuning.results import RESULTS_FILE
from bert_tf.finetuning.setup import TrainingData
from bert_tf.finetuning.training import train_once
from bert_tf.training.history import LEARNING_CURVE, write_numbers
from bert_tf.training.run_folder import (
    LOCK_FILE,
    RunFolders,
    claim,
    has_trained,
    refuse_other_folders,
)

# What the best training's folder hands on; the last makes a folder a model.
_KEPT = (
    "bert_config.json",
    "bert_model.safetensors",
    "vocab.txt",
    "tokenizer_config.json",
    LABELS_FILE,
    LEARNING_CURVE,
    DEV_PREDICTIONS,
    TASK_FILE,
)


def train_seeds(
    data: TrainingData,
    recipe: FinetuningRecipe,
    run_dirs: RunFolders,
    strategy: tf.distribute.Strategy,
) -> FinishedRun:
    """Trains once, or with several seeds in folders of their own.

    Args:
      data: what to train on and from.
      recipe: what to do; `seeds` trainings with `seed`, seed + 1 and so on.
      run_dirs: the run's folder becomes that of the best model.
      strategy: the distribution strategy.

    Returns:
      What is written, for the report.

    Raises:
      UserError: see `train_once`.
    """
    output_dir = run_dirs.own
    _refuse_other_numbers(output_dir, recipe)
    if recipe.seeds == 1:
        run = train_once(data, recipe, run_dirs, strategy)
        row = _row(run.results, recipe.seed, ".")
        _print_table(run.results, [row], output_dir)
        return run
    parts = {
        f"seed_{number + 1}": dataclasses.replace(
            recipe, seed=recipe.seed + number, seeds=1
        )
        for number in range(recipe.seeds)
    }
    refuse_other_folders(output_dir, recipe)
    for name, part in parts.items():
        refuse_other_folders(output_dir / name, part)
    output_dir.mkdir(parents=True, exist_ok=True)
    with locked(output_dir / LOCK_FILE, output_dir):
        claim(output_dir, recipe)
        runs = {}
        for name, part in parts.items():
            print(f"seed {part.seed}, {name} of {recipe.seeds}", flush=True)
            runs[name] = train_once(data, part, run_dirs.part(name), strategy)
        found = {name: run.results for name, run in runs.items()}
        rows = [_row(found[n], part.seed, n) for n, part in parts.items()]
        best = _best(found)
        for row in rows:
            row["best"] = row["folder"] == best
        results = {
            **found[best],
            "recipe": recipe.to_dict(),
            "seeds": rows,
            "summary": summary([row["dev"] for row in rows]),
        }
        _keep(output_dir / best, output_dir, data)
        write_numbers(output_dir / RESULTS_FILE, results)
        _print_table(results, rows, output_dir)
    return FinishedRun(
        results,
        recipe.to_dict(),
        {
            str(parts[name].seed): run.histories[""]
            for name, run in runs.items()
        },
        runs[best].predictions,
    )


def _refuse_other_numbers(
    output_dir: pathlib.Path, recipe: FinetuningRecipe
) -> None:
    """Raises `UserError` where one training and several would mix."""
    if recipe.seeds == 1 and has_trained(output_dir / "seed_1"):
        raise UserError(
            f"`output_dir`={output_dir}: holds trainings with several seeds; "
            "choose another folder, or the same seeds to go on."
        )
    if recipe.seeds > 1 and has_trained(output_dir):
        raise UserError(
            f"`output_dir`={output_dir}: holds one training; choose another "
            "folder, or seeds=1 to go on."
        )


def _main_scores(results: Mapping[str, Any]) -> dict[str, float]:
    return next(iter(results["dev"].values()))


def _row(results: Mapping[str, Any], seed: int, folder: str) -> dict[str, Any]:
    metric = results["main_metric"]
    scores = _main_scores(results)
    majority = next(iter(results["majority"].values()))
    return {
        "seed": seed,
        "folder": folder,
        "dev": scores,
        "best_step": results["best_step"],
        "examples_per_second": results["examples_per_second"],
        # A NaN is not better either.
        "degenerate": not scores[metric] > _floor(majority[metric]),
    }


def _floor(value: float) -> float:
    """The baseline; a correlation with a constant is not defined, so 0."""
    return value if value == value else 0.0


def _best(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The folder of the training with the best main score, the first one."""

    def value(name: str) -> float:
        score = _main_scores(found[name])[found[name]["main_metric"]]
        return score if score == score else -2.0

    return max(found, key=value)


def summary(rows: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Mean, median, spread and range of each score over the trainings.

    Args:
      rows: the scores of each training by name.

    Returns:
      By score: mean, median, standard_deviation (of the sample, n - 1), least
      and most.
    """
    found = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        found[name] = {
            "mean": statistics.fmean(values),
            "median": statistics.median(values),
            "standard_deviation": statistics.stdev(values),
            "least": min(values),
            "most": max(values),
        }
    return found


def _keep(
    best: pathlib.Path, output_dir: pathlib.Path, data: TrainingData
) -> None:
    """Copies the best training's model and answers."""
    names = [*_KEPT, *data.task.extra_files]
    names[:0] = [f"eval_{split}.json" for split in data.dev]
    for name in names:
        # A task without labels has no file of them, and a picture may fail.
        if name in (LABELS_FILE, LEARNING_CURVE) and not (best / name).exists():
            continue
        with written_beside(output_dir / name) as beside:
            shutil.copyfile(best / name, beside)


def _print_table(
    results: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    output_dir: pathlib.Path,
) -> None:
    """Prints each training, their mean, the paper's numbers and the place."""
    names = list(rows[0]["dev"])
    lines = [["", *names]]
    for row in rows:
        remarks = ["best"] if row.get("best") else []
        remarks += ["degenerate"] if row["degenerate"] else []
        cells = [_percent(row["dev"][name]) for name in names]
        lines.append([f"seed {row['seed']}", *cells, *remarks])
    for statistic in ("mean", "median", "standard_deviation"):
        if "summary" in results:
            parts = results["summary"]
            cells = [_percent(parts[name][statistic]) for name in names]
            lines.append([statistic.replace("_", " "), *cells])
    majority = next(iter(results["majority"].values()))
    cells = [_percent(majority[name]) for name in names]
    lines.append(["without a model", *cells])
    papers = {model for paper in results["paper"].values() for model in paper}
    for model in sorted(papers):
        cells = [
            _percent(results["paper"].get(name, {}).get(model))
            for name in names
        ]
        lines.append([f"paper, {model.replace('_', ' ')}", *cells])
    width = 2 + max(map(len, [*names, "degenerate"]))
    for first, *cells in lines:
        print(f"{first:20}" + "".join(f"{cell:>{width}}" for cell in cells))
    print(f"the best model is in {output_dir}", flush=True)


def _percent(value: float | None) -> str:
    return "-" if value is None or value != value else f"{100 * value:.2f}"
