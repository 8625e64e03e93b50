"""The settings of a fine-tuning: those of every task, and of each family.

A recipe is composed of parts, each with the settings of one subject, and a
task names the part that has all of its settings as its `recipe_type`. So a
setting that a task makes no use of is refused.
"""

import dataclasses

from bert_tf.config import LORA_ON, BertConfig
from bert_tf.families.data.tables import FORMATS
from bert_tf.files import ENCODING_ERRORS
from bert_tf.recipe import Settings, like, setting
from bert_tf.teacher_settings import TeacherSettings
from bert_tf.training.recipe import LARGEST_SEED, TrainingRecipe

EMPTY_TEXT = ("error", "keep", "drop")
BAD_ROWS = ("error", "skip")
LONG_INPUTS = ("cut", "windows")
LABEL_KINDS = ("classes", "regression", "multi_label")
LABEL_FORMS = ("number", "number_from_1", "letter", "text")
# What a row on words shows, and what a document is without marks.
CONTEXTS = ("document", "sentence")
UNMARKED = ("sentences", "file")
# Of a choice: [CLS], two [SEP] and a token of either text.
SHORTEST_CHOICE = 5
# Where the tagger is kept, in the folder of a model.
TAGGER_FILE = "tagger.safetensors"
# Devlin et al. 2019, table 7, in its order.
EMBEDDINGS, SECOND_TO_LAST, LAST = "embeddings", "second_to_last", "last"
WEIGHTED_SUM_LAST_FOUR = "weighted_sum_last_four"
CONCAT_LAST_FOUR = "concat_last_four"
WEIGHTED_SUM_ALL = "weighted_sum_all"
FEATURES = (
    EMBEDDINGS,
    SECOND_TO_LAST,
    LAST,
    WEIGHTED_SUM_LAST_FOUR,
    CONCAT_LAST_FOUR,
    WEIGHTED_SUM_ALL,
)


# Devlin et al. 2019, appendix A.3; google-research/bert, run_classifier.py.
@dataclasses.dataclass(frozen=True)
class FinetuningRecipe(
    TeacherSettings,
    TrainingRecipe,
    defaults={
        "learning_rate": 5e-5,
        "keep_checkpoint_max": 2,
        "log_steps": 20,
    },
):
    """What defines a fine-tuning run; recipe.json repeats it."""

    task: str = setting(
        "",
        "a name in tasks/, or the path of a task file",
        may_be_code=True,
    )
    data_dir: str = setting(
        "",
        "folder of the task's files, in which the names of own files begin; "
        "without it, GLUE's are read from TensorFlow Datasets",
    )
    encoding_errors: str = setting(
        "strict",
        f"bytes that are not UTF-8: {' or '.join(ENCODING_ERRORS)}",
        choices=ENCODING_ERRORS,
    )
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
        "layers, from the first, that stay as they are with the embeddings; "
        "0 = the embeddings alone, -1 = nothing",
        at_least=-1,
    )
    reset_head: bool = setting(False, "trains a new head, not init_from's")
    bilstm: bool = setting(
        False,
        "puts a new bidirectional LSTM on top of the encoder, below the head; "
        "a model that has one already keeps it in any case",
    )
    lora_rank: int = setting(
        0,
        "LoRA: trains low-rank updates of this rank in place of the kernels, "
        "and the head; 8 is usual, at a learning rate of about 5e-4; 0 trains "
        "all weights",
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
        f"LoRA: the kernels that have updates, {' or '.join(LORA_ON)}",
        choices=LORA_ON,
        requires="lora_rank",
    )
    early_stopping: int = setting(
        0,
        "evaluations without a better one that end training; 0 = never",
        at_least=0,
    )
    eval_steps: int = setting(
        0,
        "steps between two evaluations; 0 = one at the end of each epoch",
        at_least=0,
    )
    ensemble: str = setting(
        "",
        "eval and predict: folders of further models of the task, "
        "comma-separated, whose logits are averaged with this one's",
    )


@dataclasses.dataclass(frozen=True)
class PruningSettings(Settings):
    """What is left of a fine-tuned model, and how that is chosen."""

    keep_heads: float = setting(
        1.0,
        "share of each layer's attention heads that stays; 1 = all",
        above=0,
        at_most=1,
    )
    keep_columns: float = setting(
        1.0,
        "share of the columns of each feed-forward layer that stays; 1 = all",
        above=0,
        at_most=1,
    )
    num_rows: int = setting(
        1000,
        "rows of the training split by which importance is measured",
        at_least=1,
    )


@dataclasses.dataclass(frozen=True)
class TableRecipe(FinetuningRecipe):
    """What tasks add whose examples are the rows of tables."""

    bad_rows: str = setting(
        "error",
        "rows that cannot be used, such as those with too few cells, bytes "
        "that are not UTF-8 or no label: error or skip; behind a broken quote "
        "of a CSV file, reading goes on at the next row of the right width",
        choices=BAD_ROWS,
    )
    empty_text: str = setting(
        "error",
        f"rows with an empty text: {', '.join(EMPTY_TEXT)}",
        choices=EMPTY_TEXT,
    )


@dataclasses.dataclass(frozen=True)
class SentenceRecipe(TableRecipe):
    """What tasks on a sentence or a pair add."""

    long_inputs: str = setting(
        "cut",
        "inputs above max_seq_length: cut, or read through overlapping "
        "windows whose logits are averaged",
        choices=LONG_INPUTS,
    )
    doc_stride: int = setting(
        64, "tokens from the start of a window to that of the next", at_least=1
    )
    class_weights: str = setting(
        "",
        "weights of the classes in the loss: balanced, or a number for each "
        "label in order, comma-separated",
    )


@dataclasses.dataclass(frozen=True)
class MultiLabelRecipe(SentenceRecipe):
    """What tasks with several labels at once add."""

    threshold: float = setting(
        0.5,
        "several labels a row: probability above which a label holds",
        above=0,
        below=1,
        requires="label_kind=multi_label",
    )


@dataclasses.dataclass(frozen=True)
class FilesRecipe(FinetuningRecipe):
    """What tasks add whose files have other names each time."""

    train_file: str = setting(
        "",
        f"file to train on: .{', .'.join(FORMATS)}; of questions .json too, "
        "laid out as SQuAD's or as a list of questions; of tags a word and its "
        "tag a line; or one of them .gz; empty is SQuAD's official name",
    )
    dev_file: str = setting(
        "",
        "file to evaluate on, likewise; empty splits it off train_file, and "
        "is SQuAD's official name",
    )
    test_file: str = setting(
        "",
        "file to predict; needs no labels, unless score_test is set; empty is "
        "the dev file of SQuAD",
    )


@dataclasses.dataclass(frozen=True)
class DevSplitRecipe(FilesRecipe):
    """What tasks add that split a dev file off."""

    dev_share: float = setting(
        0.1,
        "share of the training rows or sentences that becomes dev",
        above=0,
        below=1,
    )
    dev_seed: int = setting(
        12345,
        "seed of that split, the same for all seeds",
        at_least=0,
        at_most=LARGEST_SEED,
    )


@dataclasses.dataclass(frozen=True)
class UserFilesRecipe(DevSplitRecipe, TableRecipe):
    """What tasks on own tables add: how to read them."""

    drop_duplicates: bool = setting(
        False,
        "drops rows of train_file that are the same as an earlier one, label "
        "included",
    )
    format: str = setting(
        "",
        f"{', '.join(FORMATS)}; empty goes by the name",
        choices=("", *FORMATS),
    )
    header: bool = setting(
        True,
        "the first row names the columns; if not, they are called 0, 1, ...",
    )


@dataclasses.dataclass(frozen=True)
class UserTableRecipe(UserFilesRecipe, MultiLabelRecipe):
    """What a task on own files of texts adds: columns and kind of label."""

    text_columns: str = setting(
        "", "column of the text, or two of a pair, comma-separated"
    )
    label_column: str = setting("", "column of the label")
    label_kind: str = setting("classes", choices=LABEL_KINDS)
    label_separator: str = setting(
        ",",
        "several labels a row: what stands between them in a cell",
        not_empty=True,
        requires="label_kind=multi_label",
    )


@dataclasses.dataclass(frozen=True)
class ChoiceRecipe(UserFilesRecipe):
    """The settings of tasks on choices."""

    max_seq_length: int = like(
        FinetuningRecipe, "max_seq_length", at_least=SHORTEST_CHOICE
    )


@dataclasses.dataclass(frozen=True)
class UserChoiceRecipe(ChoiceRecipe):
    """What own files of choices add: where they have what."""

    context_column: str = setting("", "column of the text")
    start_column: str = setting(
        "", "column of what every choice begins with, if there is one"
    )
    choice_columns: str = setting(
        "",
        "columns of the choices, comma-separated, or in JSON the one that has "
        "lists of them",
    )
    label_column: str = like(
        UserTableRecipe, "label_column", help_text="column of the right choice"
    )
    label_form: str = setting(
        "number",
        "how files name a choice: number (from 0), number_from_1, letter "
        "(from A) or text",
        choices=LABEL_FORMS,
    )


@dataclasses.dataclass(frozen=True)
class SpanRecipe(FilesRecipe, defaults={"max_seq_length": 384}):
    """What tasks on questions add."""

    doc_stride: int = like(SentenceRecipe, "doc_stride", default=128)
    max_query_length: int = setting(
        64,
        "longest question in tokens",
        at_least=1,
        # [CLS], two [SEP] and a token of the context.
        at_most=lambda recipe: recipe.max_seq_length - 4,
        why="a context fits beside it in max_seq_length={max_seq_length}",
    )
    max_answer_length: int = setting(30, "longest answer in tokens", at_least=1)
    n_best_size: int = setting(
        20,
        "answers kept to a question; starts and ends tried in a window",
        at_least=1,
    )


@dataclasses.dataclass(frozen=True)
class UserQuestionRecipe(SpanRecipe, UserFilesRecipe):
    """What own files of questions add: where they have what."""

    question_column: str = setting("question", "column of the question")
    context_column: str = like(
        UserChoiceRecipe,
        "context_column",
        default="context",
        help_text="column of the text to answer it from",
    )
    answer_column: str = setting(
        "answer",
        "column of the answer, in JSON lines of one, a list of them, or an "
        "object with lists text and answer_start; empty where there is none",
    )
    answer_start_column: str = setting(
        "",
        "column of the characters before the answer in its context; without "
        "it, an answer is where the context has it first",
    )
    with_null: bool = setting(
        False, "a question may have no answer, as in SQuAD 2.0"
    )


@dataclasses.dataclass(frozen=True)
class TagRecipe(FinetuningRecipe):
    """What tasks on tagged words add."""

    context: str = setting(
        "document",
        "what a row shows: the sentence amid as much of its document as there "
        "is room for, or the sentence alone",
        choices=CONTEXTS,
    )
    doc_stride: int = like(
        SentenceRecipe,
        "doc_stride",
        default=0,
        help_text="sentences longer than a row: tokens from the start of a "
        "window to that of the next; 0 = half of a window",
        at_least=0,
    )
    token_column: int = setting(
        0, "column of the word, from 0, or from -1 backwards"
    )
    tag_column: int = setting(-1, "column of the tag, likewise")
    comment: str = setting(
        "", "what lines before a sentence begin with that are passed over"
    )
    unmarked: str = setting(
        "sentences",
        "what a document is in a file without -DOCSTART- lines: each of the "
        "sentences, or the whole file",
        choices=UNMARKED,
    )
    score_test: bool = setting(
        False,
        "the test file has tags: score it too, when training ends and by "
        "eval; the best model is chosen by dev alone",
        requires="test_file",
    )


@dataclasses.dataclass(frozen=True)
class UserTagRecipe(DevSplitRecipe, TagRecipe):
    """The settings of own files of tagged words."""


@dataclasses.dataclass(frozen=True)
class FeatureRecipe(
    TagRecipe,
    defaults={"learning_rate": 1e-3, "num_train_epochs": 10.0},
    unused=(
        "freeze_layers",
        "layer_decay",
        "ensemble",
        "rematerialize",
        "teacher",
        "bilstm",
        "lora_rank",
    ),
):
    """What taggers on a frozen encoder add.

    The paper tells the tagger's form alone; rate, epochs and dropout are what
    such taggers are usually trained with.
    """

    features: str = setting(
        CONCAT_LAST_FOUR,
        f"what the tagger is given of each word: {', '.join(FEATURES)}",
        choices=FEATURES,
    )
    lstm_units: int = setting(
        768, "width of each direction of both layers", at_least=1
    )
    tagger_dropout: float = setting(
        0.5,
        "dropout of what goes into each layer of the tagger",
        at_least=0,
        below=1,
    )
