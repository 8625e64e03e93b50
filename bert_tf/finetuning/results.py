"""What a finished fine-tuning leaves in its folder beside the model."""

import datetime
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from bert_tf.families.model_folder import RESULTS_FILE
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.files import write_text
from bert_tf.finetuning.evaluation import (
    DEV_PREDICTIONS,
    Scored,
    Scorer,
    summarize,
    write_scores,
)
from bert_tf.finetuning.setup import TrainingData
from bert_tf.report.statistics import FinishedRun
from bert_tf.training.history import (
    LEARNING_CURVE,
    History,
    draw_curves,
    errors_become_warnings,
    write_numbers,
)
from bert_tf.training.loop import TrainingLoop

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
    task, first = data.task, data.main_split
    for name, found in scored.items():
        write_scores(output_dir, name, found, len(data.dev[name].examples))
        print(f"{task.name}, {name}: {summarize(found.scores)}")
    dev = data.dev[first].examples
    answers = scored[first].predictions
    lines = [*task.prediction_lines(dev, answers, scorer.config)]
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
        # Of the last start of the run, the first step left out.
        "examples_per_second": speeds[-1] if speeds else 0.0,
        "eval_examples_per_second": scored[first].examples_per_second,
        **scorer.config.summary(),
    }
    if task.lower_is_better:
        results["lower_is_better"] = list(task.lower_is_better)
    write_numbers(output_dir / RESULTS_FILE, results)
    with errors_become_warnings("the learning curve", output_dir):
        # No font has the lone surrogates of a name that is not UTF-8.
        model = pathlib.Path(recipe.init_from).name
        model = model.encode("utf-8", "backslashreplace").decode("utf-8")
        draw_curves(
            output_dir / LEARNING_CURVE,
            history,
            ["loss", *[*scored[first].scores][:_CURVES]],
            {
                name: {"without a model": value}
                for name, value in majority[first].items()
                if math.isfinite(value)
            },
            f"{task.name} from {model}",
        )
    return FinishedRun(results, recipe.to_dict(), {"": history.rows}, lines)
