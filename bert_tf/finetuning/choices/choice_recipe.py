"""The settings of tasks that choose one of several texts."""

import dataclasses

from bert_tf.finetuning.choices.choice_file import LABEL_FORMS
from bert_tf.finetuning.data.user_files import OwnFilesRecipe
from bert_tf.recipe import setting

# [CLS], two [SEP] and a token of either text.
SHORTEST_ROW = 5


@dataclasses.dataclass(frozen=True)
class ChoiceRecipe(OwnFilesRecipe):
    """The settings of tasks on choices."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(
            "max_seq_length",
            self.max_seq_length >= SHORTEST_ROW,
            f"{SHORTEST_ROW} or more",
        )


@dataclasses.dataclass(frozen=True)
class OwnChoiceRecipe(ChoiceRecipe):
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
    label_column: str = setting("", "column of the right choice")
    label_form: str = setting(
        "number",
        "how files name a choice: number (from 0), number_from_1, letter "
        "(from A) or text",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.label_form in LABEL_FORMS
        self._check("label_form", known, LABEL_FORMS)
