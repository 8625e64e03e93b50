"""Families of tasks: a folder each with data, task, answers and report."""

import importlib.util
from types import ModuleType
from typing import TYPE_CHECKING

from bert_tf.family_list import FAMILIES

if TYPE_CHECKING:
    from bert_tf.families.config import TaskConfig


def config_type(head: str) -> "type[TaskConfig]":
    """Imports and returns the config of the family of a head."""
    module, _, name = FAMILIES[head].rpartition(".")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def part_of(kind: type, name: str) -> ModuleType | None:
    """Imports a module of a class's family; None if it has no such module.

    Args:
      kind: a class of the family, such as its config or its model.
      name: the name of the module, such as answers or explained.
    """
    module = f"{kind.__module__.rpartition('.')[0]}.{name}"
    if importlib.util.find_spec(module) is None:
        return None
    return importlib.import_module(module)
