"""A fine-tuning, from a task and a recipe to a model folder and answers."""

import pathlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.finetuning.data.examples import Example, Predictions
from bert_tf.finetuning.kinds.own_file import OwnFileTask
from bert_tf.finetuning.kinds.sentence_recipe import SentenceRecipe
from bert_tf.finetuning.kinds.sentence_task import SentenceTask
from bert_tf.finetuning.model_folder import (
    TASK_FILE,
    TaskFacts,
    load_sentence_model,
)
from bert_tf.finetuning.prediction import Predictor
from bert_tf.finetuning.report.make import make_report
from bert_tf.finetuning.scoring import (
    Scorer,
    shown,
    write_scores,
)
from bert_tf.finetuning.seeds import train_seeds
from bert_tf.finetuning.setup import (
    Split,
    encode_examples,
    gather,
    look_over,
    open_initial,
)
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.training.strategies import make_strategy

MODES = ("train", "eval", "predict", "check")


def run_finetuning(
    task: SentenceTask | OwnFileTask,
    recipe: SentenceRecipe,
    output_dir: str | pathlib.Path,
    modes: Sequence[str],
    logical_cpus: int = 0,
) -> dict[str, Any]:
    """Fine-tunes a model on a task, scores it and answers the test rows.

    Args:
      task: the task.
      recipe: what to do, of the task's `recipe_type`.
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
    if type(recipe) is not task.recipe_type:
        raise UserError(
            f"{task.name}: takes a {task.recipe_type.__name__}, not a "
            f"{type(recipe).__name__}."
        )
    output_dir = pathlib.Path(output_dir)
    # First, since it may split the CPU, which TensorFlow allows only at start.
    strategy = make_strategy(recipe.strategy, logical_cpus)
    prepared = task.prepared(recipe)
    # Before hours of training, not after them.
    tests = _read(prepared, prepared.test_splits, recipe, "predict" in modes)
    done: dict[str, Any] = {}
    if "train" in modes:
        initial, tokenizer = open_initial(recipe)
        material = gather(prepared, recipe, initial, tokenizer)
        if "check" in modes:
            done["check"] = material.doctor
        done["train"] = train_seeds(material, recipe, output_dir, strategy)
        print(f"the report is {make_report(output_dir)}", flush=True)
    elif "check" in modes:
        _, tokenizer = open_initial(recipe)
        done["check"] = look_over(prepared, recipe, tokenizer).numbers
    if "eval" in modes or "predict" in modes:
        devs = _read(prepared, prepared.dev_splits, recipe, "eval" in modes)
        answer = _finished(prepared, recipe, output_dir, strategy)
        answer.check_texts([*devs.values(), *tests.values()])
        output_dir.mkdir(parents=True, exist_ok=True)
        if "eval" in modes:
            done["eval"] = {k: answer.evaluate(k, v) for k, v in devs.items()}
        if "predict" in modes:
            done["predict"] = {
                name: answer.predict(name, examples)
                for name, examples in tests.items()
            }
    return done


def _read(
    task: SentenceTask,
    splits: Sequence[str],
    recipe: SentenceRecipe,
    wanted: bool,
) -> dict[str, list[Example]]:
    """The examples of those splits that are there, where they are wanted."""
    names = task.present_splits(splits, recipe) if wanted else ()
    return {name: task.read(name, recipe) for name in names}


def _check_modes(modes: Sequence[str]) -> None:
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes:
        raise UserError(
            f"--mode={','.join(modes)}: takes one or more of "
            f"{', '.join(MODES)}, comma-separated."
        )


def _finished(
    task: SentenceTask,
    recipe: SentenceRecipe,
    output_dir: pathlib.Path,
    strategy: tf.distribute.Strategy,
) -> "_Answers":
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
    return _Answers(task, output_dir, scorer, tokenizer, facts)


class _Answers:
    """What a finished model answers, written into the folder of the run."""

    def __init__(
        self,
        task: SentenceTask,
        output_dir: pathlib.Path,
        scorer: Scorer,
        tokenizer: BertTokenizer,
        facts: TaskFacts,
    ):
        self.task = task
        self.output_dir = output_dir
        self.scorer = scorer
        self.tokenizer = tokenizer
        self.facts = facts

    def check_texts(self, splits: Sequence[Sequence[Example]]) -> None:
        """Refuses pairs for a model of single texts, and the reverse."""
        for examples in splits:
            count = 1 if examples[0].text_b is None else 2
            if count != self.facts.num_texts:
                raise UserError(
                    f"{examples[0].path}: rows of {count} text(s), but the "
                    f"model was fine-tuned on {self.facts.num_texts} "
                    f"(text_columns={self.facts.text_columns}); name as many "
                    "in text_columns."
                )

    def _split(self, examples: Sequence[Example]) -> Split:
        rows = encode_examples(examples, self.tokenizer, self.facts)
        return Split(examples, rows)

    def evaluate(
        self, name: str, examples: Sequence[Example]
    ) -> dict[str, float]:
        """Scores a dev split and writes the scores and the answers."""
        found = self.scorer.score(self._split(examples))
        write_scores(self.output_dir, name, found, len(examples))
        path = self._write(
            f"predictions_{name}.tsv", examples, found.predictions
        )
        print(f"{name}: {shown(found.scores)}; answers in {path}", flush=True)
        return found.scores

    def predict(self, name: str, examples: Sequence[Example]) -> pathlib.Path:
        """Answers a test split, in a file for GLUE too where it is one."""
        predictions = self.scorer.predict(self._split(examples))
        path = self._write(f"predictions_{name}.tsv", examples, predictions)
        if submission := self.task.submission_file(name):
            path = self._write(submission, examples, predictions)
        print(f"{name}: {len(examples):,} answers in {path}", flush=True)
        return path

    def _write(
        self, file: str, examples: Sequence[Example], predictions: Predictions
    ) -> pathlib.Path:
        path = self.output_dir / file
        self.task.write_predictions(path, examples, predictions)
        return path
