"""One folder for each kind of answer: its data, task, answers and report."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bert_tf.families.config import TaskConfig

# The one list of families: the head of a checkpoint that a family's models
# have, and the class of how they are used.
FAMILIES = {
    "classifier": "text_classification.config.TextClassificationConfig",
    "token_classifier": "token_classification.config.TokenClassificationConfig",
    "span": "question_answering.config.QuestionAnsweringConfig",
    "multiple_choice": "multiple_choice.config.MultipleChoiceConfig",
}


def config_type(head: str) -> "type[TaskConfig]":
    """The config of the family whose models have a head.

    Its module is imported here, and no other family's.
    """
    module, _, name = FAMILIES[head].rpartition(".")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
