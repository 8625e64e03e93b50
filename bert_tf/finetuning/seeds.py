"""Several trainings of a task, each with the next seed; the best is kept."""

import dataclasses
import math
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import LABELS_FILE
from bert_tf.errors import UserError
from bert_tf.families.model_folder import RESULTS_FILE, TASK_FILE
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.files import locked, written_beside
from bert_tf.finetuning.evaluation import DEV_PREDICTIONS
from bert_tf.finetuning.setup import TrainingData
from bert_tf.finetuning.training import train_once
from bert_tf.report.statistics import FinishedRun, summary
from bert_tf.training.history import LEARNING_CURVE, write_numbers
from bert_tf.training.run_folder import (
    LOCK_FILE,
    RunFolders,
    claim,
    has_trained,
    refuse_other_folders,
)

_MODEL = ("bert_config.json", "bert_model.safetensors")
_ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
# What the best training's folder hands on; the last makes a folder a model.
_KEPT = (
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
        _print_table(run.results, [_row(run.results, recipe.seed)], output_dir)
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
        rows = [
            _row(run.results, parts[name].seed, name)
            for name, run in runs.items()
        ]
        metric = data.task.main_metric
        sign = -1.0 if metric in data.task.lower_is_better else 1.0
        # The first of the best; a NaN is not better.
        best = max(
            rows,
            key=lambda row: np.nan_to_num(
                sign * row["dev"][metric], nan=-np.inf
            ),
        )
        for row in rows:
            row["best"] = row is best
        best_run = runs[best["folder"]]
        results = {
            **best_run.results,
            "recipe": recipe.to_dict(),
            "seeds": rows,
            "summary": summary([row["dev"] for row in rows]),
        }
        _keep(output_dir / best["folder"], output_dir, data)
        write_numbers(output_dir / RESULTS_FILE, results)
        _print_table(results, rows, output_dir)
    histories = {
        str(parts[name].seed): run.histories[""] for name, run in runs.items()
    }
    return FinishedRun(
        results, recipe.to_dict(), histories, best_run.predictions
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


def _row(
    results: Mapping[str, Any], seed: int, folder: str = "."
) -> dict[str, Any]:
    """What results.json has of one training, by its scores on the first dev."""
    metric = results["main_metric"]
    scores = next(iter(results["dev"].values()))
    majority = next(iter(results["majority"].values()))
    if metric in results.get("lower_is_better", ()):
        is_better = not scores[metric] >= majority[metric]
    else:
        # A correlation with a constant, which is not defined, is none.
        is_better = scores[metric] > np.nan_to_num(majority[metric])
    return {
        "seed": seed,
        "folder": folder,
        "dev": scores,
        "best_step": results["best_step"],
        "examples_per_second": results["examples_per_second"],
        # A NaN is not better either.
        "degenerate": math.isnan(scores[metric]) or not is_better,
    }


def _keep(
    best: pathlib.Path, output_dir: pathlib.Path, data: TrainingData
) -> None:
    """Copies the best training's model and answers."""
    weights = _ADAPTER if data.initial.config.lora_rank else _MODEL
    names = [*weights, *_KEPT, *data.task.extra_files]
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

    def add(title: str, values: Mapping[str, float], *remarks: str) -> None:
        cells = [_percent(values.get(name)) for name in names]
        lines.append([title, *cells, *remarks])

    for row in rows:
        remarks = ["best"] if row.get("best") else []
        remarks += ["degenerate"] if row["degenerate"] else []
        add(f"seed {row['seed']}", row["dev"], *remarks)
    if "summary" in results:
        for statistic in ("mean", "median", "standard_deviation"):
            values = {k: v[statistic] for k, v in results["summary"].items()}
            add(statistic.replace("_", " "), values)
    add("without a model", next(iter(results["majority"].values())))
    papers = {model for paper in results["paper"].values() for model in paper}
    for model in sorted(papers):
        paper = results["paper"].items()
        values = {name: v[model] for name, v in paper if model in v}
        add(f"paper, {model.replace('_', ' ')}", values)
    width = 2 + max(map(len, [*names, "degenerate"]))
    for first, *cells in lines:
        print(f"{first:20}" + "".join(f"{cell:>{width}}" for cell in cells))
    print(f"the best model is in {output_dir}", flush=True)


def _percent(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{100 * value:.2f}"
