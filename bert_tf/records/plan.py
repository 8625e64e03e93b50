"""The plan of a build of records: everything that its bytes depend on.

Equal plans give equal bytes, whatever runs the build: a run resumes a folder
only if the folder's plan equals its own.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from bert_tf.checkpoints.tokenizers import read_tokenizer
from bert_tf.corpora.sources import DUMP_NAME, CorpusFile
from bert_tf.errors import UserError
from bert_tf.recipe import read_json_object
from bert_tf.records.folder import (
    MANIFEST_FILE,
    RECIPE_FILE,
    STATE_FILE,
    WORK_FOLDER,
    InputFile,
    Manifest,
)
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.token_blocks import draw_numbers, mix
from bert_tf.text.tokenizer_protocol import TokenizerData

# Text times passes in one record file: small enough for a worker's memory and
# for the shuffle window of the reader.
_SHARD_BYTES = 16 << 20
# Estimated text per byte of file, for the number of shards: a seventh of a dump
# is text, and bz2 compresses dumps to a fifth.
_TEXT_FACTORS = (
    (re.compile(DUMP_NAME + "$"), 0.15),
    (re.compile(DUMP_NAME + r"\.(gz|bz2|zst)$"), 0.7),
    (re.compile(r"\.(gz|bz2|zst)$"), 4),
    (re.compile(""), 1),
)


@dataclasses.dataclass(frozen=True)
class RecordsPlan:
    """What is to be built; equal plans give equal bytes.

    Attributes:
      recipe: how records are made.
      vocabulary_digest: digest of the vocabulary.
      inputs: the input files with size and time of modification.
      tokenizer_config: `TokenizerData.settings()`.
    """

    recipe: RecordsRecipe
    vocabulary_digest: str
    inputs: tuple[InputFile, ...]
    tokenizer_config: Mapping[str, Any]

    @functools.cached_property
    def num_shards(self) -> int:
        """Number of training files."""
        if self.recipe.num_shards:
            return self.recipe.num_shards
        size = sum(map(_text_bytes, self.inputs))
        return max(1, -(-size * self.recipe.dupe_factor // _SHARD_BYTES))

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each corpus, by name."""
        return {file.corpus: file.weight for file in self.inputs}

    def assign_pools(self, documents: int, block: int) -> np.ndarray:
        """Assigns the documents of a block to pools at random.

        A pool becomes one record file. Pools 0 to `num_shards` - 1 are for
        training, pool `num_shards` is held out.

        Args:
          documents: number of documents of the block, D.
          block: number of the block.

        Returns:
          The pool of each document, int64 [D].
        """
        numbers = draw_numbers(documents, block, self.recipe.seed)
        held_out = np.uint64(self.recipe.held_out * 2**53)
        shard = (mix(numbers) % np.uint64(self.num_shards)).astype(np.int64)
        is_held_out = numbers >> np.uint64(11) < held_out
        return np.where(is_held_out, self.num_shards, shard)

    def to_json(self) -> str:
        """Returns the plan as JSON, the content of a folder's state file."""
        values = dataclasses.asdict(self) | {"recipe": self.recipe.to_dict()}
        return json.dumps(values, indent=1) + "\n"

    @classmethod
    def of_folder(cls, folder: pathlib.Path) -> Self | None:
        """Returns the plan of a folder's records, finished or not, or None."""
        if (folder / MANIFEST_FILE).exists():
            manifest = Manifest.load(folder)
            recipe = RecordsRecipe.from_json(folder / RECIPE_FILE)
            settings: Mapping[str, Any] = {}
            # Without a tokenizer in the folder, no settings compare equal.
            with contextlib.suppress(UserError):
                settings = read_tokenizer(
                    folder, recipe.lower_case, notify=False
                ).settings()
            return cls(
                recipe, manifest.vocabulary_digest, manifest.inputs, settings
            )
        path = folder / WORK_FOLDER / STATE_FILE
        if not path.exists():
            return None
        values = read_json_object(path)
        return cls(
            RecordsRecipe.from_dict(values["recipe"], str(path)),
            values["vocabulary_digest"],
            tuple(InputFile(**file) for file in values["inputs"]),
            values["tokenizer_config"],
        )

    def difference(self, stored: Self) -> str:
        """Describes how a stored plan differs; empty if it does not."""
        mine, theirs = vars(self.recipe), vars(stored.recipe)
        differences = [
            f"{name} is {theirs[name]!r} there and {mine[name]!r} now"
            for name in mine
            if mine[name] != theirs[name]
        ]
        if self.vocabulary_digest != stored.vocabulary_digest:
            differences.append("the vocabulary is another one")
        if self.recipe.lower_case == stored.recipe.lower_case:
            differences += [
                f"{name} is {stored.tokenizer_config.get(name)!r} there and "
                f"{value!r} now"
                for name, value in self.tokenizer_config.items()
                if value != stored.tokenizer_config.get(name)
            ]
        before = {file.path: file for file in stored.inputs}
        now = {file.path: file for file in self.inputs}
        for path in sorted(before.keys() ^ now.keys()):
            differences.append(
                f"{path} is an input {'now' if path in now else 'there'} only"
            )
        for path in sorted(before.keys() & now.keys()):
            old, new = before[path], now[path]
            if old.corpus != new.corpus:
                differences.append(
                    f"{path} is of the corpus {old.corpus!r} there and of "
                    f"{new.corpus!r} now"
                )
            elif old.weight != new.weight:
                differences.append(
                    f"the weight of {path} is {old.weight:g} there and "
                    f"{new.weight:g} now"
                )
            elif old != new:
                differences.append(f"{path} was changed since")
        return "; ".join(differences)


def _text_bytes(file: InputFile) -> int:
    """Estimates how much text of a file is used."""
    factors = (f for pattern, f in _TEXT_FACTORS if pattern.search(file.path))
    return int(file.size * file.weight * next(factors))


@dataclasses.dataclass(frozen=True)
class RecordsTask:
    """The plan of a build, and what its workers need to carry it out.

    Attributes:
      plan: what is to be built.
      files: the input files.
      tokenizer: the tokenizer.
    """

    plan: RecordsPlan
    files: Sequence[CorpusFile]
    tokenizer: TokenizerData

    @classmethod
    def of(
        cls,
        recipe: RecordsRecipe,
        tokenizer: TokenizerData,
        files: Sequence[CorpusFile],
        describe: Callable[[CorpusFile], InputFile] = InputFile.of,
    ) -> Self:
        """Plans the build of records; `describe` reads size and time.

        The plan states whether text is lower-cased.

        Raises:
          UserError: sequences are too short for their special tokens.
        """
        texts = 2 if recipe.has_pairs else 1
        special = tokenizer.vocabulary.packing.num_special(texts)
        if recipe.max_seq_length < special + texts:
            raise UserError(
                f"`max_seq_length`={recipe.max_seq_length}: this tokenizer "
                f"frames {recipe.sequences} by {special} special tokens; pass "
                f"{special + texts} or more."
            )
        plan = RecordsPlan(
            dataclasses.replace(recipe, lower_case=tokenizer.lower_case),
            tokenizer.vocabulary.digest(),
            tuple(map(describe, files)),
            tokenizer.settings(),
        )
        return cls(plan, files, tokenizer)
