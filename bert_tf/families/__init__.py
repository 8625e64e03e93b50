"""Families of tasks: a folder each with data, task, answers and report."""

import importlib.util
from types import ModuleType
from typing import TYPE_CHECKING

from bert_tf.family_list import FAMILIES, USER_TASKS

if TYPE_CHECKING:
    from bert_tf.families.config import TaskConfig
    from bert_tf.families.task import TaskTemplate


def config_type(head: str) -> "type[TaskConfig]":
    """Imports and returns the config of the family of a head."""
    module, _, name = FAMILIES[head].rpartition(".")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def task_of_users(name: str) -> "TaskTemplate":
    """Imports and returns a task on a user's data, of `USER_TASKS`."""
    module, _, kind = USER_TASKS[name].rpartition(".")
    template = importlib.import_module(f"{__name__}.{module}")
    return getattr(template, kind)(name=name)


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
