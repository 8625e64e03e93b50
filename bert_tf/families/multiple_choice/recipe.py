"""The settings of multiple choice."""

import dataclasses

from bert_tf.families.recipe import (
    CalibrationRecipe,
    FinetuningRecipe,
    UserFilesRecipe,
)
from bert_tf.recipe import like, setting

LABEL_FORMS = ("number", "number_from_1", "letter", "text")
# [CLS], two [SEP] and a token of each text.
SHORTEST_CHOICE = 5


@dataclasses.dataclass(frozen=True)
class ChoiceRecipe(UserFilesRecipe, CalibrationRecipe):
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
    label_column: str = setting("", "column of the right choice")
    label_form: str = setting(
        "number",
        "how files name a choice: number (from 0), number_from_1, letter "
        "(from A) or text",
        choices=LABEL_FORMS,
    )
