"""Structured pruning of a fine-tuned model: fewer heads, narrower layers.

The least important heads and columns of each layer are removed from the
arrays. The result is an ordinary, smaller BERT, which can be trained further.
"""

import dataclasses
import pathlib
from typing import Any

import numpy as np

from bert_tf.checkpoints import load_checkpoint
from bert_tf.checkpoints.pruned import keep_parts, refuse_shared_blocks
from bert_tf.errors import UserError
from bert_tf.families.model_folder import build_model, read_config, save_model
from bert_tf.families.recipe import FinetuningRecipe, PruningSettings
from bert_tf.families.task import Split, TaskTemplate, score_scale
from bert_tf.files import new_folder
from bert_tf.finetuning.evaluation import Predictor, Scorer
from bert_tf.finetuning.importance import importances_of, most_important
from bert_tf.finetuning.measured import (
    Measured,
    bytes_of,
    rows_per_second,
    table,
    write_measured_page,
)
from bert_tf.finetuning.report_files import data_set_of
from bert_tf.sharing.model_card import CardScore, ModelCard
from bert_tf.training.history import (
    errors_become_warnings,
    finite_values,
    write_numbers,
)
from bert_tf.training.run_folder import RECIPE_FILE
from bert_tf.training.strategies import make_strategy

PRUNING_FILE = "pruning.json"


@dataclasses.dataclass(frozen=True)
class Pruning:
    """A finished pruning.

    Attributes:
      task: name of the task.
      split: name of the dev split.
      before: the original model.
      after: the pruned model.
    """

    task: str
    split: str
    before: Measured
    after: Measured

    def table(self) -> str:
        """Formats scores, speed and size before and after as a table."""
        return table(
            f"{self.task}, {self.split}",
            {"before": self.before, "after": self.after},
        )


def prune(
    template: TaskTemplate,
    recipe: FinetuningRecipe,
    folder: str | pathlib.Path,
    output_dir: str | pathlib.Path,
    settings: PruningSettings,
) -> Pruning:
    """Prunes a fine-tuned model, and scores it before and after.

    Args:
      template: the task of the model.
      recipe: the recipe of the fine-tuning, which names the data.
      folder: a folder of `run_finetuning`; an adapter (LoRA) is merged with
        its base.
      output_dir: a new or empty folder; becomes a model folder with
        pruning.json.
      settings: the shares to keep.

    Raises:
      UserError: settings, data and folders do not fit each other, or the model
        uses features of an encoder that was not fine-tuned.
    """
    task, output_dir = template.resolve(recipe), pathlib.Path(output_dir)
    with new_folder(output_dir) as beside:
        config = read_config(folder, task)
        whole = load_checkpoint(folder)
        refuse_shared_blocks(whole)
        num_heads = _number_kept(
            "keep_heads", settings.keep_heads, whole.config.num_attention_heads
        )
        num_columns = _number_kept(
            "keep_columns",
            settings.keep_columns,
            whole.config.intermediate_size,
        )
        # In float32, so that rounding does not affect the ranking.
        model = build_model(task, config, whole, "float32")
        if not model.in_checkpoint:
            raise UserError(
                f"{folder}: the model of {task.name} is no encoder that was "
                "trained with a head on it, so importances of its parts are "
                "not defined; prune a model with a head, such as that of "
                "conll2003."
            )
        tokenizer = whole.make_tokenizer()
        split, *_ = task.splits(task.dev_splits, recipe)
        train = task.load(task.train_split, recipe)
        dev = task.load(split, recipe)
        for examples in (train, dev):
            task.check(examples, config)
        importances = importances_of(
            model,
            task.loss(recipe, train, config),
            task.encode(train, tokenizer, config, labelled=True),
            settings.num_rows,
            recipe.seed,
        )
        heads = most_important(importances.heads, num_heads)
        columns = most_important(importances.columns, num_columns)
        cut = keep_parts(whole, heads, columns)
        models = [
            build_model(task, config, each, recipe.precision)
            for each in (whole, cut)
        ]
        answered = Split(dev, task.encode(dev, tokenizer, config))
        strategy = make_strategy("one_device")
        predictors = [
            Predictor([model], strategy, recipe.eval_batch_size)
            for model in models
        ]
        scorers = [Scorer(task, config, tokenizer, each) for each in predictors]
        scored = [scorer.score(answered) for scorer in scorers]
        tune = task.tuner(recipe, dev)
        if tune:
            # Values tuned for the whole model do not fit the pruned one.
            scorers[1] = scorers[1].with_config(tune(scored[1].answered))
            scored[1] = scorers[1].rescored(scored[1])
        save_model(beside, models[1], tokenizer, scorers[1].config)
        recipe.save(beside / RECIPE_FILE)
        speeds = rows_per_second(models, answered.rows, recipe.eval_batch_size)
        pruning = Pruning(
            task.name,
            split,
            *(
                Measured(
                    found.scores,
                    speed,
                    model.count_params(),
                    bytes_of(place),
                    costs=task.lower_is_better,
                )
                for found, speed, model, place in zip(
                    scored, speeds, models, (folder, beside), strict=True
                )
            ),
        )
        values = {
            "model": str(folder),
            **settings.to_dict(),
            **dataclasses.asdict(pruning),
            "heads": _described(importances.heads, heads),
            "columns": _described(importances.columns, columns),
        }
        write_numbers(beside / PRUNING_FILE, values)
    with errors_become_warnings("the page", output_dir):
        write_measured_page(
            output_dir / "pruning.html",
            f"Pruning, {task.name}, {split}",
            "The model before and after pruning",
            {"before": pruning.before, "after": pruning.after},
            task.main_metric,
        )
    with errors_become_warnings("the model card", output_dir):
        baseline = task.baseline(train, dev)
        scores = pruning.after.scores
        pairs = finite_values({n: (scores[n], baseline.get(n)) for n in scores})
        card = ModelCard(
            summary=f"{whole.config.title}, fine-tuned for {task.name} and "
            f"pruned to {num_heads} of {whole.config.num_attention_heads} "
            f"attention heads and {num_columns} of "
            f"{whole.config.intermediate_size} feed-forward columns",
            pipeline_tag=config.pipeline_tag,
            question=config.sample(),
            init_from=str(folder),
            data_set=data_set_of(task, recipe.to_dict()),
            num_rows={task.train_split: len(train), split: len(dev)},
            labels=config.labels,
            scores=[
                CardScore(
                    *(split, name, value, baseline),
                    scale=score_scale([value], name in task.lower_is_better),
                )
                for name, (value, baseline) in pairs.items()
            ],
            settings=settings.changed(),
            architecture=whole.config.model_type,
            tokenizer=tokenizer.vocabulary.description,
        )
        card.write(output_dir)
    return pruning


def _number_kept(argument: str, share: float, number: int) -> int:
    """Returns a share of a layer's parts, rounded to a whole number."""
    kept = int(share * number + 0.5)
    if not kept:
        raise UserError(
            f"`{argument}`={share}: leaves none of {number}; give "
            f"{1 / number:.3g} or more, which leaves one."
        )
    return kept


def _described(importances: np.ndarray, kept: np.ndarray) -> dict[str, Any]:
    """Returns importances in six digits and kept indices, for JSON."""
    return {
        "importances": [
            [float(f"{value:.6g}") for value in layer] for layer in importances
        ],
        "kept": kept.tolist(),
    }
