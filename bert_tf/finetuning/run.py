"""A fine-tuning, from a task and a recipe to a model folder and answers."""

import pathlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.finetuning.doctor import data_doctor
from bert_tf.finetuning.kinds.own_file import OwnFileTask
from bert_tf.finetuning.kinds.sentence_task import SentenceTask
from bert_tf.finetuning.model_folder import (
    TASK_FILE,
    TaskFacts,
    load_sentence_model,
)
from bert_tf.finetuning.prediction import Predictor
from bert_tf.finetuning.recipe import FinetuningRecipe
from bert_tf.finetuning.report.make import make_report
from bert_tf.finetuning.scoring import (
    Scored,
    Scorer,
    shown,
    write_scores,
)
from bert_tf.finetuning.seeds import train_seeds
from bert_tf.finetuning.setup import (
    Split,
    encode_examples,
    gather,
    open_initial,
)
from bert_tf.training.strategies import make_strategy

MODES = ("train", "eval", "predict", "check")


def run_finetuning(
    task: SentenceTask | OwnFileTask,
    recipe: FinetuningRecipe,
    output_dir: str | pathlib.Path,
    modes: Sequence[str],
    logical_cpus: int = 0,
) -> dict[str, Any]:
    """Fine-tunes a model on a task, scores it and answers the test rows.

    Args:
      task: the task.
      recipe: what to do.
      output_dir: becomes a model folder, with the run's states and numbers.
      modes: some of train, eval, predict and check (look at the data only).
      logical_cpus: see `make_strategy`.

    Returns:
      By mode: what results.json holds; split to scores; split to the path of
      the answers; the data doctor's numbers.

    Raises:
      UserError: settings, data, model and output_dir that do not fit each
        other, or a step that was not finite.
    """
    _check_modes(modes)
    output_dir = pathlib.Path(output_dir)
    # First, since it may split the CPU, which TensorFlow allows only at start.
    strategy = make_strategy(recipe.strategy, logical_cpus)
    prepared = task.prepared(recipe)
    done: dict[str, Any] = {}
    if "check" in modes:
        _, tokenizer = open_initial(recipe)
        numbers = data_doctor.check(prepared, recipe, tokenizer)
        print(data_doctor.lines(numbers), flush=True)
        done["check"] = numbers
    if "train" in modes:
        initial, tokenizer = open_initial(recipe)
        material = gather(prepared, recipe, initial, tokenizer)
        done["train"] = train_seeds(material, recipe, output_dir, strategy)
        print(f"the report is {make_report(output_dir)}", flush=True)
    if "eval" in modes or "predict" in modes:
        scorer, tokenizer, facts = _finished(
            prepared, recipe, output_dir, strategy
        )
        output_dir.mkdir(parents=True, exist_ok=True)
        answer = _Answers(prepared, recipe, output_dir, scorer)
        if "eval" in modes:
            done["eval"] = answer.evaluate(tokenizer, facts)
        if "predict" in modes:
            done["predict"] = answer.predict(tokenizer, facts)
    return done


def _check_modes(modes: Sequence[str]) -> None:
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes:
        raise UserError(
            f"--mode={','.join(modes)}: takes one or more of "
            f"{', '.join(MODES)}, comma-separated."
        )


def _finished(
    task: SentenceTask,
    recipe: FinetuningRecipe,
    output_dir: pathlib.Path,
    strategy: tf.distribute.Strategy,
) -> tuple[Scorer, Any, TaskFacts]:
    """The model of output_dir, or the one that init_from names."""
    folder = output_dir
    if not (folder / TASK_FILE).is_file() and recipe.init_from:
        folder = pathlib.Path(recipe.init_from)
    if not (folder / TASK_FILE).is_file():
        raise UserError(
            f"--output_dir={output_dir}: holds no fine-tuned model "
            f"({TASK_FILE}); add train to --mode, or give one as --init_from."
        )
    with strategy.scope():
        model, tokenizer, facts = load_sentence_model(folder, recipe.precision)
    theirs = (facts.task, facts.label_kind)
    if theirs != (task.name, task.label_kind):
        raise UserError(
            f"{folder}: was fine-tuned for {' of '.join(theirs[::-1])}, not "
            f"{task.label_kind} of {task.name}; give that task as --task."
        )
    predictor = Predictor(model, strategy, recipe.eval_batch_size)
    scorer = Scorer(
        task,
        facts.labels,
        task.make_objective(None),
        predictor,
        facts.threshold,
    )
    return scorer, tokenizer, facts


class _Answers:
    """What a finished model answers, written into the folder of the run."""

    def __init__(
        self,
        task: SentenceTask,
        recipe: FinetuningRecipe,
        output_dir: pathlib.Path,
        scorer: Scorer,
    ):
        self.task = task
        self.recipe = recipe
        self.output_dir = output_dir
        self.scorer = scorer

    def _read(self, name: str, tokenizer: Any, facts: TaskFacts) -> Split:
        examples = self.task.read(name, self.recipe)
        return Split(examples, encode_examples(examples, tokenizer, facts))

    def evaluate(
        self, tokenizer: Any, facts: TaskFacts
    ) -> dict[str, dict[str, float]]:
        """Scores every dev split that is there."""
        found: dict[str, Scored] = {}
        names = self.task.present_splits(self.task.dev_splits, self.recipe)
        for name in names:
            split = self._read(name, tokenizer, facts)
            found[name] = self.scorer.score(split)
            count = len(split.examples)
            write_scores(self.output_dir, name, found[name], count)
            print(f"{name}: {shown(found[name].scores)}", flush=True)
        return {name: scored.scores for name, scored in found.items()}

    def predict(
        self, tokenizer: Any, facts: TaskFacts
    ) -> dict[str, pathlib.Path]:
        """Answers every test split that is there."""
        paths = {}
        names = self.task.present_splits(self.task.test_splits, self.recipe)
        for name in names:
            split = self._read(name, tokenizer, facts)
            predictions = self.scorer.predict(split)
            files = [f"predictions_{name}.tsv"]
            if submission := self.task.submission_file(name):
                files.append(submission)
            for file in files:
                path = self.output_dir / file
                self.task.write_predictions(path, split.examples, predictions)
            paths[name] = path
            count = len(split.examples)
            print(f"{name}: {count:,} answers in {path}", flush=True)
        return paths
