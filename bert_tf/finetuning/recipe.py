"""The settings of a fine-tuning run."""

import dataclasses
import math

from bert_tf.errors import UserError
from bert_tf.files import ENCODING_ERRORS
from bert_tf.recipe import Settings, setting

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
LABEL_KINDS = ("classes", "regression", "multi_label")
FILE_FORMATS = ("tsv", "csv", "jsonl")
LONG_INPUTS = ("cut", "windows")
EMPTY_TEXT = ("error", "keep", "drop")
BAD_ROWS = ("error", "skip")


@dataclasses.dataclass(frozen=True)
class FinetuningRecipe(Settings):
    """What defines a fine-tuning run; recipe.json repeats it."""

    task: str = setting("", "a name in tasks/, or the path of a task file")
    data_dir: str = setting(
        "", "folder of the task's files; empty takes TensorFlow Datasets"
    )
    train_file: str = setting(
        "", "own file to train on: .csv, .tsv or .jsonl, or one of them .gz"
    )
    dev_file: str = setting(
        "", "own file to evaluate on; empty splits it off the training file"
    )
    test_file: str = setting("", "own file to predict; needs no labels")
    text_columns: str = setting(
        "", "own file: column of the text, or two of a pair, comma-separated"
    )
    label_column: str = setting("", "own file: column of the label")
    label_kind: str = setting(
        "classes", f"own file: one of {', '.join(LABEL_KINDS)}"
    )
    label_separator: str = setting(
        ",", "own file: what stands between several labels in a cell"
    )
    dev_share: float = setting(
        0.1, "own file: share of the training rows that becomes dev"
    )
    dev_seed: int = setting(
        12345, "own file: seed of that split, the same for all seeds"
    )
    format: str = setting(
        "", f"own file: {', '.join(FILE_FORMATS)}; empty goes by its name"
    )
    header: bool = setting(
        True,
        "own file: its first row names the columns; if not, they are "
        "called 0, 1, ...",
    )
    encoding_errors: str = setting(
        "strict", f"bytes that are not UTF-8: {' or '.join(ENCODING_ERRORS)}"
    )
    bad_rows: str = setting(
        "error", "rows with too few or too many cells: error or skip"
    )
    empty_text: str = setting(
        "error", f"rows with an empty text: {', '.join(EMPTY_TEXT)}"
    )
    init_from: str = setting("", "model folder, hf:// or keras_hub:// source")
    strategy: str = setting("one_device", "one_device or mirrored")
    precision: str = setting("float32", f"one of {', '.join(PRECISIONS)}")
    seed: int = setting(12345, "seed of the new head, dropout and order")
    seeds: int = setting(1, "trainings, each with the next seed")
    # Devlin et al. 2019, appendix A.3; google-research/bert, run_classifier.py.
    train_batch_size: int = setting(32, "examples in a step, over all devices")
    num_train_epochs: float = setting(3.0, "passes over the training examples")
    learning_rate: float = setting(5e-5, "peak learning rate")
    warmup_proportion: float = setting(
        0.1, "share of the steps in which the learning rate rises"
    )
    weight_decay_rate: float = setting(0.01, "decoupled weight decay")
    max_grad_norm: float = setting(
        1.0, "global norm that gradients are clipped to; 0 = no clipping"
    )
    gradient_accumulation_steps: int = setting(
        1, "slices a device's batch is cut into, to save memory"
    )
    max_seq_length: int = setting(128, "longest input in tokens")
    long_inputs: str = setting(
        "cut",
        "inputs above max_seq_length: cut, or read through overlapping "
        "windows whose logits are averaged",
    )
    doc_stride: int = setting(
        64, "tokens from the start of a window to that of the next"
    )
    threshold: float = setting(
        0.5, "several labels a row: probability above which a label holds"
    )
    eval_batch_size: int = setting(64, "examples in an evaluation batch")
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
    class_weights: str = setting(
        "",
        "weights of the classes in the loss: balanced, or a number for each "
        "label in order, comma-separated",
    )
    early_stopping: int = setting(
        0, "evaluations without a better one that end training; 0 = never"
    )
    eval_steps: int = setting(
        0, "steps between two evaluations; 0 = one at the end of each epoch"
    )
    save_checkpoints_steps: int = setting(
        1000, "steps between two training states on disk"
    )
    keep_checkpoint_max: int = setting(2, "training states kept")
    log_steps: int = setting(20, "steps that a row of numbers covers")

    # What may change between a run and the run that resumes it.
    MAY_CHANGE = frozenset(
        {
            "eval_batch_size",
            "save_checkpoints_steps",
            "keep_checkpoint_max",
        }
    )

    def __post_init__(self) -> None:
        self._check_data()
        self._check_training()

    def _check_data(self) -> None:
        """Raises `UserError` on a value that no reader knows."""
        for name, values in (
            ("label_kind", LABEL_KINDS),
            ("format", ("", *FILE_FORMATS)),
            ("encoding_errors", ENCODING_ERRORS),
            ("bad_rows", BAD_ROWS),
            ("empty_text", EMPTY_TEXT),
        ):
            known = ", ".join(value for value in values if value)
            good = getattr(self, name) in values
            self._check(name, good, f"one of {known}")
        good = self.label_separator != ""
        self._check("label_separator", good, "at least one character")
        self._check("dev_share", 0 < self.dev_share < 1, "above 0, below 1")
        self._check("dev_seed", 0 <= self.dev_seed < 2**32, "0 to 2**32 - 1")

    def _check_training(self) -> None:
        """Raises `UserError` on a value that training cannot use."""
        for name in (
            "seeds",
            "train_batch_size",
            "gradient_accumulation_steps",
            "eval_batch_size",
            "save_checkpoints_steps",
            "keep_checkpoint_max",
            "log_steps",
        ):
            self._check(name, getattr(self, name) >= 1, "1 or more")
        for name in ("learning_rate", "num_train_epochs"):
            value = getattr(self, name)
            self._check(name, 0 < value < math.inf, "more than 0")
        for name in (
            "weight_decay_rate",
            "max_grad_norm",
            "early_stopping",
            "eval_steps",
        ):
            self._check(name, getattr(self, name) >= 0, "0 or more")
        # Keras takes no seed above this.
        last = 2**32 - self.seeds
        self._check("seed", 0 <= self.seed <= last, f"0 to {last}")
        warmup = self.warmup_proportion
        self._check("warmup_proportion", 0 <= warmup < 1, "from 0 to 1")
        self._check(
            "layer_decay", 0 < self.layer_decay <= 1, "above 0 and up to 1"
        )
        self._check("freeze_layers", self.freeze_layers >= -1, "-1 or more")
        self._check("max_seq_length", self.max_seq_length >= 4, "4 or more")
        self._check("doc_stride", self.doc_stride >= 1, "1 or more")
        self._check("threshold", 0 < self.threshold < 1, "above 0, below 1")
        known = self.long_inputs in LONG_INPUTS
        self._check("long_inputs", known, f"one of {', '.join(LONG_INPUTS)}")
        known = self.precision in PRECISIONS
        self._check("precision", known, f"one of {', '.join(PRECISIONS)}")

    def _check(self, name: str, good: bool, wanted: str) -> None:
        if not good:
            raise UserError(
                f"{name} is {getattr(self, name)!r}; it takes {wanted}."
            )
