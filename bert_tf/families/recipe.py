"""The settings of a fine-tuning, those of every task and those of families.

A recipe is composed of parts with the settings of one subject each. The
`recipe_type` of a task has exactly the settings that the task uses, so that all
others are refused.
"""

import dataclasses

from bert_tf.config import LORA_ON, POOLINGS, BertConfig
from bert_tf.corpora.recipe import CorpusRecipe
from bert_tf.recipe import Settings, like, setting
from bert_tf.tables.table import FORMATS
from bert_tf.teacher_settings import TeacherSettings
from bert_tf.training.recipe import LARGEST_SEED, TrainingRecipe

EMPTY_TEXT = ("error", "keep", "drop")
BAD_ROWS = ("error", "skip")
LONG_INPUTS = ("cut", "windows")
LABEL_KINDS = ("classes", "regression", "multi_label")
LABEL_FORMS = ("number", "number_from_1", "letter", "text")
# The context of a tagged sentence, and what a document is without marks.
CONTEXTS = ("document", "sentence")
UNMARKED = ("sentences", "file")
# [CLS], two [SEP] and a token of each text.
SHORTEST_CHOICE = 5
# What a head starts from.
GIVEN, FITTED = HEAD_STARTS = ("given", "fitted")
# The file of a tagger on features in a model folder.
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
    """The settings of every fine-tuning; recipe.json stores them."""

    task: str = setting(
        "",
        "a name in tasks/, or the path of a task file",
        may_be_code=True,
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
        0,
        "steps between evaluations; 0 = at the end of each epoch",
        at_least=0,
    )
    ensemble: str = setting(
        "",
        "eval and predict: folders of more models of the task, "
        "comma-separated, whose logits are averaged with this one's",
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
class SentenceRecipe(TableRecipe):
    """Settings of tasks on texts or pairs."""

    data_dir: str = like(
        FinetuningRecipe,
        "data_dir",
        help_text="folder of GLUE's files; empty reads TensorFlow Datasets",
    )
    long_inputs: str = setting(
        "cut",
        "inputs longer than max_seq_length: cut, or split into overlapping "
        "windows whose logits are averaged",
        choices=LONG_INPUTS,
    )
    doc_stride: int = setting(
        64, "tokens from the start of a window to that of the next", at_least=1
    )
    classifier_pooling: str = setting(
        "",
        "what the head reads: cls, the first token, or mean, the mean of all "
        "tokens; empty is what init_from states, cls in a BERT",
        choices=("", *POOLINGS),
    )
    head_start: str = setting(
        GIVEN,
        "given: the head is init_from's, or random where it has none; fitted: "
        "a linear model that is fitted to the outputs of the encoder before "
        "all weights are trained",
        choices=HEAD_STARTS,
    )
    class_weights: str = setting(
        "",
        "weights of the classes in the loss: balanced, or a number for each "
        "label in their order, comma-separated",
    )


@dataclasses.dataclass(frozen=True)
class MultiLabelRecipe(SentenceRecipe):
    """Settings of tasks on texts with several labels each."""

    threshold: float = setting(
        0.5,
        "several labels a row: probability above which a label holds",
        above=0,
        below=1,
        requires="label_kind=multi_label",
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


@dataclasses.dataclass(frozen=True)
class UserTableRecipe(UserFilesRecipe, MultiLabelRecipe):
    """Settings of a task on a user's texts: columns and kind of label."""

    # Chosen by the number of rows; see few_rows.py of text_classification.
    learning_rate: float = like(
        FinetuningRecipe,
        "learning_rate",
        default=0.0,
        help_text="peak learning rate; 0 = 5e-5, or more with few rows",
        above=None,
        at_least=0,
        chosen_by_run=True,
    )
    num_train_epochs: float = like(
        FinetuningRecipe,
        "num_train_epochs",
        default=0.0,
        help_text="passes over the training examples; 0 = 3, or up to 20 with "
        "few rows",
        above=None,
        at_least=0,
        chosen_by_run=True,
    )
    train_batch_size: int = like(
        FinetuningRecipe,
        "train_batch_size",
        default=0,
        help_text="rows in a step, over all devices; 0 = 32, or 16 with few "
        "rows",
        at_least=0,
        chosen_by_run=True,
    )
    classifier_pooling: str = like(
        SentenceRecipe,
        "classifier_pooling",
        help_text="what the head reads: cls, the first token, or mean, the "
        "mean of all tokens; empty is what init_from states, or mean for a "
        "new head with few rows",
        chosen_by_run=True,
    )
    head_start: str = like(
        SentenceRecipe,
        "head_start",
        default="",
        help_text="given: the head is init_from's, or random where it has "
        "none; fitted: a linear model that is fitted to the outputs of the "
        "encoder before all weights are trained; empty is fitted for a new "
        "head with few rows",
        choices=("", *HEAD_STARTS),
        chosen_by_run=True,
    )
    text_columns: str = setting(
        "", "column of the text, or two of a pair, comma-separated"
    )
    label_column: str = setting("", "column of the label")
    label_kind: str = setting("classes", choices=LABEL_KINDS)
    label_separator: str = setting(
        ",",
        "several labels a row: the separator between them in a cell",
        not_empty=True,
        requires="label_kind=multi_label",
    )


@dataclasses.dataclass(frozen=True)
class ChoiceRecipe(UserFilesRecipe):
    """Settings of multiple choice."""

    max_seq_length: int = like(
        FinetuningRecipe, "max_seq_length", at_least=SHORTEST_CHOICE
    )


@dataclasses.dataclass(frozen=True)
class UserChoiceRecipe(ChoiceRecipe):
    """Settings of the columns of a user's choices."""

    context_column: str = setting("", "column of the text")
    start_column: str = setting(
        "", "column of the common beginning of the choices, if any"
    )
    choice_columns: str = setting(
        "",
        "columns of the choices, comma-separated, or in JSON one column with "
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
    """Settings of question answering."""

    train_file: str = like(
        FilesRecipe,
        "train_file",
        help_text=f"file to train on: .json, laid out as SQuAD's or a list of "
        f"questions, .{', .'.join(FORMATS)}, text also as "
        ".gz, .bz2 or .zst; empty is the "
        "official name in SQuAD",
    )
    dev_file: str = like(
        FilesRecipe,
        "dev_file",
        help_text="file to evaluate on, likewise; of a user's own data, empty "
        "splits it off train_file",
    )
    test_file: str = like(
        FilesRecipe,
        "test_file",
        help_text="file to predict; empty is the dev file in SQuAD",
    )
    doc_stride: int = like(SentenceRecipe, "doc_stride", default=128)
    max_query_length: int = setting(
        64,
        "longest question in tokens",
        at_least=1,
        # [CLS], two [SEP] and a token of the context.
        at_most=lambda recipe: recipe.max_seq_length - 4,
        why="a context must fit into max_seq_length={max_seq_length} too",
    )
    max_answer_length: int = setting(30, "longest answer in tokens", at_least=1)
    n_best_size: int = setting(
        20,
        "answers kept for a question; starts and ends tried in a window",
        at_least=1,
    )


@dataclasses.dataclass(frozen=True)
class UserQuestionRecipe(SpanRecipe, UserFilesRecipe):
    """Settings of the columns of a user's questions."""

    question_column: str = setting("question", "column of the question")
    context_column: str = like(
        UserChoiceRecipe,
        "context_column",
        default="context",
        help_text="column of the context",
    )
    answer_column: str = setting(
        "answer",
        "column of the answer, in JSON lines of one, a list of them, or an "
        "object with lists text and answer_start; empty where there is none",
    )
    answer_start_column: str = setting(
        "",
        "column of the answer's offset in its context, in characters; empty "
        "takes the first occurrence",
    )
    with_null: bool = setting(
        False, "a question may have no answer, as in SQuAD 2.0"
    )


@dataclasses.dataclass(frozen=True)
class TagRecipe(FinetuningRecipe):
    """Settings of token classification."""

    context: str = setting(
        "document",
        "the context of a sentence in a row: as much of its document as fits, "
        "or only the sentence",
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
        "", "prefix of comment lines before a sentence, which are ignored"
    )
    unmarked: str = setting(
        "sentences",
        "documents of a file without -DOCSTART- lines: its sentences, or the "
        "whole file",
        choices=UNMARKED,
    )
    score_test: bool = setting(
        False,
        "the test file has tags: score it too, after training and by eval; "
        "the best model is selected on dev",
        requires="test_file",
    )


@dataclasses.dataclass(frozen=True)
class UserTagRecipe(DevSplitRecipe, TagRecipe):
    """Settings of a user's tagged words."""

    train_file: str = like(
        FilesRecipe,
        "train_file",
        help_text="file to train on, a word and its tag per line, also as .gz, "
        ".bz2 or .zst",
    )
    test_file: str = like(
        FilesRecipe,
        "test_file",
        help_text="file to predict, which needs no tags unless score_test is "
        "set",
    )


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
    """Settings of taggers on features of a frozen encoder.

    The paper describes the architecture of the tagger; learning rate, epochs
    and dropout are customary values.
    """

    features: str = setting(
        CONCAT_LAST_FOUR,
        f"the features of a word: {', '.join(FEATURES)}",
        choices=FEATURES,
    )
    lstm_units: int = setting(
        768, "width of each direction of both layers", at_least=1
    )
    tagger_dropout: float = setting(
        0.5,
        "dropout of the inputs of each layer of the tagger",
        at_least=0,
        below=1,
    )
