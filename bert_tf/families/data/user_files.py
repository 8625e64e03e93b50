"""Finds files for training, dev and test, and splits dev off training.

The task reads a file and splits its examples.
"""

import array
import collections
import pathlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bert_tf.errors import UserError
from bert_tf.families.data.equal_rows import columns_of, digest, first_equal
from bert_tf.families.data.examples import LOCATION, choose, names_in
from bert_tf.progress import log
from bert_tf.tables.table import files_of

if TYPE_CHECKING:
    from bert_tf.families.recipe import FilesRecipe

_FILE_SETTINGS = {"train": "train_file", "dev": "dev_file", "test": "test_file"}
# Numbers are stratified by tenths of their distribution.
_BINS = 10
# Splits examples in training and dev, given dev's share and a seed.
SplitOff = Callable[[Any, float, int], tuple[Any, Any]]
# Reads the examples of a file, given its path, the recipe and whether it needs
# labels.
ReadRows = Callable[[str, Any, bool], Any]

# Examples with a `label`, a `text_key` and a `path`.
E = TypeVar("E", bound=Any)


class UserFiles:
    """The examples of the files that a recipe names.

    Args:
      split_off: splits dev off if there is no file of it.
      unit: the name of examples, in the plural.
      official: split to the default name of its file.
    """

    def __init__(
        self,
        split_off: SplitOff,
        unit: str = "rows",
        official: Mapping[str, str] | None = None,
    ):
        self._split_off = split_off
        self._unit = unit
        self._official = official or {}
        # Caches both parts of a split file.
        self._parts: dict[FilesRecipe, dict[str, Any]] = {}

    def _name(self, split: str, recipe: "FilesRecipe") -> str:
        """Returns the name of a split's file; empty if there is none."""
        name = getattr(recipe, _FILE_SETTINGS[split])
        if not name and self._official and split == "test":
            return self._name("dev", recipe)
        return name or self._official.get(split, "")

    def present(
        self, splits: Sequence[str], recipe: "FilesRecipe"
    ) -> tuple[str, ...]:
        """Returns the splits that have a file.

        Raises:
          UserError: there are none, or a file does not exist.
        """
        existing = tuple(
            split
            for split in splits
            if self._name(split, recipe)
            or (split == "dev" and self._name("train", recipe))
        )
        if not existing:
            raise _no_file(splits[0])
        for split in existing:
            self.path(split, recipe)
        return existing

    def read(
        self, split: str, recipe: "FilesRecipe", read_rows: ReadRows
    ) -> Any:
        """Reads the examples of a split.

        Args:
          split: train, dev or test; only test needs no labels.
          recipe: names the files.
          read_rows: reads a file.

        Raises:
          UserError: no file is named, or `read_rows` raises it.
        """
        if (
            split != "test"
            and recipe.train_file
            and not self._name("dev", recipe)
        ):
            return self._part(split, recipe, read_rows)
        path = self.path(split, recipe)
        rows = read_rows(path, recipe, split != "test")
        return self._without_duplicates(rows, recipe, split)

    def _without_duplicates(
        self, rows: Any, recipe: "FilesRecipe", split: str
    ) -> Any:
        """Drops duplicates of training rows if the recipe says so."""
        # Recipes of tagged words lack the setting.
        if split != "train" or not getattr(recipe, "drop_duplicates", False):
            return rows
        digests = bytearray()
        for row in rows:
            # Duplicates differ only in their location.
            values = row._asdict().items()
            digests += digest(tuple(v for k, v in values if k not in LOCATION))
        first = first_equal(*columns_of(digests))
        is_distinct = first == np.arange(len(first))
        log(
            f"{self.path(split, recipe)}: {np.sum(~is_distinct)} of "
            f"{len(rows)} {self._unit} are the same as an earlier one and are "
            "dropped (drop_duplicates=True)."
        )
        return choose(rows, is_distinct)

    def path(self, split: str, recipe: "FilesRecipe") -> str:
        """Returns the path of a split's file."""
        if split == "dev" and not self._name("dev", recipe):
            return self.path("train", recipe)
        name = self._name(split, recipe)
        if not name:
            raise _no_file(split)
        path = path_of(name, recipe)
        several = files_of(path, _FILE_SETTINGS[split]) != (path,)
        if not several and not pathlib.Path(path).exists():
            raise UserError(
                f"{path}: no such file; name yours with "
                f"`{_FILE_SETTINGS[split]}`=..., and its folder, if need be, "
                "with `data_dir`=..."
            )
        return path

    def _part(self, split: str, recipe: Any, read_rows: ReadRows) -> Any:
        """Returns training or dev of a file that is split in two."""
        if recipe not in self._parts:
            path = self.path("train", recipe)
            rows = read_rows(path, recipe, True)
            rows = self._without_duplicates(rows, recipe, "train")
            share, seed = recipe.dev_share, recipe.dev_seed
            train, dev = self._split_off(rows, share, seed)
            log(
                f"{path}: no dev_file, so {len(dev)} of {len(rows)} "
                f"{self._unit} are kept for dev (dev_share={share}, "
                f"dev_seed={seed})."
            )
            self._parts = {recipe: {"train": train, "dev": dev}}
        return self._parts[recipe][split]


def path_of(name: str, recipe: "FilesRecipe") -> str:
    """Returns the path of a name that may be relative to data_dir.

    Names may be comma-separated.
    """
    folder = pathlib.Path(recipe.data_dir)
    names = [name] if (folder / name).exists() else name.split(",")
    return ",".join(str(folder / each.strip()) for each in names)


def _no_file(split: str) -> UserError:
    return UserError(
        f"`{_FILE_SETTINGS[split]}`=...: name the file; this mode reads it."
    )


def split_off_dev(
    examples: Sequence[E], share: float, seed: int
) -> tuple[Sequence[E], Sequence[E]]:
    """Splits examples in training and dev, stratified by label.

    Rows of the same text stay in the same part, and every label has a row in
    training.

    Args:
      examples: examples with labels: classes, numbers or sets of labels.
      share: the share of the rows that become dev.
      seed: the seed of the split.

    Returns:
      The training and the dev examples, each in the order of the file.

    Raises:
      UserError: too few rows for both parts.
    """
    digests, labels = bytearray(), []
    for example in examples:
        digests += digest((example.text_key,))
        labels.append(example.label)
    # Rows of the same text are a group with the label of their first row.
    first = first_equal(*columns_of(digests))
    del digests
    sizes = np.bincount(first)
    row_strata = _strata_of(labels)
    strata: dict[Hashable, array.array] = {}
    for index in np.flatnonzero(sizes).data:
        group = strata.setdefault(row_strata[index], array.array("q"))
        group.append(index)
    # The rows of each group are adjacent in this order.
    order_of_rows = np.argsort(first, kind="stable")
    ends = np.cumsum(sizes)
    left = collections.Counter(n for label in labels for n in names_in(label))
    generator = np.random.default_rng(seed)
    is_dev = np.zeros(len(sizes), bool)
    num_dev, target = 0, 0.0
    # Rare labels first; frequent labels make up for what these cannot give.
    order = sorted(strata, key=lambda label: (len(strata[label]), str(label)))
    for stratum in order:
        groups = np.array(strata[stratum])
        target += share * int(sizes[groups].sum())
        # One text of each label stays for training.
        drawn = groups[generator.permutation(len(groups))[:-1]]
        for index, size in zip(drawn, sizes[drawn].tolist(), strict=True):
            rows = order_of_rows[ends[index] - size : ends[index]].tolist()
            names = collections.Counter(
                name for row in rows for name in names_in(labels[row])
            )
            # Sets of labels that occur once, and texts with several labels,
            # may have the last rows of a label.
            stays = all(left[name] > count for name, count in names.items())
            if stays and num_dev + size / 2 <= target:
                is_dev[index] = True
                num_dev += size
                left.subtract(names)
    if not num_dev:
        raise UserError(
            f"{examples[0].path}: {len(examples)} rows of {len(strata)} "
            f"different labels leave none for dev at dev_share={share}, since "
            "a text of each label stays for training; is label_column right? "
            "If so, pass `dev_file`=... or a larger `dev_share`."
        )
    is_dev = is_dev[first]
    return choose(examples, ~is_dev), choose(examples, is_dev)


def split_off_groups(
    examples: Sequence[E],
    keys: Sequence[str],
    same: str,
    share: float,
    seed: int,
) -> tuple[list[E], list[E]]:
    """Splits a share of the examples off, keeping those of a key together.

    Args:
      examples: N examples.
      keys: N texts, which are compared without blanks at their ends.
      same: says that all examples have the same key, for the error.
      share: the share of the examples that become dev.
      seed: the seed of the split.

    Returns:
      The training and the dev part, each in the order of the file.

    Raises:
      UserError: there is only one key.
    """
    groups: dict[str, list[int]] = {}
    for number, key in enumerate(keys):
        groups.setdefault(key.strip(), []).append(number)
    if len(groups) == 1:
        raise UserError(
            f"{same}, so no dev part can be split off; pass `dev_file`=..."
        )
    sizes = np.ones(len(examples), int)
    target = share * len(examples)
    is_dev = np.zeros(len(examples), bool)
    is_dev[draw_groups([*groups.values()], sizes, target, seed)] = True
    return choose(examples, ~is_dev), choose(examples, is_dev)


def draw_groups(
    groups: Sequence[Sequence[int]],
    sizes: np.ndarray,
    target: float,
    seed: int,
) -> list[int]:
    """Draws whole groups with a total size of about `target`.

    Args:
      groups: groups of indices into `sizes`.
      sizes: int64 [D].
      target: the total size to draw.
      seed: the seed of the draw.

    Returns:
      The indices in the drawn groups, which are at least one and not all.
    """
    # One stays for training.
    order = np.random.default_rng(seed).permutation(len(groups))[:-1]
    counts = {group: int(sizes[groups[group]].sum()) for group in order}
    taken, total = [], 0
    for group, count in counts.items():
        if total + count / 2 <= target:
            taken.append(group)
            total += count
    if not taken and counts:
        taken = [min(counts, key=lambda group: counts[group])]
    return [index for group in taken for index in groups[group]]


def _strata_of(labels: Sequence) -> Sequence[Hashable]:
    """Returns the stratum of each row."""
    if isinstance(labels[0], float):
        edges = np.quantile(labels, np.arange(1, _BINS) / _BINS)
        return [int(bin_) for bin_ in np.searchsorted(edges, labels)]
    if isinstance(labels[0], tuple):
        # Each set of labels is a stratum; those that occur once share one.
        counts = collections.Counter(labels)
        return [label if counts[label] > 1 else () for label in labels]
    return labels
