"""A fine-tuning, from a task and a recipe to a model folder and predictions."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints import Checkpoint, load_checkpoint
from bert_tf.errors import UserError
from bert_tf.families.model_folder import TASK_FILE, load_model
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.task import Split, Task, TaskTemplate
from bert_tf.finetuning.evaluation import (
    Predictor,
    Scorer,
    summarize,
    write_scores,
)
from bert_tf.finetuning.seeds import train_seeds
from bert_tf.finetuning.setup import (
    load_and_check,
    open_initial,
    prepare_training,
)
from bert_tf.training.cluster import DEFAULT_DEVICES, Devices
from bert_tf.training.history import errors_become_warnings
from bert_tf.training.run_folder import RunFolders, folders_of
from bert_tf.training.strategies import (
    check_agreement,
    cluster_of,
    gather_numbers,
    make_strategy,
    needs_static_shapes,
    translate_worker_errors,
)

MODES = ("train", "eval", "predict", "check")


def run_finetuning(
    task: TaskTemplate,
    recipe: FinetuningRecipe,
    output_dir: str | pathlib.Path,
    modes: Sequence[str],
    devices: Devices = DEFAULT_DEVICES,
) -> dict[str, Any]:
    """Fine-tunes a model on a task, scores it and predicts the test rows.

    Args:
      task: the task.
      recipe: what to do, of the task's `recipe_type`.
      output_dir: becomes a model folder, with the run's states and numbers.
      modes: some of train, eval, predict and check (look at the data only).
      devices: how to reach the devices of the recipe's strategy.

    Returns:
      By mode: what results.json holds; split to scores; split to the path of
      the predictions; the data doctor's numbers.

    Raises:
      UserError: settings, data, model and output_dir that do not fit each
        other, or a step that was not finite.
      RunStopped: SIGTERM asked for it; the state is saved.
      KeyboardInterrupt: Ctrl-C; the state is saved, unless it was the second.
      WorkerLost: another worker is gone.
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
    # First, since it may split the CPU, which TensorFlow allows only at start.
    strategy = make_strategy(recipe.strategy, devices)
    cluster = cluster_of(strategy)
    with (
        translate_worker_errors(cluster),
        folders_of(output_dir, cluster) as run_dirs,
    ):
        check_agreement(strategy, recipe.to_dict() | {"mode": list(modes)})
        done = _run(task.resolve(recipe), recipe, run_dirs, modes, strategy)
        # The first worker writes longest, and its end would be their error.
        gather_numbers(strategy, [0])
    return done


def _run(
    prepared: Task,
    recipe: FinetuningRecipe,
    run_dirs: RunFolders,
    modes: Sequence[str],
    strategy: tf.distribute.Strategy,
) -> dict[str, Any]:
    output_dir = run_dirs.own

    def load(splits: Sequence[str], mode: str) -> dict[str, Any]:
        names = prepared.splits(splits, recipe) if mode in modes else ()
        return {name: prepared.load(name, recipe) for name in names}

    # Before hours of training, not after them.
    tests = load(prepared.test_splits, "predict")
    done: dict[str, Any] = {}
    if "train" in modes:
        initial, tokenizer = open_initial(recipe)
        data = prepare_training(
            prepared, recipe, initial, tokenizer, output_dir
        )
        if "check" in modes:
            done["check"] = data.doctor
        trained = train_seeds(data, recipe, run_dirs, strategy)
        done["train"] = trained.results
        # Long after the start, and where there is a training alone.
        from bert_tf.finetuning.card import write_card
        from bert_tf.finetuning.report_files import write_report

        with errors_become_warnings("the report", output_dir):
            page = write_report(trained, output_dir)
            print(f"the report is {page}", flush=True)
        with errors_become_warnings("the model card", output_dir):
            write_card(prepared, data.config, trained, output_dir)
    elif "check" in modes:
        _, tokenizer = open_initial(recipe)
        done["check"] = load_and_check(prepared, recipe, tokenizer).numbers
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
    """Scores of dev splits, and files of answers to test splits."""
    scorer, source = _load_finished(task, recipe, run_dirs, strategy)
    config, output_dir = scorer.config, run_dirs.own
    for examples in [*devs.values(), *tests.values()]:
        task.check(examples, config)
    output_dir.mkdir(parents=True, exist_ok=True)

    def encode(name: str, examples: Any) -> Split:
        rows = task.encode(examples, scorer.tokenizer, config)
        rows = task.featurize(rows, name, source, config, recipe, output_dir)
        return Split(examples, rows)

    def write(name: str, examples: Any, predictions: Any) -> pathlib.Path:
        return task.write_predictions(
            output_dir, name, examples, predictions, config
        )

    scores, answers = {}, {}
    for name, examples in devs.items():
        found = scorer.score(encode(name, examples))
        write_scores(output_dir, name, found, len(examples))
        path = write(name, examples, found.predictions)
        line = f"{name}: {summarize(found.scores)}; answers in {path}"
        print(line, flush=True)
        scores[name] = found.scores
    for name, examples in tests.items():
        predictions = scorer.predict(encode(name, examples))
        answers[name] = write(name, examples, predictions)
        line = f"{name}: {len(examples):,} answers in {answers[name]}"
        print(line, flush=True)
    return scores, answers


def _load_finished(
    task: Task,
    recipe: FinetuningRecipe,
    run_dirs: RunFolders,
    strategy: tf.distribute.Strategy,
) -> tuple[Scorer, Checkpoint]:
    """The model of output_dir, or the one that init_from names."""
    candidates = [run_dirs.own, run_dirs.shared]
    if recipe.init_from:
        candidates.append(pathlib.Path(recipe.init_from))
    holding = [each for each in candidates if (each / TASK_FILE).is_file()]
    if not holding:
        raise UserError(
            f"`output_dir`={run_dirs.shared}: holds no fine-tuned model "
            f"({TASK_FILE}); add train to `modes`, or give one as `init_from`."
        )
    folder = holding[0]
    unpadded = not needs_static_shapes(strategy)
    with strategy.scope():
        model, tokenizer, config = load_model(
            folder, task, recipe.precision, unpadded
        )
        models = [model]
        for other in filter(None, map(str.strip, recipe.ensemble.split(","))):
            further = load_model(
                other, task, recipe.precision, unpadded, config.labels
            )
            models.append(further[0])
            if (further[1].vocabulary, further[1].config) != (
                tokenizer.vocabulary,
                tokenizer.config,
            ):
                raise UserError(
                    f"`ensemble`={recipe.ensemble}: {other} has another "
                    f"vocabulary than {folder}; only models of one vocabulary "
                    "can be averaged."
                )
            if config != further[2]:
                raise UserError(
                    f"`ensemble`={recipe.ensemble}: {other} was trained with "
                    f"other labels or lengths than {folder} (see their "
                    f"{TASK_FILE}); only models that are alike in them can be "
                    "averaged."
                )
    predictor = Predictor(models, strategy, recipe.eval_batch_size)
    scorer = Scorer(task, config, tokenizer, predictor)
    return scorer, load_checkpoint(folder)
