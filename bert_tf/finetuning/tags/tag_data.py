"""Where tagged words come from: a folder of known files, or own files."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from bert_tf.errors import UserError
from bert_tf.finetuning.data.own_files import OwnFiles
from bert_tf.finetuning.tags.conll_file import TaggedWords, read_conll
from bert_tf.finetuning.tags.tag_recipe import OwnTagRecipe, TagRecipe
from bert_tf.progress import notice


class TagData(Protocol):
    """Where a task's words come from."""

    def present(self, splits: Sequence[str], recipe: Any) -> tuple[str, ...]:
        """The splits that are there; says in a line which are not."""

    def read(self, split: str, recipe: Any) -> TaggedWords:
        """The words of a split."""


@dataclasses.dataclass(frozen=True)
class ConllFolder:
    """The files of a data set, by any of the names that they go by.

    Attributes:
      folder: what the data set's folder is called.
      files: split to the names of its file.
    """

    folder: str
    files: Mapping[str, tuple[str, ...]]

    def present(
        self, splits: Sequence[str], recipe: TagRecipe
    ) -> tuple[str, ...]:
        """See `TagData`."""
        found = {split: self._path(split, recipe) for split in splits}
        there = tuple(split for split in splits if found[split])
        if splits[0] not in there:
            raise self._missing(splits[0], recipe)
        for split in splits:
            if split not in there:
                notice(
                    f"{recipe.data_dir}: has no "
                    f"{' nor '.join(self.files[split])}; going on with "
                    f"{', '.join(there)} alone."
                )
        return there

    def read(self, split: str, recipe: TagRecipe) -> TaggedWords:
        """See `TagData`."""
        path = self._path(split, recipe)
        if path is None:
            raise self._missing(split, recipe)
        tagged = split != "test" or recipe.score_test
        return read_conll(str(path), recipe.layout(tagged))

    def _path(self, split: str, recipe: TagRecipe) -> pathlib.Path | None:
        """The file, in data_dir or in the data set's folder there."""
        for folder in (recipe.data_dir, f"{recipe.data_dir}/{self.folder}"):
            for name in self.files[split] if recipe.data_dir else ():
                for suffix in ("", ".gz"):
                    path = pathlib.Path(folder) / f"{name}{suffix}"
                    if path.is_file():
                        return path
        return None

    def _missing(self, split: str, recipe: TagRecipe) -> UserError:
        names = ", ".join(names[0] for names in self.files.values())
        if not recipe.data_dir:
            return UserError(
                f"`data_dir`: name the folder of {names}; these are read from "
                "files, not from TensorFlow Datasets."
            )
        folder = pathlib.Path(recipe.data_dir)
        if not folder.is_dir():
            return UserError(f"`data_dir`={folder}: no such folder.")
        return UserError(
            f"`data_dir`={folder}: has no {' nor '.join(self.files[split])}; "
            f"give the folder of {names}, or the one above it."
        )


class OwnTagFiles:
    """The files that a recipe names; see `TagData`."""

    def __init__(self):
        self._files = OwnFiles(split_off_documents, "sentences")

    def present(
        self, splits: Sequence[str], recipe: OwnTagRecipe
    ) -> tuple[str, ...]:
        """See `TagData`."""
        return self._files.present(splits, recipe)

    def read(self, split: str, recipe: OwnTagRecipe) -> TaggedWords:
        """See `TagData`."""

        def rows(path: str, tags_needed: bool) -> TaggedWords:
            tagged = tags_needed or recipe.score_test
            return read_conll(path, recipe.layout(tagged))

        return self._files.read(split, recipe, rows)


def split_off_documents(
    data: TaggedWords, share: float, seed: int
) -> tuple[TaggedWords, TaggedWords]:
    """Splits words in two: whole documents, drawn at random.

    Documents of the same words stay on one side. Of a single document, the
    last sentences become dev.

    Args:
      data: the words.
      share: of the sentences that become dev.
      seed: of the draw.

    Returns:
      The training and the dev part, each in the order of the file.

    Raises:
      UserError: there is too little to give both sides some.
    """
    sizes = np.diff(data.document_starts)
    wanted = share * len(data)
    in_dev = np.zeros(len(data), bool)
    if len(sizes) == 1:
        in_dev[len(data) - max(round(wanted), 1) :] = True
    else:
        groups: dict[tuple[str, ...], list[int]] = {}
        bounds = data.sentence_starts[data.document_starts].tolist()
        for number, first in enumerate(bounds[:-1]):
            words = tuple(data.words[first : bounds[number + 1]])
            groups.setdefault(words, []).append(number)
        documents = list(groups.values())
        document = np.repeat(np.arange(len(sizes)), sizes)
        for number in _drawn(documents, sizes, wanted, seed):
            in_dev[document == number] = True
    if in_dev.all() or not in_dev.any():
        raise UserError(
            f"{data.path}: its {len(data)} sentence(s) in {len(sizes)} "
            "document(s) cannot be split into training and dev; pass "
            "`dev_file`=..."
        )
    return _sentences_of(data, ~in_dev), _sentences_of(data, in_dev)


def _drawn(
    documents: list[list[int]], sizes: np.ndarray, wanted: float, seed: int
) -> list[int]:
    """Documents of about as many sentences as wanted; at least one.

    Args:
      documents: the numbers of those that have the same words.
      sizes: int64 [D], the sentences of each.
      wanted: how many sentences.
      seed: of the draw.
    """
    # One stays for training.
    order = np.random.default_rng(seed).permutation(len(documents))[:-1]
    counts = {place: int(sizes[documents[place]].sum()) for place in order}
    taken, total = [], 0
    for place, count in counts.items():
        if total + count / 2 <= wanted:
            taken.append(place)
            total += count
    if not taken and counts:
        taken = [min(counts, key=lambda place: counts[place])]
    return [number for place in taken for number in documents[place]]


def _sentences_of(data: TaggedWords, kept: np.ndarray) -> TaggedWords:
    """Some sentences, bool [N], with their documents."""
    sizes = np.diff(data.sentence_starts)
    chosen = np.flatnonzero(np.repeat(kept, sizes)).tolist()
    document = np.repeat(
        np.arange(len(data.document_starts) - 1), np.diff(data.document_starts)
    )[kept]
    starts = np.flatnonzero(np.diff(document, prepend=-1))
    return dataclasses.replace(
        data,
        words=[data.words[place] for place in chosen],
        tags=[data.known_tags[place] for place in chosen],
        given_tags=[data.known_given_tags[place] for place in chosen],
        rows=data.rows[chosen],
        sentence_starts=np.concatenate([[0], np.cumsum(sizes[kept])]),
        document_starts=np.append(starts, len(document)),
    )
