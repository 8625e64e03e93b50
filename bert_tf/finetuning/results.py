"""What a finished fine-tuning leaves in its folder beside the model."""

import datetime
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from bert_tf.files import write_text
from bert_tf.finetuning.evaluation import (
    DEV_PREDICTIONS,
    Scored,
    Scorer,
    summarize,
    write_scores,
)
from bert_tf.finetuning.recipe import FinetuningRecipe
from bert_tf.finetuning.report.statistics import FinishedRun
from bert_tf.finetuning.setup import TrainingData
from bert_tf.training.history import (
    LEARNING_CURVE,
    History,
    draw_curves,
    errors_become_warnings,
    write_numbers,
)
from bert_tf.training.loop import TrainingLoop

RESULTS_FILE = "results.json"
# Scores of which a curve is drawn.
_CURVES = 4


def write_results(
    output_dir: pathlib.Path,
    recipe: FinetuningRecipe,
    data: TrainingData,
    scorer: Scorer,
    scored: Mapping[str, Scored],
    loop: TrainingLoop,
    history: History,
) -> FinishedRun:
    """Writes what the best model answers and scores.

    Args:
      output_dir: the folder of the run.
      recipe: what was run.
      data: what was trained on.
      scorer: of the best model, with its final config.
      scored: split to what it predicts and scores.
      loop: the finished loop.
      history: the run's numbers.

    Returns:
      What is written, for the report.
    """
    for name, found in scored.items():
        count = len(data.dev[name].examples)
        write_scores(output_dir, name, found, count)
        print(f"{data.task.name}, {name}: {summarize(found.scores)}")
    first = data.main_split
    dev, found = data.dev[first], scored[first]
    lines = [
        *data.task.prediction_lines(
            dev.examples, found.predictions, scorer.config
        )
    ]
    text = "\n".join(map(json.dumps, lines))
    write_text(output_dir / DEV_PREDICTIONS, text + "\n")
    results = common_results(recipe, data, scored)
    results |= _run_numbers(recipe, data, scored[first], loop, history)
    results |= scorer.config.summary()
    write_numbers(output_dir / RESULTS_FILE, results)
    with errors_become_warnings("the learning curve", output_dir):
        _draw(output_dir, data, results, history)
    return FinishedRun(results, recipe.to_dict(), {"": history.rows}, lines)


def common_results(
    recipe: FinetuningRecipe,
    data: TrainingData,
    scored: Mapping[str, Scored],
) -> dict[str, Any]:
    """What the task, the data and the scores are."""
    task = data.task
    train = data.train.examples
    majority = {
        name: task.baseline(train, split.examples)
        for name, split in data.dev.items()
    }
    examples = {task.train_split: len(train)}
    examples |= {name: len(s.examples) for name, s in data.dev.items()}
    return {
        "task": task.name,
        "model": recipe.init_from,
        "main_metric": task.main_metric,
        "labels": list(data.config.labels),
        "examples": examples,
        "train_rows": len(data.train.rows),
        "dev": {name: found.scores for name, found in scored.items()},
        "dev_loss": {name: found.loss for name, found in scored.items()},
        "majority": majority,
        "paper": {name: dict(value) for name, value in task.paper.items()},
        "doctor": dict(data.doctor),
        "recipe": recipe.to_dict(),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(),
    }


def _run_numbers(
    recipe: FinetuningRecipe,
    data: TrainingData,
    scored: Scored,
    loop: TrainingLoop,
    history: History,
) -> dict[str, Any]:
    assert loop.best is not None
    _, speeds = history.series("sequences_per_second")
    return {
        "num_parameters": loop.step.model.count_params(),
        "num_train_steps": loop.total,
        "best_step": loop.best.step,
        "stopped_early": loop.best.exhausted,
        # Of the last start of the run, the first step left out.
        "examples_per_second": speeds[-1] if speeds else 0.0,
        "eval_examples_per_second": scored.examples_per_second,
    }


def _draw(
    output_dir: pathlib.Path,
    data: TrainingData,
    results: Mapping[str, Any],
    history: History,
) -> None:
    first = data.main_split
    levels = {
        name: {"without a model": value}
        for name, value in results["majority"][first].items()
        if math.isfinite(value)
    }
    # No font has the lone surrogates of a name that is not UTF-8.
    name = pathlib.Path(results["model"]).name
    name = name.encode("utf-8", "backslashreplace").decode("utf-8")
    draw_curves(
        output_dir / LEARNING_CURVE,
        history,
        ["loss", *[*results["dev"][first]][:_CURVES]],
        levels,
        f"{data.task.name} from {name}",
    )
