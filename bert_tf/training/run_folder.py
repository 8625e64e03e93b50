"""The folder of a run: which run it belongs to, and whether it may resume."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, Self

from bert_tf.errors import OtherRun, UserError
from bert_tf.files import remove_partials
from bert_tf.progress import log
from bert_tf.recipe import read_json_object
from bert_tf.training.cluster import Cluster
from bert_tf.training.recipe import TrainingRecipe

RECIPE_FILE = "recipe.json"
LOCK_FILE = ".lock"
CHECKPOINTS = "checkpoints"
MODELS = "models"
_KEPT_MODELS = f"{MODELS}/step-*"
_RESULTS_FILE = "results.json"
# Patterns of files that mark a folder without a recipe as in use.
_SIGNS_OF_WORK = (
    "bert_config.json",
    "bert_model.safetensors",
    "adapter_model.safetensors",
    "model.safetensors",
    "records.json",
    _RESULTS_FILE,
    "report.html",
    CHECKPOINTS,
    _KEPT_MODELS,
)
_SIGNS_OF_END = (_RESULTS_FILE, "bert_model.safetensors", "model.safetensors")
# Patterns of what else a fine-tuning writes that another one may not replace.
_OTHER_OUTPUTS = (
    *("last", "features", "tensorboard", "history.jsonl"),
    *("task.json", "labels.json", "adapter_config.json", "tagger.safetensors"),
    *("vocab.txt", "tokenizer.json", "tokenizer_config.json"),
    *("spiece.model", "sentencepiece.bpe.model", "report.json"),
    *("learning_curve.png", "eval_*.json", "predictions_*.t[sx][vt]"),
    *("dev_predictions.jsonl", "bad_batch_step_*.npz"),
    # Of sentence embeddings.
    *("config.json", "modules.json", "[1-9]_*", "hard_negatives-*.npy"),
    *("sentence_bert_config.json", "config_sentence_transformers.json"),
    # Of questions.
    *("*predictions.json", "*null_odds.json"),
)


@dataclasses.dataclass(frozen=True)
class RunFolders:
    """The folders that a worker writes to and reads from.

    Attributes:
      own: the folder that the worker writes to: the run's folder for the first
        worker, a temporary one for the others.
      shared: the run's folder, from which all workers read the states.
    """

    own: pathlib.Path
    shared: pathlib.Path

    def part(self, name: str) -> Self:
        """Returns the folders of a part of the run, in a subfolder."""
        return dataclasses.replace(
            self, own=self.own / name, shared=self.shared / name
        )


@contextlib.contextmanager
def folders_of(
    output_dir: str | pathlib.Path, cluster: Cluster
) -> Iterator[RunFolders]:
    """Yields the folders of this worker; all but the first print nothing."""
    shared = pathlib.Path(output_dir)
    if cluster.is_chief:
        yield RunFolders(shared, shared)
        return
    log(
        f"{cluster.name(cluster.index)} is connected; {cluster.name(0)} writes "
        "the files and prints the progress"
    )
    with (
        tempfile.TemporaryDirectory(prefix="bert_tf_") as folder,
        open(os.devnull, "w", encoding="utf-8") as devnull,
        contextlib.redirect_stdout(devnull),
    ):
        yield RunFolders(pathlib.Path(folder) / "run", shared)


def digest(value: object) -> str:
    """Returns the SHA-256 of a value as JSON."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def refuse_other_folders(
    output_dir: pathlib.Path,
    recipe: TrainingRecipe,
    overwrite: bool | None = None,
) -> None:
    """Raises `UserError` if a folder is in use, but not by this recipe's run.

    Args:
      output_dir: the folder of the run; it need not exist.
      recipe: the recipe; fields that may change may differ from those of the
        run so far.
      overwrite: whether `claim` replaces another fine-tuning; None where the
        caller has no such argument.
    """
    if output_dir.exists() and not output_dir.is_dir():
        raise UserError(
            f"`output_dir`={output_dir}: is a file; choose a folder."
        )
    if not (output_dir / RECIPE_FILE).exists():
        for pattern in _SIGNS_OF_WORK:
            path = next(output_dir.glob(pattern), None)
            if path is not None:
                raise UserError(
                    f"`output_dir`={output_dir}: holds a "
                    f"{path.relative_to(output_dir)} that no run of this "
                    "command wrote; choose another folder."
                )
    elif (output_dir / "records.json").exists():
        raise UserError(
            f"`output_dir`={output_dir}: is a folder of records; choose "
            "another one."
        )
    else:
        path, now = output_dir / RECIPE_FILE, recipe.to_dict()
        content = read_json_object(path)
        if overwrite and _is_finetuning(output_dir, content):
            _refuse_own_inputs(output_dir, recipe)
            return
        if set(content) - set(now):
            raise UserError(
                f"`output_dir`={output_dir}: holds a run of another command or "
                "kind of task; choose another folder."
            )
        if not has_trained(output_dir):
            return
        before = type(recipe).from_dict(content, str(path)).to_dict()
        different = [
            f"{f.name} was {before[f.name]!r} and is now {now[f.name]!r}"
            for f in dataclasses.fields(recipe)
            if before[f.name] != now[f.name]
            and not f.metadata["may_change"]
            and not (
                f.metadata["chosen_by_run"]
                and f.default in (before[f.name], now[f.name])
            )
        ]
        if different:
            advice = "choose another folder"
            if not any((output_dir / name).exists() for name in _SIGNS_OF_END):
                advice += ", or the same values to resume that run"
            if overwrite is not None:
                advice += ", or pass `overwrite`=True to replace it"
            raise OtherRun(
                f"`output_dir`={output_dir}: holds a run of another recipe "
                f"({'; '.join(different)}); {advice}."
            )


def _is_finetuning(
    output_dir: pathlib.Path, content: Mapping[str, Any]
) -> bool:
    """Returns whether a folder with a recipe is that of a fine-tuning."""
    signs = (_RESULTS_FILE, CHECKPOINTS, f"seed_*/{CHECKPOINTS}")
    return "task" in content and any(
        any(output_dir.glob(sign)) for sign in signs
    )


def _outputs(output_dir: pathlib.Path) -> list[pathlib.Path]:
    """Returns what a fine-tuning wrote, without its recipe and model card."""
    parts = list(output_dir.glob("seed_[0-9]*"))
    return [
        path
        for folder in (output_dir, *parts)
        for pattern in (*_SIGNS_OF_WORK, *_OTHER_OUTPUTS)
        for path in folder.glob(pattern)
    ] + [path for part in parts for path in part.glob(RECIPE_FILE)]


def _refuse_own_inputs(
    output_dir: pathlib.Path, recipe: TrainingRecipe
) -> None:
    """Raises `UserError` if a recipe reads what `claim` would remove."""
    folder = output_dir.absolute()
    removed = [path.absolute() for path in _outputs(output_dir)]
    for name, value in recipe.to_dict().items():
        for part in filter(None, str(value).split(",")):
            path = pathlib.Path(part.strip()).absolute()
            if path == folder or any(map(path.is_relative_to, removed)):
                raise UserError(
                    f"`{name}`={value}: `overwrite` would remove it; choose "
                    "another `output_dir`."
                )


def has_trained(output_dir: pathlib.Path) -> bool:
    """Returns whether a state after step 0 was saved."""
    states = (output_dir / CHECKPOINTS).glob("step-*")
    return any(int(path.name.removeprefix("step-")) for path in states)


def claim(
    output_dir: pathlib.Path,
    recipe: TrainingRecipe,
    overwrite: bool | None = None,
) -> None:
    """Writes the recipe, replacing a run that saved no step.

    Partial files of killed runs are removed.

    Args:
      output_dir: the folder of the run, which is locked.
      recipe: the recipe of the run.
      overwrite: whether to replace any fine-tuning; other files are kept.
    """
    refuse_other_folders(output_dir, recipe, overwrite)
    remove_partials(output_dir)
    path = output_dir / RECIPE_FILE
    if overwrite and path.exists():
        for each in _outputs(output_dir):
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()
    if path.exists() and not has_trained(output_dir):
        models = output_dir.glob(_KEPT_MODELS)
        for folder in (output_dir / CHECKPOINTS, *models):
            shutil.rmtree(folder, ignore_errors=True)
    recipe.save(path)
