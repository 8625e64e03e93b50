"""What is to be built: the fingerprint of a build, and its record files.

Equal plans give equal bytes, so the plan that a folder holds decides whether a
run may resume it. Which documents go in which file follows from the plan and
the number of documents of each pool, wherever the files are made.
"""

import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from bert_tf.checkpoints.tokenizers import read_tokenizer
from bert_tf.corpora.sources import DUMP_NAME
from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.recipe import read_json_object
from bert_tf.records.folder import (
    MANIFEST_FILE,
    RECIPE_FILE,
    STATE_FILE,
    WORK_FOLDER,
    InputFile,
    Manifest,
    shard_name,
)
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.token_blocks import ShardJob, draw_numbers, mix
from bert_tf.text.tokenizer_protocol import TokenizerData

# Text and passes that one record file is made of; small enough for a worker
# and for the reader's shuffle window.
_SHARD_BYTES = 16 << 20
# How much larger text is than the file that holds it, for the number of
# shards: of a dump a seventh is text, and bz2 packs dumps to a fifth.
_TEXT_FACTORS = (
    (re.compile(DUMP_NAME + "$"), 0.15),
    (re.compile(DUMP_NAME + r"\.(gz|bz2)$"), 0.7),
    (re.compile(r"\.(gz|bz2)$"), 4),
)

# A held-out random next sentence needs a second held-out document.
_MIN_HELD_OUT_DOCUMENTS = 2
# A random text B should come from many documents: a shard with fewer than
# this borrows the documents of the shards after it.
ENOUGH_DOCUMENTS = 64
MAX_BORROWED_POOLS = 4


@dataclasses.dataclass(frozen=True)
class RecordsPlan:
    """What is to be built; equal plans give equal bytes.

    `tokenizer_config` is what `TokenizerData.settings` gives.
    """

    recipe: RecordsRecipe
    vocabulary_digest: str
    inputs: tuple[InputFile, ...]
    tokenizer_config: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        recipe: RecordsRecipe,
        tokenizer: TokenizerData,
        inputs: tuple[InputFile, ...],
    ) -> Self:
        """What a recipe makes of inputs."""
        digest = tokenizer.vocabulary.digest()
        return cls(recipe, digest, inputs, tokenizer.settings())

    @functools.cached_property
    def num_shards(self) -> int:
        """Number of training files."""
        if self.recipe.num_shards:
            return self.recipe.num_shards
        size = sum(_text_bytes(file) for file in self.inputs)
        return max(1, -(-size * self.recipe.dupe_factor // _SHARD_BYTES))

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each corpus, by name."""
        return {file.corpus: file.weight for file in self.inputs}

    @property
    def input_bytes(self) -> int:
        """Bytes of the text files."""
        return sum(file.size for file in self.inputs)

    @property
    def takes_each_document_once(self) -> bool:
        """Whether no document is left out or repeated."""
        return not self.recipe.near_duplicates and set(self.weights) == {""}

    def deal(self, documents: int, block: int) -> np.ndarray:
        """Deals the documents of a block to pools by chance, int64 [d].

        The pools below `num_shards` are for training, that of this number for
        evaluation.
        """
        numbers = draw_numbers(documents, block, self.recipe.seed)
        held_out = np.uint64(self.recipe.held_out * 2**53)
        shard = (mix(numbers) % np.uint64(self.num_shards)).astype(np.int64)
        is_held_out = numbers >> np.uint64(11) < held_out
        return np.where(is_held_out, self.num_shards, shard)

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON has it."""
        return dataclasses.asdict(self) | {"recipe": self.recipe.to_dict()}

    def save(self, path: pathlib.Path) -> None:
        """Writes the plan as JSON."""
        write_text(path, json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, path: pathlib.Path) -> Self:
        """The inverse of `save`."""
        values = read_json_object(path)
        recipe = RecordsRecipe.from_dict(values["recipe"], str(path))
        return cls(
            recipe,
            values["vocabulary_digest"],
            tuple(InputFile(**file) for file in values["inputs"]),
            values["tokenizer_config"],
        )

    @classmethod
    def of_folder(cls, folder: pathlib.Path) -> Self | None:
        """What a folder holds, finished or not; None for no records."""
        if (folder / MANIFEST_FILE).exists():
            manifest = Manifest.load(folder)
            recipe = RecordsRecipe.from_json(folder / RECIPE_FILE)
            return cls(
                recipe,
                manifest.vocabulary_digest,
                manifest.inputs,
                _settings_of(folder, recipe.lower_case),
            )
        unfinished = folder / WORK_FOLDER / STATE_FILE
        return cls.load(unfinished) if unfinished.exists() else None

    def difference(self, stored: Self) -> str:
        """How a stored plan differs from this one; empty if it does not."""
        mine, theirs = vars(self.recipe), vars(stored.recipe)
        found = [
            f"{name} is {theirs[name]!r} there and {mine[name]!r} now"
            for name in mine
            if mine[name] != theirs[name]
        ]
        if self.vocabulary_digest != stored.vocabulary_digest:
            found.append("the vocabulary is another one")
        if self.recipe.lower_case == stored.recipe.lower_case:
            found += [
                f"{name} is {stored.tokenizer_config.get(name)!r} there and "
                f"{value!r} now"
                for name, value in self.tokenizer_config.items()
                if value != stored.tokenizer_config.get(name)
            ]
        before = {file.path: file for file in stored.inputs}
        now = {file.path: file for file in self.inputs}
        for path in sorted(before.keys() ^ now.keys()):
            found.append(
                f"{path} is an input {'now' if path in now else 'there'} only"
            )
        for path in sorted(before.keys() & now.keys()):
            old, new = before[path], now[path]
            if old.corpus != new.corpus:
                found.append(
                    f"{path} is of the corpus {old.corpus!r} there and of "
                    f"{new.corpus!r} now"
                )
            elif old.weight != new.weight:
                found.append(
                    f"the weight of {path} is {old.weight:g} there and "
                    f"{new.weight:g} now"
                )
            elif old != new:
                found.append(f"{path} was changed since")
        return "; ".join(found)


def _settings_of(folder: pathlib.Path, lower_case: bool) -> dict[str, Any]:
    try:
        tokenizer = read_tokenizer(folder, lower_case, notify=False)
    except UserError:
        # Without its files no tokenizer made the records.
        return {}
    return tokenizer.settings()


def _text_bytes(file: InputFile) -> int:
    """About how much text of a file is to be taken."""
    size = file.size * file.weight
    for pattern, factor in _TEXT_FACTORS:
        if pattern.search(file.path):
            return int(size * factor)
    return int(size)


def plan_jobs(plan: RecordsPlan, counts: np.ndarray) -> list[ShardJob]:
    """The files to write; the held-out one last, if there is one.

    Args:
      plan: what is to be built.
      counts: documents of each pool, the held-out one last, int64 [shards + 1].
    """
    shards = plan.num_shards
    smaller = min(counts[:shards].sum(), counts[shards])
    held_out = smaller >= _MIN_HELD_OUT_DOCUMENTS
    # Documents that were to be held out and cannot be join the first file.
    returned = () if held_out else (shards,)
    jobs = []
    for number in range(shards):
        pools = (number, *(returned if number == 0 else ()))
        others = [(number + k) % shards for k in range(1, shards)]
        others += returned if number else ()
        jobs.append(
            ShardJob(
                shard_name("records", number, shards),
                pools,
                _borrowed_pools(pools, others, counts),
            )
        )
    if held_out:
        jobs.append(ShardJob(shard_name("held_out", 0, 1), (shards,), ()))
    return jobs


def _borrowed_pools(
    pools: Sequence[int], lending_pools: Sequence[int], counts: np.ndarray
) -> tuple[int, ...]:
    """The pools that lend to a shard of few documents, nearest first."""
    own = documents = int(counts[list(pools)].sum())
    borrowed: list[int] = []
    for pool in lending_pools:
        enough = len(borrowed) >= MAX_BORROWED_POOLS and documents > 1
        if not own or documents >= ENOUGH_DOCUMENTS or enough:
            break
        if counts[pool]:
            borrowed.append(pool)
            documents += int(counts[pool])
    return tuple(borrowed)


def held_out_warnings(
    plan: RecordsPlan, jobs: Sequence[ShardJob], counts: np.ndarray
) -> list[str]:
    """A line where nothing can be held out although the recipe asks for it."""
    if not plan.recipe.held_out or len(jobs) > plan.num_shards:
        return []
    return [
        f"{counts.sum():,} documents are too few to hold out "
        f"{plan.recipe.held_out:.1%} of them; there are no held-out records."
    ]
