"""The user's own tables for training, dev and test, named by settings.

What a row of them means is up to the task: it says how a file is read and how
dev rows are split off.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bert_tf.errors import UserError
from bert_tf.finetuning.data.table_formats import FORMATS
from bert_tf.finetuning.data.tables import Dialect
from bert_tf.finetuning.recipe import TableRecipe
from bert_tf.progress import notice
from bert_tf.recipe import setting
from bert_tf.training.recipe import LARGEST_SEED

_FILE_SETTINGS = {"train": "train_file", "dev": "dev_file", "test": "test_file"}
# Splits examples in two, given the share and the seed of the second part.
SplitOff = Callable[[Any, float, int], tuple[Any, Any]]
# The examples of a file, given its path and whether labels are needed.
ReadRows = Callable[[str, bool], Any]


@dataclasses.dataclass(frozen=True)
class OwnFilesRecipe(TableRecipe):
    """What tasks on own tables add: which files, and how to read them."""

    data_dir: str = setting("", "folder that the files' names begin in")
    train_file: str = setting(
        "", "own file to train on: .csv, .tsv or .jsonl, or one of them .gz"
    )
    dev_file: str = setting(
        "", "own file to evaluate on; empty splits it off the training file"
    )
    test_file: str = setting("", "own file to predict; needs no labels")
    dev_share: float = setting(
        0.1, "share of the training rows that becomes dev"
    )
    dev_seed: int = setting(12345, "seed of that split, the same for all seeds")
    format: str = setting("", f"{', '.join(FORMATS)}; empty goes by the name")
    header: bool = setting(
        True,
        "the first row names the columns; if not, they are called 0, 1, ...",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("format", self.format in ("", *FORMATS), FORMATS)
        self._check("dev_share", 0 < self.dev_share < 1, "above 0, below 1")
        good = 0 <= self.dev_seed <= LARGEST_SEED
        self._check("dev_seed", good, f"0 to {LARGEST_SEED}")

    @property
    def dialect(self) -> Dialect:
        """How the tables are to be read."""
        return Dialect(
            format=self.format,
            header=self.header,
            encoding_errors=self.encoding_errors,
            skip_bad_rows=self.bad_rows == "skip",
            chosen=True,
        )


class FileSettings(Protocol):
    """The fields of a recipe that name files; see `OwnFilesRecipe`."""

    @property
    def data_dir(self) -> str:
        """Folder that the files' names begin in."""

    @property
    def train_file(self) -> str:
        """File to train on."""

    @property
    def dev_file(self) -> str:
        """File to evaluate on; empty splits it off the training file."""

    @property
    def dev_share(self) -> float:
        """Share of the training file that is split off."""

    @property
    def dev_seed(self) -> int:
        """Seed of that split."""


class OwnFiles:
    """The examples of the files that a recipe names.

    Args:
      split_off: splits dev examples off, where no file has them.
      unit: what an example is called, in the plural.
    """

    def __init__(self, split_off: SplitOff, unit: str = "rows"):
        self._split_off = split_off
        self._unit = unit
        # Both parts of a split file, for the second of them to be asked for.
        self._parts: dict[FileSettings, dict[str, Any]] = {}

    def present(
        self, splits: Sequence[str], recipe: FileSettings
    ) -> tuple[str, ...]:
        """The splits that the recipe names a file for.

        Raises:
          UserError: there are none.
        """
        there = tuple(
            split
            for split in splits
            if getattr(recipe, _FILE_SETTINGS[split])
            or (split == "dev" and recipe.train_file)
        )
        if not there:
            raise _no_file(splits[0])
        return there

    def read(
        self, split: str, recipe: FileSettings, read_rows: ReadRows
    ) -> Any:
        """The examples of a split.

        Args:
          split: train, dev or test; labels are needed but for test.
          recipe: names the files.
          read_rows: reads one.

        Raises:
          UserError: no file is named, or whatever `read_rows` raises.
        """
        if split != "test" and recipe.train_file and not recipe.dev_file:
            return self._part(split, recipe, read_rows)
        path = getattr(recipe, _FILE_SETTINGS[split])
        if not path:
            raise _no_file(split)
        return read_rows(path_of(path, recipe), split != "test")

    def _part(
        self, split: str, recipe: FileSettings, read_rows: ReadRows
    ) -> Any:
        """The training or the dev examples of a file that is split in two."""
        if recipe not in self._parts:
            path = path_of(recipe.train_file, recipe)
            rows = read_rows(path, True)
            train, dev = self._split_off(
                rows, recipe.dev_share, recipe.dev_seed
            )
            notice(
                f"{path}: no dev_file, so {len(dev)} of {len(rows)} "
                f"{self._unit} are kept for dev (dev_share={recipe.dev_share}, "
                f"dev_seed={recipe.dev_seed})."
            )
            self._parts = {recipe: {"train": train, "dev": dev}}
        return self._parts[recipe][split]


def path_of(name: str, recipe: FileSettings) -> str:
    """The path itself, or in data_dir where it is relative to that."""
    return str(pathlib.Path(recipe.data_dir) / name)


def _no_file(split: str) -> UserError:
    return UserError(
        f"`{_FILE_SETTINGS[split]}`=...: name the file; this mode reads it."
    )
