"""Runs a fine-tuning: trains, scores and predicts, with one or more seeds."""

import dataclasses
import functools
import math
import pathlib
import shutil
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints import Checkpoint, load_checkpoint
from bert_tf.errors import OtherRun, UserError
from bert_tf.families.model_folder import RESULTS_FILE, TASK_FILE, load_model
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.task import (
    RunSplit,
    Task,
    TaskTemplate,
    score_scale,
)
from bert_tf.files import locked, written_beside
from bert_tf.finetuning.evaluation import (
    DEV_PREDICTIONS,
    FinishedRun,
    Predictor,
    Scorer,
    summarize,
    write_scores,
)
from bert_tf.finetuning.setup import (
    TrainingData,
    load_and_check,
    open_initial,
    prepare_training,
)
from bert_tf.finetuning.training import LAST, train_once
from bert_tf.sources import local_folder
from bert_tf.training.cluster import DEFAULT_DEVICES, Devices
from bert_tf.training.history import LEARNING_CURVE, write_numbers
from bert_tf.training.recipe import MODES
from bert_tf.training.run_folder import (
    LOCK_FILE,
    RunFolders,
    claim,
    folders_of,
    has_trained,
    refuse_other_folders,
)
from bert_tf.training.strategies import (
    check_agreement,
    cluster_of,
    gather_numbers,
    make_strategy,
    needs_static_shapes,
    translate_worker_errors,
)


def run_finetuning(
    task: TaskTemplate,
    recipe: FinetuningRecipe,
    output_dir: str | pathlib.Path,
    modes: Sequence[str],
    devices: Devices = DEFAULT_DEVICES,
    overwrite: bool | None = None,
) -> dict[str, Any]:
    """Fine-tunes a model on a task, scores it and predicts the test rows.

    Args:
      task: the task.
      recipe: the settings, of the task's `recipe_type`.
      output_dir: becomes a model folder, with states and logs of the run.
      modes: some of train, eval, predict and check (only check the data).
      devices: where to find the devices of the recipe's strategy.
      overwrite: whether training replaces another fine-tuning in output_dir;
        None where the caller has no such argument.

    Returns:
      By mode: train, the contents of results.json; eval, scores by split;
      predict, prediction files by split; check, statistics of the data.

    Raises:
      UserError: settings, data, model and output_dir do not fit each other, or
        the loss or a gradient is not finite.
      RunStopped: SIGTERM was received; the state is saved.
      KeyboardInterrupt: Ctrl-C; the state is saved, except on a second Ctrl-C.
      WorkerLost: another worker has failed.
    """
    if not modes or not set(modes) <= set(MODES):
        raise UserError(
            f"`modes`={','.join(modes)}: takes one or more of "
            f"{', '.join(MODES)}, comma-separated."
        )
    if type(recipe) is not task.recipe_type:
        raise UserError(
            f"{task.name}: takes a {task.recipe_type.__name__}, not a "
            f"{type(recipe).__name__}."
        )
    # It may split the CPU, which must precede any other use of TensorFlow.
    strategy = make_strategy(recipe.strategy, devices)
    cluster = cluster_of(strategy)
    with (
        translate_worker_errors(cluster),
        folders_of(output_dir, cluster) as run_dirs,
    ):
        check_agreement(strategy, recipe.to_dict() | {"mode": list(modes)})
        done = _run(
            task.resolve(recipe), recipe, run_dirs, modes, strategy, overwrite
        )
        # A barrier: the chief writes longest, and others fail when it exits.
        gather_numbers(strategy, [0])
    return done


def _run(
    prepared: Task,
    recipe: FinetuningRecipe,
    run_dirs: RunFolders,
    modes: Sequence[str],
    strategy: tf.distribute.Strategy,
    overwrite: bool | None,
) -> dict[str, Any]:
    output_dir = run_dirs.own

    def load(splits: Sequence[str], mode: str) -> dict[str, Any]:
        names = prepared.splits(splits, recipe) if mode in modes else ()
        return {name: prepared.load(name, recipe) for name in names}

    # Errors in the test rows are reported before the training.
    tests = load(prepared.test_splits, "predict")
    done: dict[str, Any] = {}
    if "train" in modes:
        initial, tokenizer = open_initial(recipe)
        data = prepare_training(
            prepared, recipe, initial, tokenizer, output_dir
        )
        if "check" in modes:
            done["check"] = data.doctor
        run = train_seeds(data, data.recipe, run_dirs, strategy, overwrite)
        done["train"] = run.results
        # Imported here to keep the start of a run short.
        from bert_tf.finetuning.report_files import write_reports

        write_reports(output_dir, run, data)
    elif "check" in modes:
        _, tokenizer = open_initial(recipe)
        # Evaluation reads the examples of a split file again from memory.
        is_alone = set(modes) == {"check"}
        read = prepared.load_once if is_alone else prepared.load
        done["check"] = load_and_check(
            prepared, recipe, tokenizer, read
        ).numbers
    if "eval" in modes or "predict" in modes:
        devs = load(prepared.dev_splits, "eval")
        scores, answers = _use_finished(
            prepared, recipe, run_dirs, strategy, devs, tests
        )
        done |= {"eval": scores} if "eval" in modes else {}
        done |= {"predict": answers} if "predict" in modes else {}
    return done


def _use_finished(
    task: Task,
    recipe: FinetuningRecipe,
    run_dirs: RunFolders,
    strategy: tf.distribute.Strategy,
    devs: Mapping[str, Any],
    tests: Mapping[str, Any],
) -> tuple[dict[str, dict[str, float]], dict[str, pathlib.Path]]:
    """Scores dev splits and predicts test splits with a finished model.

    It is the model of output_dir or else init_from.
    """
    candidates = [run_dirs.own, run_dirs.shared]
    if recipe.init_from:
        candidates.append(pathlib.Path(recipe.init_from))
    folders = [each for each in candidates if (each / TASK_FILE).is_file()]
    if task.scores_any_model and recipe.init_from:
        folders.append(local_folder(recipe.init_from))
    if not folders:
        raise UserError(
            f"`output_dir`={run_dirs.shared}: holds no fine-tuned model "
            f"({TASK_FILE}); add train to `modes`, or give one as `init_from`."
        )
    scorer, source = load_finished(task, recipe, folders[0], strategy)
    output_dir = run_dirs.own
    for examples in [*devs.values(), *tests.values()]:
        task.check(examples, scorer.config)
    output_dir.mkdir(parents=True, exist_ok=True)
    scores, answers = {}, {}
    for name, examples in devs.items():
        run = RunSplit(name, source, recipe, output_dir)
        found = scorer.score(scorer.encode(examples, run))
        write_scores(output_dir, name, found)
        path = task.write_predictions(output_dir, name, found.answered)
        shown = summarize(found.scores, task.lower_is_better)
        line = f"{name}: {shown}; answers in {path}"
        print(line, flush=True)
        scores[name] = found.scores
    for name, examples in tests.items():
        run = RunSplit(name, source, recipe, output_dir)
        answered = scorer.predict(scorer.encode(examples, run))
        answers[name] = task.write_predictions(output_dir, name, answered)
        line = f"{name}: {len(examples):,} answers in {answers[name]}"
        print(line, flush=True)
    return scores, answers


def load_finished(
    task: Task,
    recipe: FinetuningRecipe,
    folder: pathlib.Path,
    strategy: tf.distribute.Strategy,
) -> tuple[Scorer, Checkpoint]:
    """Loads a fine-tuned model, and the ensemble that its recipe names.

    Returns:
      A scorer, and the model's checkpoint.

    Raises:
      UserError: the folder is no model of the task, or one of the ensemble
        does not fit it.
    """
    unpadded = not needs_static_shapes(strategy)
    with strategy.scope():
        model, tokenizer, config = load_model(
            folder, task, recipe.precision, unpadded
        )
        models = [model]
        for other in filter(None, map(str.strip, recipe.ensemble.split(","))):
            member, own_tokenizer, own_config = load_model(
                other, task, recipe.precision, unpadded, config.labels
            )
            models.append(member)
            fault = ""
            if own_tokenizer.data != tokenizer.data:
                fault = "another vocabulary"
            elif own_config != config:
                fault = "other labels or lengths"
            if fault:
                raise UserError(
                    f"`ensemble`={recipe.ensemble}: {other} has {fault} than "
                    f"{folder} (see their {TASK_FILE}), so their outputs "
                    "cannot be averaged."
                )
    predictor = Predictor(models, strategy, recipe.eval_batch_size)
    scorer = Scorer(task, config, tokenizer, predictor)
    return scorer, load_checkpoint(folder)


def train_seeds(
    data: TrainingData,
    recipe: FinetuningRecipe,
    run_dirs: RunFolders,
    strategy: tf.distribute.Strategy,
    overwrite: bool | None = None,
) -> FinishedRun:
    """Trains once, or with several seeds, each in a subfolder.

    Args:
      data: training data and initial weights.
      recipe: the settings; `seeds` runs use `seed`, seed + 1 and so on.
      run_dirs: the run's folder, which receives the best model.
      strategy: the distribution strategy.
      overwrite: see `run_finetuning`.

    Returns:
      The best training, with the results and the histories of all.

    Raises:
      UserError: see `train_once`.
    """
    output_dir = run_dirs.own
    if not overwrite:
        _refuse_other_numbers(output_dir, recipe)
    refuse_other_folders(output_dir, recipe, overwrite)
    claim_all = functools.partial(claim, output_dir, recipe, overwrite)
    if recipe.seeds == 1:
        run = train_once(data, recipe, run_dirs, strategy, claim_all)
        rows = [_row(run.results, recipe.seed)]
        _print_table(run.results, rows, output_dir)
        return run
    parts = {
        f"seed_{number + 1}": dataclasses.replace(
            recipe, seed=recipe.seed + number, seeds=1
        )
        for number in range(recipe.seeds)
    }
    for name, part in parts.items():
        refuse_other_folders(output_dir / name, part, overwrite)

    def claim_part(name: str) -> None:
        # With the first seed all are known to begin.
        if name == next(iter(parts)):
            claim_all()
        claim(output_dir / name, parts[name])

    output_dir.mkdir(parents=True, exist_ok=True)
    with locked(output_dir / LOCK_FILE, output_dir):
        runs = {}
        for name, part in parts.items():
            print(f"seed {part.seed}, {name} of {recipe.seeds}", flush=True)
            runs[name] = train_once(
                data,
                part,
                run_dirs.part(name),
                strategy,
                functools.partial(claim_part, name),
            )
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
        # The reasons of a degenerate seed, also if it is not the best.
        reasons = [
            run.results["reasons"]
            for run in runs.values()
            if "reasons" in run.results
        ]
        results = {
            **runs[best["folder"]].results,
            **({"reasons": reasons[0]} if reasons else {}),
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
    return FinishedRun(results, histories, runs[best["folder"]].predictions)


def _refuse_other_numbers(
    output_dir: pathlib.Path, recipe: FinetuningRecipe
) -> None:
    """Refuses a folder with one run for several seeds, and vice versa."""
    if recipe.seeds == 1 and has_trained(output_dir / "seed_1"):
        raise OtherRun(
            f"`output_dir`={output_dir}: holds trainings with several seeds; "
            "choose another folder, or the same seeds to resume."
        )
    if recipe.seeds > 1 and has_trained(output_dir):
        raise OtherRun(
            f"`output_dir`={output_dir}: holds one training; choose another "
            "folder, or seeds=1 to resume."
        )


def _row(
    results: Mapping[str, Any], seed: int, folder: str = "."
) -> dict[str, Any]:
    """Returns a run's entry in results.json, from its first dev split."""
    return {
        "seed": seed,
        "folder": folder,
        "dev": next(iter(results["dev"].values())),
        "best_step": results["best_step"],
        "examples_per_second": results["examples_per_second"],
        "degenerate": "reasons" in results,
    }


def summary(rows: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Computes mean, median, sample standard deviation and range of scores.

    Args:
      rows: the scores of each run by name.
    """
    statistics_by_name = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        statistics_by_name[name] = {
            "mean": statistics.fmean(values),
            "median": statistics.median(values),
            "standard_deviation": statistics.stdev(values),
            "least": min(values),
            "most": max(values),
        }
    return statistics_by_name


def _keep(
    best: pathlib.Path, output_dir: pathlib.Path, data: TrainingData
) -> None:
    """Copies the model and predictions of the best run to output_dir."""
    # The last model has files of the same names as the best one.
    model = {
        str(path.relative_to(best / LAST))
        for path in (best / LAST).rglob("[!.]*")
        if path.is_file()
    } - {TASK_FILE}
    names = [f"eval_{split}.json" for split in data.dev]
    if (best / LEARNING_CURVE).exists():
        names.append(LEARNING_CURVE)
    # task.json, which marks a model folder, comes last.
    for name in (*names, DEV_PREDICTIONS, *sorted(model), TASK_FILE):
        (output_dir / name).parent.mkdir(exist_ok=True)
        with written_beside(output_dir / name) as beside:
            shutil.copyfile(best / name, beside)


def _print_table(
    results: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    output_dir: pathlib.Path,
) -> None:
    """Prints scores of each run, their statistics, baseline and the paper's.

    If runs are no better than the baseline, the likely reasons follow.
    """
    names = list(rows[0]["dev"])
    majority = next(iter(results["majority"].values()))
    costs = results.get("lower_is_better", ())
    scales = {
        name: score_scale(
            [*(row["dev"][name] for row in rows), majority.get(name)],
            name in costs,
        )
        for name in names
    }
    lines = [["", *names]]

    def add(title: str, values: Mapping[str, float], *remarks: str) -> None:
        cells = [_cell(values.get(name), scales[name]) for name in names]
        lines.append([title, *cells, *remarks])

    for row in rows:
        remarks = ["best"] if row.get("best") else []
        remarks += ["degenerate"] if row["degenerate"] else []
        add(f"seed {row['seed']}", row["dev"], *remarks)
    if "summary" in results:
        for statistic in ("mean", "median", "standard_deviation"):
            values = {k: v[statistic] for k, v in results["summary"].items()}
            add(statistic.replace("_", " "), values)
    add("without a model", majority)
    papers = {model for paper in results["paper"].values() for model in paper}
    for model in sorted(papers):
        paper = results["paper"].items()
        values = {name: v[model] for name, v in paper if model in v}
        add(f"paper, {model.replace('_', ' ')}", values)
    width = 2 + max(map(len, [*names, "degenerate"]))
    for first, *cells in lines:
        print(f"{first:20}" + "".join(f"{cell:>{width}}" for cell in cells))
    if reasons := results.get("reasons"):
        print("no better than without a model, likely because:")
        print(*(f"  {reason}" for reason in reasons), sep="\n")
    print(f"the best model is in {output_dir}", flush=True)


def _cell(value: float | None, scale: int) -> str:
    return "-" if value is None or math.isnan(value) else f"{scale * value:.2f}"
