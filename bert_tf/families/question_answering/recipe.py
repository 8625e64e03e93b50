"""The settings of question answering."""

import dataclasses

from bert_tf.families.recipe import FilesRecipe, UserFilesRecipe
from bert_tf.recipe import like, setting
from bert_tf.tables.table import FORMATS


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
    doc_stride: int = setting(
        128, "tokens from the start of a window to that of the next", at_least=1
    )
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
    context_column: str = setting("context", "column of the context")
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
    exact_answers: bool = setting(
        False,
        "refuses answers without a start that their contexts have only with "
        "other blanks or in another case",
    )
    with_null: bool = setting(
        False, "a question may have no answer, as in SQuAD 2.0"
    )
