"""The settings of token classification."""

import dataclasses

from bert_tf.families.recipe import (
    CalibrationRecipe,
    DevSplitRecipe,
    FilesRecipe,
)
from bert_tf.recipe import like, setting
from bert_tf.tables.table import FORMATS

# The context of a tagged sentence, and what a document is without marks.
CONTEXTS = ("document", "sentence")
UNMARKED = ("sentences", "file")
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


@dataclasses.dataclass(frozen=True)
class TagRecipe(CalibrationRecipe):
    """Settings of token classification."""

    context: str = setting(
        "document",
        "the context of a sentence in a row: as much of its document as fits, "
        "or only the sentence",
        choices=CONTEXTS,
    )
    doc_stride: int = setting(
        0,
        "sentences longer than a row: tokens from the start of a "
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
        help_text="file to train on: a word and its tag per line, or a table "
        f"(.{', .'.join(FORMATS)}) of a word or a sentence in lists per row; "
        "text also as .gz, .bz2 or .zst",
    )
    # The help of all tasks shows these texts.
    text_columns: str = setting(
        "",
        "column of the text, or two of a pair, comma-separated; tagging: of "
        "the words or of lists of them, empty is one called tokens, words, "
        "token or word",
    )
    label_column: str = setting(
        "",
        "column of the label; tagging: of the tags or of lists of them, empty "
        "is one called ner_tags, tags, tag, ner, labels or label",
    )
    sentence_column: str = setting(
        "",
        "tables of a word per row: column that names the sentence; empty is "
        "one called Sentence #, sentence_id, sentence or sent_id, and else "
        "blank rows end sentences",
    )
    label_names: str = setting(
        "",
        "names of tags that are numbers, from 0, or of several labels a row "
        "that are given as 0 and 1, comma-separated",
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
        "calibrate",
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
