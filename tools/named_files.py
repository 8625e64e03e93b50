"""Loads small Python files by name or by path: --task, --experiment."""

import dataclasses
import importlib
import pathlib
from typing import Any

from bert_tf.errors import UserError, did_you_mean
from bert_tf.user_modules import is_user_module, run_user_module


@dataclasses.dataclass(frozen=True)
class NamedFiles:
    """A package of small files, each of which defines one object.

    Attributes:
      argument: the argument that names a file, such as task.
      package: the package of the files; see `package_beside`.
      kind: the type of the object, named as the argument in capitals.
      kind_words: the type for errors, such as "a SentenceTask".
      example: its definition, for errors.
      hint: which imports a file has, for errors.
    """

    argument: str
    package: str
    kind: type
    kind_words: str
    example: str
    hint: str

    def names(self) -> list[str]:
        """Returns the valid names."""
        (folder,) = importlib.import_module(self.package).__path__
        files = pathlib.Path(folder).glob("*.py")
        return sorted(f.stem for f in files if not f.stem.startswith("_"))

    def load(self, value: str) -> Any:
        """Returns the object of a file, by its name or the path of a .py file.

        Raises:
          UserError: there is no such file, or it is broken.
        """
        given, names = f"`{self.argument}`={value}", self.names()
        own = f"the path of your own {self.argument} file"
        if is_user_module(value):
            takes = f"{own}, or one of {', '.join(names)}"
            module = run_user_module(value, self.argument, takes, self.hint)
        elif value in names:
            module = importlib.import_module(f"{self.package}.{value}")
        else:
            hint = did_you_mean(value, names)
            raise UserError(
                f"{given}: no such {self.argument}.{hint} It takes one of "
                f"{', '.join(names)}, or {own}."
            )
        name = self.argument.upper()
        found = getattr(module, name, None)
        if found is None:
            raise UserError(
                f"{given}: the file defines no {name}; write {name} = "
                f"{self.example}."
            )
        if not isinstance(found, self.kind):
            raise UserError(
                f"{given}: {name} is of type {type(found).__name__}; it must "
                f"be {self.kind_words}."
            )
        return found


def package_beside(folder: str, installed: str) -> str:
    """Returns the name of a package in a checkout, or in the wheel."""
    if __package__ == "tools":
        return folder
    return f"{__package__.removesuffix('tools')}{installed}"
