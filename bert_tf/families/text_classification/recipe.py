"""The settings of text classification."""

import dataclasses

from bert_tf.config import CLASSIFIER_POOLINGS
from bert_tf.families.recipe import (
    CalibrationRecipe,
    FinetuningRecipe,
    TableRecipe,
    UserFilesRecipe,
)
from bert_tf.recipe import like, setting

LONG_INPUTS = ("cut", "windows")
LABEL_KINDS = ("classes", "regression", "multi_label")
# The losses of --task=ranking, with the classes of sentence-transformers.
BCE, LISTNET, MARGIN_MSE = "bce", "listnet", "margin_mse"
RANKING_LOSSES = {
    BCE: "BinaryCrossEntropyLoss",
    LISTNET: "ListNetLoss",
    MARGIN_MSE: "MarginMSELoss",
}
# What a head starts from.
GIVEN, FITTED = HEAD_STARTS = ("given", "fitted")


@dataclasses.dataclass(frozen=True)
class SentenceRecipe(TableRecipe, CalibrationRecipe):
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
        choices=("", *CLASSIFIER_POOLINGS),
    )
    head_start: str = setting(
        GIVEN,
        "given: the head is init_from's, or random where it has none; fitted: "
        "a linear model that is fitted to the outputs of the encoder before "
        "all weights are trained",
        choices=HEAD_STARTS,
    )
    allow_many_labels: bool = setting(
        False,
        "learns labels even if there are more than half as many as rows, which "
        "are otherwise taken for another column",
    )
    class_weights: str = setting(
        "",
        "weights of the classes in the loss: balanced, or a number for each "
        "label in their order, comma-separated",
    )

    @property
    def fits_head(self) -> bool:
        """Whether the user, or the run for few rows, wants a fitted head."""
        return self.head_start == FITTED


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
    label_column: str = setting(
        "",
        "column of the label; several labels a row: also of lists of names, of "
        "lists of 0 and 1 for each label, or columns of 0 and 1, "
        "comma-separated",
    )
    label_kind: str = setting("classes", choices=LABEL_KINDS)
    label_separator: str = setting(
        ",",
        "several labels a row: the separator between them in a cell",
        not_empty=True,
        requires="label_kind=multi_label",
    )
    label_names: str = setting(
        "",
        "several labels a row: their names in the order of lists of 0 and 1, "
        "comma-separated; empty numbers them from 0",
        requires="label_kind=multi_label",
    )

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns of the label, several only for several labels a row."""
        if self.label_kind == "multi_label":
            return tuple(map(str.strip, self.label_column.split(",")))
        return (self.label_column,)

    @property
    def stated_labels(self) -> tuple[str, ...]:
        """The names of all labels, if settings state them."""
        if self.label_names:
            return tuple(map(str.strip, self.label_names.split(",")))
        columns = self.label_columns
        return columns if len(columns) > 1 else ()


@dataclasses.dataclass(frozen=True)
class RankingRecipe(UserFilesRecipe):
    """Settings of queries with documents: columns and loss."""

    max_seq_length: int = like(
        # [CLS], two [SEP] and a token of each text.
        FinetuningRecipe,
        "max_seq_length",
        at_least=5,
    )
    query_column: str = setting("query", "column of the query")
    document_columns: str = setting(
        "document",
        "column of the document, or with lists of documents; or several "
        "columns, comma-separated, of which the first one is relevant",
    )
    label_column: str = setting(
        "label",
        "column of the relevance of the document, or with lists of those of "
        "all documents, or of a teacher's scores; of several document columns "
        "also of the teacher's margins between the first one and the others, "
        "or missing",
    )
    loss: str = setting(
        "",
        "bce: cross-entropy of each document, with labels from 0 to 1; "
        "listnet: cross-entropy over the documents of a row; margin_mse: "
        "squared error of the differences to the first document's score, with "
        "a teacher's; empty is bce for one document a row, margin_mse for "
        "several document columns with labels, and otherwise listnet",
        choices=("", *RANKING_LOSSES),
        chosen_by_run=True,
    )
    score_activation: str = setting(
        "sigmoid",
        "function of the model's output that is its score: sigmoid, from 0 to "
        "1, or linear",
        choices=("sigmoid", "linear"),
    )
