"""One folder for each kind of answer: its data, task, answers and report."""

import importlib.util
from types import ModuleType
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


def part_of(kind: type, name: str) -> ModuleType | None:
    """A module of the family that a class belongs to; None if it has none.

    Args:
      kind: a class of the family, such as that of its config or its model.
      name: of the module, such as answers or explained.
    """
    module = f"{kind.__module__.rpartition('.')[0]}.{name}"
    if importlib.util.find_spec(module) is None:
        return None
    return importlib.import_module(module)
