"""The settings of a fine-tuning, those of every task and of files of rows.

A recipe is composed of parts with the settings of one subject each. The
`recipe_type` of a task has exactly the settings that the task uses, so that all
others are refused.
"""

import dataclasses

from bert_tf.config import LORA_ON, BertConfig
from bert_tf.corpora.recipe import CorpusRecipe
from bert_tf.recipe import Settings, like, setting
from bert_tf.tables.table import FORMATS
from bert_tf.teacher_settings import TeacherSettings
from bert_tf.training.recipe import LARGEST_SEED, TrainingRecipe

EMPTY_TEXT = ("error", "keep", "drop")
BAD_ROWS = ("error", "skip")


# Devlin et al. 2019, appendix A.3; google-research/bert, run_classifier.py.
@dataclasses.dataclass(frozen=True)
class FinetuningRecipe(
    TeacherSettings,
    TrainingRecipe,
    defaults={"learning_rate": 5e-5, "keep_checkpoint_max": 2, "log_steps": 20},
):
    """The settings of every fine-tuning; recipe.json stores them."""

    task: str = setting(
        "", "a name in tasks/, or the path of a task file", may_be_code=True
    )
    data_dir: str = setting("", "folder of the task's files")
    encoding_errors: str = like(CorpusRecipe, "encoding_errors")
    max_seq_length: int = setting(128, "longest input in tokens", at_least=4)
    num_train_epochs: float = setting(
        3.0, "passes over the training examples", above=0
    )
    seeds: int = setting(
        1,
        "trainings, each with the next seed",
        at_least=1,
        at_most=lambda recipe: LARGEST_SEED + 1 - recipe.seed,
        why=f"the last one's seed is at most {LARGEST_SEED}",
    )
    layer_decay: float = setting(
        1.0,
        "factor of the learning rate from each layer to the one below it, "
        "the embeddings being the lowest",
        above=0,
        at_most=1,
    )
    freeze_layers: int = setting(
        -1,
        "number of the first layers that are not trained, nor the embeddings; "
        "0 = only the embeddings, -1 = all are trained",
        at_least=-1,
    )
    reset_head: bool = setting(
        False, "initializes a new head instead of loading init_from's"
    )
    bilstm: bool = setting(
        False,
        "adds a bidirectional LSTM between encoder and head; a model that has "
        "one keeps it",
    )
    lora_rank: int = setting(
        0,
        "LoRA: trains low-rank updates of this rank and the head, with frozen "
        "kernels; 8 is usual, at a learning rate of about 5e-4; 0 trains all "
        "weights",
        at_least=0,
        excludes="freeze_layers",
        why="LoRA freezes all layers",
    )
    lora_alpha: float = setting(
        BertConfig.lora_alpha,
        "LoRA: the updates are multiplied by lora_alpha / lora_rank",
        above=0,
        requires="lora_rank",
    )
    lora_on: str = setting(
        BertConfig.lora_on,
        f"LoRA: the kernels that are updated, {' or '.join(LORA_ON)}",
        choices=LORA_ON,
        requires="lora_rank",
    )
    early_stopping: int = setting(
        0,
        "evaluations without improvement after which training stops; 0 = never",
        at_least=0,
    )
    eval_steps: int = setting(
        0, "steps between evaluations; 0 = at the end of each epoch", at_least=0
    )
    ensemble: str = setting(
        "",
        "eval and predict: folders of more models of the task, "
        "comma-separated, whose logits are averaged with this one's",
    )

    @property
    def fits_head(self) -> bool:
        """Whether the head is first fitted with a frozen encoder."""
        return False


@dataclasses.dataclass(frozen=True)
class CalibrationRecipe(FinetuningRecipe):
    """Settings of tasks whose answers have probabilities."""

    calibrate: bool = setting(
        False,
        "divides logits by a temperature, fitted to the dev rows (50 or more) "
        "after the training, so that probabilities match the accuracy; the "
        "most probable answer stays the same",
    )


@dataclasses.dataclass(frozen=True)
class PruningSettings(Settings):
    """The settings of pruning a fine-tuned model."""

    keep_heads: float = setting(
        1.0,
        "share of each layer's attention heads to keep; 1 = all",
        above=0,
        at_most=1,
    )
    keep_columns: float = setting(
        1.0,
        "share of the columns of each feed-forward layer to keep; 1 = all",
        above=0,
        at_most=1,
    )
    num_rows: int = setting(
        1000,
        "rows of the training split that importance is measured on",
        at_least=1,
    )


@dataclasses.dataclass(frozen=True)
class TableRecipe(FinetuningRecipe):
    """Settings of tasks whose examples are rows of tables."""

    bad_rows: str = setting(
        "error",
        "malformed rows, for example with too few cells, bytes that are not "
        "UTF-8 or no label: error or skip; after a broken quote of a CSV file, "
        "reading resumes at the next row of the right width",
        choices=BAD_ROWS,
    )
    empty_text: str = setting(
        "error",
        f"rows with an empty text: {', '.join(EMPTY_TEXT)}",
        choices=EMPTY_TEXT,
    )


@dataclasses.dataclass(frozen=True)
class FilesRecipe(FinetuningRecipe):
    """Settings of tasks whose files the user names."""

    data_dir: str = like(
        FinetuningRecipe,
        "data_dir",
        help_text="folder that relative names of files refer to",
    )
    train_file: str = setting(
        "",
        f"file to train on: .{', .'.join(FORMATS)}, text also as .gz, .bz2 or "
        ".zst; several files or globs, comma-separated",
    )
    dev_file: str = setting(
        "", "file to evaluate on, likewise; empty splits it off train_file"
    )
    test_file: str = setting("", "file to predict, which needs no labels")


@dataclasses.dataclass(frozen=True)
class DevSplitRecipe(FilesRecipe):
    """Settings of tasks that may split dev off the training file."""

    dev_share: float = setting(
        0.1,
        "share of the training rows or sentences that becomes dev",
        above=0,
        below=1,
    )
    dev_seed: int = setting(
        12345,
        "seed of the split, independent of the training's seed",
        at_least=0,
        at_most=LARGEST_SEED,
    )


@dataclasses.dataclass(frozen=True)
class UserFilesRecipe(DevSplitRecipe, TableRecipe):
    """Settings of the format of a user's tables."""

    drop_duplicates: bool = setting(
        False,
        "drops rows of train_file that equal an earlier one, label included",
    )
    format: str = setting(
        "",
        f"{', '.join(FORMATS)}; empty derives it from the name",
        choices=("", *FORMATS),
    )
    header: bool = setting(
        True,
        "the first row names the columns; otherwise they are called 0, 1, ...",
    )
