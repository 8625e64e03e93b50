"""The official files of a data set in the folder `data_dir`."""

import abc
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_tf.errors import UserError
from bert_tf.progress import log

if TYPE_CHECKING:
    from bert_tf.families.recipe import FinetuningRecipe


@dataclasses.dataclass(frozen=True)
class FolderFiles(abc.ABC):
    """The files of a data set.

    Attributes:
      folder: the name of its folder.
      files: split to its file.
    """

    folder: str
    files: Mapping[str, Any]

    @abc.abstractmethod
    def candidates(self, split: str) -> list[str]:
        """Possible paths of a split's file, relative to data_dir."""

    def present(
        self, splits: Sequence[str], recipe: "FinetuningRecipe"
    ) -> tuple[str, ...]:
        """Returns the splits whose files exist, and logs the others.

        Raises:
          UserError: none exists.
        """
        existing = tuple(s for s in splits if self._found(s, recipe))
        if not existing:
            self.path(splits[0], recipe)
        for split in splits:
            if split not in existing:
                log(
                    f"{recipe.data_dir}: has no "
                    f"{' nor '.join(self.candidates(split))}; continuing with "
                    f"only {', '.join(existing)}."
                )
        return existing

    def path(self, split: str, recipe: "FinetuningRecipe") -> str:
        """Returns the path of a split's file.

        Raises:
          UserError: it does not exist.
        """
        found = self._found(split, recipe)
        if found:
            return str(found)
        names = self.candidates(split)
        if not recipe.data_dir:
            raise UserError(
                f"`data_dir`=...: name the folder with {' or '.join(names)}."
            )
        folder = pathlib.Path(recipe.data_dir)
        if not folder.is_dir():
            raise UserError(f"`data_dir`={folder}: no such folder.")
        raise UserError(
            f"`data_dir`={folder}: has neither {' nor '.join(names)}; give "
            "the task's folder in its official layout, or the one above it."
        )

    def _found(
        self, split: str, recipe: "FinetuningRecipe"
    ) -> pathlib.Path | None:
        for name in self.candidates(split) if recipe.data_dir else ():
            for suffix in ("", ".gz"):
                path = pathlib.Path(recipe.data_dir) / f"{name}{suffix}"
                if path.is_file():
                    return path
        return None
