"""One folder for each kind of answer: its data, task, answers and report."""

import importlib
from typing import TYPE_CHECKING

from bert_tf.family_list import FAMILIES

if TYPE_CHECKING:
    from bert_tf.families.config import TaskConfig


def config_type(head: str) -> "type[TaskConfig]":
    """The config of the family whose models have a head.

    Its module is imported here, and no other family's.
    """
    module, _, name = FAMILIES[head].rpartition(".")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
