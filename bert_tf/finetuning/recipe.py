"""The settings that every fine-tuning has; kinds of tasks add their own.

A kind of task has a recipe of its own, a subclass that says what that kind
alone needs, and its tasks name it as their `recipe_type`. So a setting that a
task makes no use of is refused.
"""

import dataclasses
import math

from bert_tf.files import ENCODING_ERRORS
from bert_tf.recipe import setting
from bert_tf.training.recipe import LARGEST_SEED, TrainingRecipe

EMPTY_TEXT = ("error", "keep", "drop")
BAD_ROWS = ("error", "skip")


@dataclasses.dataclass(frozen=True)
class FinetuningRecipe(TrainingRecipe):
    """What defines a fine-tuning run; recipe.json repeats it."""

    task: str = setting("", "a name in tasks/, or the path of a task file")
    data_dir: str = setting(
        "", "folder of the task's files; empty takes TensorFlow Datasets"
    )
    encoding_errors: str = setting(
        "strict", f"bytes that are not UTF-8: {' or '.join(ENCODING_ERRORS)}"
    )
    max_seq_length: int = setting(128, "longest input in tokens")
    # Devlin et al. 2019, appendix A.3; google-research/bert, run_classifier.py.
    learning_rate: float = setting(5e-5, "peak learning rate")
    num_train_epochs: float = setting(3.0, "passes over the training examples")
    seeds: int = setting(1, "trainings, each with the next seed")
    layer_decay: float = setting(
        1.0,
        "factor of the learning rate from each layer to the one below it, "
        "the embeddings being the lowest",
    )
    freeze_layers: int = setting(
        -1,
        "layers, from the first, that stay as they are with the embeddings; "
        "0 = the embeddings alone, -1 = nothing",
    )
    early_stopping: int = setting(
        0, "evaluations without a better one that end training; 0 = never"
    )
    eval_steps: int = setting(
        0, "steps between two evaluations; 0 = one at the end of each epoch"
    )
    ensemble: str = setting(
        "",
        "eval and predict: folders of further models of the task, "
        "comma-separated, whose logits are averaged with this one's",
    )
    keep_checkpoint_max: int = setting(2, "training states kept")
    log_steps: int = setting(20, "steps that a row of numbers covers")

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.encoding_errors in ENCODING_ERRORS
        self._check("encoding_errors", known, ENCODING_ERRORS)
        self._check("max_seq_length", self.max_seq_length >= 4, "4 or more")
        good = 0 < self.num_train_epochs < math.inf
        self._check("num_train_epochs", good, "more than 0")
        self._check("seeds", self.seeds >= 1, "1 or more")
        last = LARGEST_SEED + 1 - self.seeds
        self._check("seed", self.seed <= last, f"0 to {last}")
        good = 0 < self.layer_decay <= 1
        self._check("layer_decay", good, "above 0 and up to 1")
        self._check("freeze_layers", self.freeze_layers >= -1, "-1 or more")
        for name in ("early_stopping", "eval_steps"):
            self._check(name, getattr(self, name) >= 0, "0 or more")


@dataclasses.dataclass(frozen=True)
class TableRecipe(FinetuningRecipe):
    """What tasks add whose examples are the rows of tables."""

    bad_rows: str = setting(
        "error", "rows with too few or too many cells: error or skip"
    )
    empty_text: str = setting(
        "error", f"rows with an empty text: {', '.join(EMPTY_TEXT)}"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("bad_rows", self.bad_rows in BAD_ROWS, BAD_ROWS)
        self._check("empty_text", self.empty_text in EMPTY_TEXT, EMPTY_TEXT)
