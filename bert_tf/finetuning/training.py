"""Trains a task with one seed, and writes the files of the run."""

import contextlib
import datetime
import functools
import json
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.encoders import encoder_class
from bert_tf.errors import UserError
from bert_tf.families.model_folder import RESULTS_FILE, save_model
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.task_model import TaskModel
from bert_tf.files import locked, write_text
from bert_tf.finetuning.batches import num_steps, training_batches
from bert_tf.finetuning.evaluation import (
    DEV_PREDICTIONS,
    FinishedRun,
    Predictor,
    Scored,
    Scorer,
    summarize,
    write_scores,
)
from bert_tf.finetuning.head_start import fit_head
from bert_tf.finetuning.reasons import is_degenerate, likely_reasons
from bert_tf.finetuning.setup import (
    TrainingData,
    fingerprint,
    freeze,
    lr_multipliers,
    open_teacher,
)
from bert_tf.layers.initialization import assigned_later
from bert_tf.training.history import (
    LEARNING_CURVE,
    History,
    errors_become_warnings,
    write_numbers,
)
from bert_tf.training.loop import Phase, TrainingLoop
from bert_tf.training.run_folder import (
    LOCK_FILE,
    RunFolders,
)
from bert_tf.training.saved_states import BestWeights
from bert_tf.training.setup import check_batch_size, make_step
from bert_tf.training.step import TrainingStep
from bert_tf.training.strategies import cluster_of, needs_static_shapes

LAST = "last"


def train_once(
    data: TrainingData,
    recipe: FinetuningRecipe,
    run_dirs: RunFolders,
    strategy: tf.distribute.Strategy,
    claim_run: Callable[[], None],
) -> FinishedRun:
    """Trains with one seed, and resumes an interrupted run.

    Args:
      data: training data and initial weights.
      recipe: the settings, with the seed of this run.
      run_dirs: the run's folder, which becomes a model folder.
      strategy: the distribution strategy.
      claim_run: takes possession of the locked folder; see `claim`.

    Raises:
      UserError: settings do not fit each other or output_dir, or the loss or a
        gradient is not finite.
    """
    output_dir, task = run_dirs.own, data.task
    phase = _phase(data, recipe, strategy)
    keras.utils.set_random_seed(recipe.seed)
    with strategy.scope(), assigned_later():
        encoder = encoder_class(data.initial.config)(
            data.initial.config,
            dtype=recipe.precision,
            rematerialize=recipe.rematerialize,
            max_seq_length=data.config.max_seq_length,
        )
        model = task.build(
            encoder, data.config, unpadded=not needs_static_shapes(strategy)
        )
        model.restore(data.initial, data.fresh)
    with strategy.scope():
        if recipe.fits_head:
            fit_head(
                model,
                data.config.head,
                data.train.rows,
                data.objective,
                recipe.eval_batch_size,
                needs_static_shapes(strategy),
            )
        step = _step(data, recipe, model, phase, strategy)
    predictor = Predictor([model], strategy, recipe.eval_batch_size)
    scorer = Scorer(task, data.config, data.tokenizer, predictor)
    main = data.dev[data.main_split]
    # The latest evaluation of this process. Training ends with an evaluation,
    # often of the best weights, which is reused since long splits take minutes.
    newest: Scored | None = None

    def score_dev() -> dict[str, float]:
        nonlocal newest
        newest = scorer.score(main)
        loss = {} if newest.loss is None else {"loss": newest.loss}
        return loss | newest.scores

    best = BestWeights(
        step.variables,
        score_dev,
        task.main_metric,
        recipe.early_stopping,
        task.main_metric in task.lower_is_better,
    )
    output_dir.mkdir(parents=True, exist_ok=True)
    with locked(output_dir / LOCK_FILE, output_dir):
        claim_run()
        _announce(model, phase, data)
        rows = len(data.train.rows)
        loop = TrainingLoop(
            step,
            None,
            [phase],
            run_dirs,
            recipe,
            recipe.eval_steps or math.ceil(rows / phase.batch_size),
            contextlib.nullcontext,
            fingerprint(data, step.frozen),
            best,
        )
        history = loop.run()
        tune, last = task.tuner(recipe, main.examples), scorer
        if tune:
            answered = newest.answered if newest else scorer.predict(main)
            last = scorer.with_config(tune(answered))
        base = data.initial if recipe.lora_rank else None
        save_model(output_dir / LAST, model, data.tokenizer, last.config, base)
        best.assign()
        scored = {}
        for name, split in data.dev.items():
            known = newest if split is main and best.is_newest else None
            scored[name] = known or scorer.score(split)
        if tune:
            answered = scored[data.main_split].answered
            scorer = scorer.with_config(tune(answered))
            scored = {
                name: scorer.rescored(found) for name, found in scored.items()
            }
        save_model(output_dir, model, data.tokenizer, scorer.config, base)
        return _write_results(
            output_dir, recipe, data, scorer, scored, loop, history
        )


def _phase(
    data: TrainingData,
    recipe: FinetuningRecipe,
    strategy: tf.distribute.Strategy,
) -> Phase:
    """Returns all steps of the run as one phase."""
    size, slices = recipe.train_batch_size, recipe.num_slices
    check_batch_size("train_batch_size", size, strategy, slices)
    check_batch_size("eval_batch_size", recipe.eval_batch_size, strategy)
    rows = len(data.train.rows)
    steps = num_steps(rows, size, recipe.num_train_epochs)
    if not steps:
        raise UserError(
            f"num_train_epochs={recipe.num_train_epochs} of {rows} rows do "
            f"not fill one batch of train_batch_size={size}; choose a smaller "
            "batch or more epochs."
        )
    batches = functools.partial(
        training_batches,
        data.train.rows,
        size,
        recipe.seed,
        shard=cluster_of(strategy).shard,
        bucket_by_length=data.task.bucket_by_length,
        static_shapes=needs_static_shapes(strategy),
        values=data.task.distinct_values(data.train.rows, recipe),
    )
    return Phase(steps, size, batches, None)


def _step(
    data: TrainingData,
    recipe: FinetuningRecipe,
    model: TaskModel,
    phase: Phase,
    strategy: tf.distribute.Strategy,
) -> TrainingStep:
    # Frozen layers have no trainable variables from here on.
    config = data.initial.config
    reads_pooler = data.config.reads_pooler
    freeze(model.encoder, recipe.freeze_layers, reads_pooler)
    trained, objective = model, data.objective
    if recipe.teacher:
        # Imported only for runs with a teacher.
        from bert_tf.distiller import DistillationObjective, Distiller

        teacher = open_teacher(data, recipe, not needs_static_shapes(strategy))
        trained = Distiller(model, teacher, recipe, recipe.compares_layers)
        objective = DistillationObjective(objective, recipe)
    return make_step(
        recipe,
        trained,
        objective,
        strategy,
        phase.num_steps,
        trained.non_trainable_weights,
        lr_multipliers(
            model.encoder, trained.trainable_variables, recipe.layer_decay
        ),
        {"input_ids": config.vocab_size, "segment_ids": config.segment_limit},
        config.warmup_times_decay,
    )


def _announce(model: TaskModel, phase: Phase, data: TrainingData) -> None:
    config, rows = model.encoder.config, data.train.rows
    examples = len(data.train.examples)
    shown = f" in {len(rows):,} rows" if len(rows) != examples else ""
    parameters = f"{model.count_params():,} parameters"
    if config.lora_rank:
        trained = sum(math.prod(v.shape) for v in model.trainable_variables)
        parameters += f", {trained:,} of them trained"
    mean_length = np.mean(rows.lengths)
    print(
        f"{data.task.name}: {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, {parameters}; "
        f"{examples:,} examples{shown} of {mean_length:.0f} tokens on "
        f"average; {phase.num_steps:,} steps of {phase.batch_size}",
        flush=True,
    )


# The curves of at most this many scores are drawn.
_CURVES = 4


def _write_results(
    output_dir: pathlib.Path,
    recipe: FinetuningRecipe,
    data: TrainingData,
    scorer: Scorer,
    scored: Mapping[str, Scored],
    loop: TrainingLoop,
    history: History,
) -> FinishedRun:
    """Writes predictions and scores of the best model, and the curves.

    Args:
      output_dir: the folder of the run.
      recipe: the settings.
      data: the training data.
      scorer: scorer of the best model, with its final config.
      scored: split to its predictions and scores.
      loop: the finished loop.
      history: the logged numbers.
    """
    task, first = data.task, data.main_split
    for name, found in scored.items():
        write_scores(output_dir, name, found)
        shown = summarize(found.scores, task.lower_is_better)
        print(f"{task.name}, {name}: {shown}")
    lines = list(task.prediction_lines(scored[first].answered))
    text = "\n".join(map(json.dumps, lines))
    write_text(output_dir / DEV_PREDICTIONS, text + "\n")
    train = data.train.examples
    counts = {name: len(split.examples) for name, split in data.dev.items()}
    majority = {
        name: task.baseline(train, split.examples)
        for name, split in data.dev.items()
    }
    assert loop.best is not None
    _, speeds = history.series("sequences_per_second")
    results: dict[str, Any] = {
        "task": task.name,
        "model": recipe.init_from,
        "main_metric": task.main_metric,
        "labels": list(data.config.labels),
        "examples": {task.train_split: len(train)} | counts,
        "train_rows": len(data.train.rows),
        "dev": {name: found.scores for name, found in scored.items()},
        "dev_loss": {name: found.loss for name, found in scored.items()},
        "majority": majority,
        "paper": {name: dict(value) for name, value in task.paper.items()},
        "doctor": dict(data.doctor),
        "recipe": recipe.to_dict(),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(),
        "num_parameters": scorer.predictor.models[0].count_params(),
        "num_train_steps": loop.total,
        "best_step": loop.best.step,
        "stopped_early": loop.best.exhausted,
        # Measured since the last start of the run, without its first step.
        "examples_per_second": speeds[-1] if speeds else 0.0,
        "eval_examples_per_second": scored[first].examples_per_second,
        **scorer.config.summary(),
    }
    if task.lower_is_better:
        results["lower_is_better"] = list(task.lower_is_better)
    if is_degenerate(results):
        results["reasons"] = likely_reasons(results, history.rows, data.initial)
    write_numbers(output_dir / RESULTS_FILE, results)
    with errors_become_warnings("the learning curve", output_dir):
        # Imported here to keep the start of a run short.
        from bert_tf.report.figures import history_panels, write_learning_curve

        # Fonts have no lone surrogates, which encode names that are not UTF-8.
        model = pathlib.Path(recipe.init_from).name
        model = model.encode("utf-8", "backslashreplace").decode("utf-8")
        panels = history_panels(
            history.rows,
            ["loss", *[*scored[first].scores][:_CURVES]],
            {
                name: {"without a model": value}
                for name, value in majority[first].items()
                if math.isfinite(value)
            },
        )
        write_learning_curve(
            output_dir / LEARNING_CURVE, panels, f"{task.name} from {model}"
        )
    return FinishedRun(results, {"": history.rows}, lines)
