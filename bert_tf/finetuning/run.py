"""A fine-tuning, from a task and a recipe to a model folder and predictions."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints import Checkpoint, load_checkpoint
from bert_tf.errors import UserError
from bert_tf.finetuning.evaluation import (
    Predictor,
    Scorer,
    summarize,
    write_scores,
)
from bert_tf.finetuning.model_folder import TASK_FILE, load_model
from bert_tf.finetuning.recipe import FinetuningRecipe
from bert_tf.finetuning.report.make import write_report
from bert_tf.finetuning.seeds import train_seeds
from bert_tf.finetuning.setup import (
    load_and_check,
    open_initial,
    prepare_training,
)
from bert_tf.finetuning.task import Split, Task, TaskTemplate
from bert_tf.finetuning.task_model import TaskModel
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.training.cluster import DEFAULT_DEVICES, Devices
from bert_tf.training.history import errors_become_warnings
from bert_tf.training.run_folder import RunFolders, folders_of
from bert_tf.training.strategies import (
    check_agreement,
    cluster_of,
    gather_numbers,
    make_strategy,
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
    _check_modes(modes)
    if type(recipe) is not task.recipe_type:
        raise UserError(
            f"{task.name}: takes a {task.recipe_type.__name__}, not a "
            f"{type(recipe).__name__}."
        )
    if recipe.strategy == "tpu":
        raise UserError(
            "`strategy`=tpu: fine-tuning computes on batches of different "
            "lengths, which TPUs cannot; choose one_device, mirrored or "
            "multi_worker (pre-training runs on TPUs)."
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
    # Before hours of training, not after them.
    tests = _load(prepared, prepared.test_splits, recipe, "predict" in modes)
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
        with errors_become_warnings("the report", output_dir):
            page = write_report(trained, output_dir)
            print(f"the report is {page}", flush=True)
    elif "check" in modes:
        _, tokenizer = open_initial(recipe)
        done["check"] = load_and_check(prepared, recipe, tokenizer).numbers
    if "eval" in modes or "predict" in modes:
        devs = _load(prepared, prepared.dev_splits, recipe, "eval" in modes)
        finished = _load_finished(prepared, recipe, run_dirs, strategy)
        for examples in [*devs.values(), *tests.values()]:
            prepared.check(examples, finished.config)
        output_dir.mkdir(parents=True, exist_ok=True)
        if "eval" in modes:
            done["eval"] = {k: finished.evaluate(k, v) for k, v in devs.items()}
        if "predict" in modes:
            done["predict"] = {
                name: finished.predict(name, examples)
                for name, examples in tests.items()
            }
    return done


def _load(
    task: Task,
    splits: Sequence[str],
    recipe: FinetuningRecipe,
    needed: bool,
) -> dict[str, Any]:
    """The examples of those splits that are there, where they are needed."""
    names = task.splits(splits, recipe) if needed else ()
    return {name: task.load(name, recipe) for name in names}


def _check_modes(modes: Sequence[str]) -> None:
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes:
        raise UserError(
            f"`modes`={','.join(modes)}: takes one or more of "
            f"{', '.join(MODES)}, comma-separated."
        )


def _load_finished(
    task: Task,
    recipe: FinetuningRecipe,
    run_dirs: RunFolders,
    strategy: tf.distribute.Strategy,
) -> "_FinishedModel":
    """The model of output_dir, or the one that init_from names."""
    candidates = [run_dirs.own, run_dirs.shared]
    if recipe.init_from:
        candidates.append(pathlib.Path(recipe.init_from))
    for folder in candidates:
        if (folder / TASK_FILE).is_file():
            break
    else:
        raise UserError(
            f"`output_dir`={run_dirs.shared}: holds no fine-tuned model "
            f"({TASK_FILE}); add train to `modes`, or give one as `init_from`."
        )
    with strategy.scope():
        model, tokenizer, config = load_model(folder, task, recipe.precision)
        others = [
            _other(other.strip(), folder, task, recipe, tokenizer, config)
            for other in recipe.ensemble.split(",")
            if other.strip()
        ]
    predictor = Predictor([model, *others], strategy, recipe.eval_batch_size)
    scorer = Scorer(task, config, tokenizer, predictor)
    return _FinishedModel(run_dirs.own, scorer, load_checkpoint(folder), recipe)


def _other(
    folder: str,
    first: pathlib.Path,
    task: Task,
    recipe: FinetuningRecipe,
    tokenizer: BertTokenizer,
    config: Any,
) -> TaskModel:
    """A further model, whose outputs are averaged with those of the first."""
    model, theirs, their_config = load_model(folder, task, recipe.precision)
    if (theirs.vocabulary, theirs.config) != (
        tokenizer.vocabulary,
        tokenizer.config,
    ):
        raise UserError(
            f"`ensemble`={recipe.ensemble}: {folder} has another "
            f"vocabulary than {first}; only models of one vocabulary can be "
            "averaged."
        )
    if config != their_config:
        raise UserError(
            f"`ensemble`={recipe.ensemble}: {folder} was trained with "
            f"other labels or lengths than {first} (see their {TASK_FILE}); "
            "only models that are alike in them can be averaged."
        )
    return model


@dataclasses.dataclass(frozen=True)
class _FinishedModel:
    """What finished models answer, written into the folder of the run."""

    output_dir: pathlib.Path
    scorer: Scorer
    source: Checkpoint
    recipe: FinetuningRecipe

    @property
    def config(self) -> Any:
        return self.scorer.config

    def _split(self, name: str, examples: Any) -> Split:
        task, tokenizer = self.scorer.task, self.scorer.tokenizer
        rows = task.encode(examples, tokenizer, self.config)
        rows = task.featurize(
            rows, name, self.source, self.config, self.recipe, self.output_dir
        )
        return Split(examples, rows)

    def evaluate(self, name: str, examples: Any) -> dict[str, float]:
        """Scores a dev split and writes the scores and the predictions."""
        found = self.scorer.score(self._split(name, examples))
        write_scores(self.output_dir, name, found, len(examples))
        path = self._write(name, examples, found.predictions)
        print(
            f"{name}: {summarize(found.scores)}; answers in {path}",
            flush=True,
        )
        return found.scores

    def predict(self, name: str, examples: Any) -> pathlib.Path:
        """Answers a test split."""
        predictions = self.scorer.predict(self._split(name, examples))
        path = self._write(name, examples, predictions)
        print(f"{name}: {len(examples):,} answers in {path}", flush=True)
        return path

    def _write(
        self, name: str, examples: Any, predictions: Any
    ) -> pathlib.Path:
        return self.scorer.task.write_predictions(
            self.output_dir, name, examples, predictions, self.config
        )
