"""What a folder of records is to hold, and whether a folder may be used."""

import contextlib
import dataclasses
import json
import pathlib
import re
import shutil
from collections.abc import Iterator
from typing import Self

from bert_tf.corpora.sources import DUMP_NAME
from bert_tf.errors import UserError
from bert_tf.files import locked, remove_partials, write_text
from bert_tf.recipe import read_json_object
from bert_tf.records.folder import (
    MANIFEST_FILE,
    RECIPE_FILE,
    WORK_FOLDER,
    InputFile,
    Manifest,
)
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.text.tokenizer_config import (
    TokenizerConfig,
    read_tokenizer_config,
)
from bert_tf.text.tokenizer_files import TOKENIZER_CONFIG_FILE
from bert_tf.text.vocabulary import VOCABULARY_FILE, Vocabulary

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

_STATE_FILE = "state.json"
_LOCK_FILE = "lock"


@dataclasses.dataclass(frozen=True)
class RecordsPlan:
    """What is to be built; equal plans give equal bytes.

    Attributes:
      recipe: how the records are made.
      vocabulary_digest: of the vocabulary that makes the ids.
      inputs: the text files in their order.
      tokenizer_config: how text is split into words.
    """

    recipe: RecordsRecipe
    vocabulary_digest: str
    inputs: tuple[InputFile, ...]
    tokenizer_config: TokenizerConfig

    @property
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

    def save(self, path: pathlib.Path) -> None:
        """Writes the plan as JSON."""
        values = dataclasses.asdict(self)
        write_text(path, json.dumps(values, indent=1) + "\n")

    @classmethod
    def load(cls, path: pathlib.Path) -> Self:
        """The inverse of `save`."""
        values = read_json_object(path)
        recipe = RecordsRecipe.from_dict(values["recipe"], str(path))
        return cls(
            recipe,
            values["vocabulary_digest"],
            tuple(InputFile(**file) for file in values["inputs"]),
            # Earlier versions knew of nothing but lower-casing.
            TokenizerConfig.from_dict(values["tokenizer_config"])
            if "tokenizer_config" in values
            else TokenizerConfig.of(recipe.lower_case),
        )

    def difference(self, there: Self) -> str:
        """What another plan has otherwise, in words; empty for nothing."""
        mine, theirs = self.recipe.to_dict(), there.recipe.to_dict()
        found = [
            f"{name} is {theirs[name]!r} there and {mine[name]!r} now"
            for name in mine
            if mine[name] != theirs[name]
        ]
        if self.vocabulary_digest != there.vocabulary_digest:
            found.append("the vocabulary is another one")
        if self.recipe.lower_case == there.recipe.lower_case:
            splits = vars(self.tokenizer_config)
            found += [
                f"{name} is {value!r} there and {splits[name]!r} now"
                for name, value in vars(there.tokenizer_config).items()
                if value != splits[name]
            ]
        before = {file.path: file for file in there.inputs}
        now = {file.path: file for file in self.inputs}
        for path in sorted(before.keys() ^ now.keys()):
            found.append(
                f"{path} is an input {'now' if path in now else 'there'} only"
            )
        for path in sorted(before.keys() & now.keys()):
            there_is, is_now = before[path], now[path]
            if there_is.corpus != is_now.corpus:
                found.append(
                    f"{path} is of the corpus {there_is.corpus!r} there and of "
                    f"{is_now.corpus!r} now"
                )
            elif there_is.weight != is_now.weight:
                found.append(
                    f"the weight of {path} is {there_is.weight:g} there and "
                    f"{is_now.weight:g} now"
                )
            elif there_is != is_now:
                found.append(f"{path} was changed since")
        return "; ".join(found)


def _text_bytes(file: InputFile) -> int:
    """About how much text of a file is to be taken."""
    size = file.size * file.weight
    for pattern, factor in _TEXT_FACTORS:
        if pattern.search(file.path):
            return int(size * factor)
    return int(size)


def _refuse_difference(
    output_dir: pathlib.Path, plan: RecordsPlan, there: RecordsPlan
) -> None:
    difference = plan.difference(there)
    if difference:
        raise UserError(
            f"`output_dir`={output_dir}: holds other records ({difference}); "
            "choose another folder, or pass `overwrite`=True to replace them."
        )


def plan_of(folder: pathlib.Path) -> RecordsPlan | None:
    """What a folder holds or is to hold when finished; None for neither."""
    if (folder / MANIFEST_FILE).exists():
        manifest = Manifest.load(folder)
        recipe = RecordsRecipe.from_json(folder / RECIPE_FILE)
        return RecordsPlan(
            recipe,
            manifest.vocabulary_digest,
            manifest.inputs,
            read_tokenizer_config(folder, None, recipe.lower_case),
        )
    unfinished = folder / WORK_FOLDER / _STATE_FILE
    return RecordsPlan.load(unfinished) if unfinished.exists() else None


def is_finished(
    output_dir: pathlib.Path, plan: RecordsPlan, refuse: bool = True
) -> bool:
    """Whether the folder holds the plan's records, finished.

    Args:
      output_dir: the folder.
      plan: what it is to hold.
      refuse: whether the records of another plan are an error.

    Raises:
      UserError: it holds those of another plan, or a damaged file.
    """
    if not (output_dir / MANIFEST_FILE).exists():
        return False
    there = plan_of(output_dir)
    assert there is not None, "what is finished has a plan"
    if not refuse and plan.difference(there):
        return False
    _refuse_difference(output_dir, plan, there)
    for file in Manifest.load(output_dir).files(output_dir):
        file.check()
    shutil.rmtree(output_dir / WORK_FOLDER, ignore_errors=True)
    return True


def refuse_running(output_dir: pathlib.Path) -> None:
    """Raises `UserError` where another run is writing."""
    work_dir = output_dir / WORK_FOLDER
    if work_dir.exists():
        with locked(work_dir / _LOCK_FILE, output_dir):
            pass


def remove_records(output_dir: pathlib.Path) -> None:
    """Removes what an earlier run made; the manifest last, as it claims it.

    Raises:
      UserError: another run is writing there.
    """
    work_dir = output_dir / WORK_FOLDER
    if not work_dir.exists() and not (output_dir / MANIFEST_FILE).exists():
        return
    refuse_running(output_dir)
    if work_dir.exists():
        shutil.rmtree(work_dir)
    for kind in ("records", "held_out"):
        for path in output_dir.glob(f"{kind}-*-of-*.tfrecord"):
            path.unlink()
    for name in (
        RECIPE_FILE,
        VOCABULARY_FILE,
        TOKENIZER_CONFIG_FILE,
        MANIFEST_FILE,
    ):
        (output_dir / name).unlink(missing_ok=True)


def refuse_other_folders(output_dir: pathlib.Path) -> None:
    """Raises `UserError` for a file, or a folder of something else."""
    if output_dir.exists() and not output_dir.is_dir():
        raise UserError(
            f"`output_dir`={output_dir}: is a file; choose a folder."
        )
    ours = (output_dir / WORK_FOLDER, output_dir / MANIFEST_FILE)
    if (output_dir / RECIPE_FILE).exists() and not any(
        path.exists() for path in ours
    ):
        raise UserError(
            f"`output_dir`={output_dir}: holds the {RECIPE_FILE} of something "
            "else; choose another folder."
        )


@contextlib.contextmanager
def work_folder(
    output_dir: pathlib.Path, plan: RecordsPlan, vocabulary: Vocabulary
) -> Iterator[pathlib.Path]:
    """Claims the folder of unfinished work, and removes it when all is done.

    It is kept when the run stops for another reason than a mistake of the
    user's.

    Raises:
      UserError: output_dir is in use, holds unfinished work of another plan,
        or is no folder for records.
    """
    work_dir = output_dir / WORK_FOLDER
    refuse_other_folders(output_dir)
    work_dir.mkdir(parents=True, exist_ok=True)
    with locked(work_dir / _LOCK_FILE, output_dir):
        there = plan_of(output_dir)
        if there is not None:
            _refuse_difference(output_dir, plan, there)
        remove_partials(output_dir)
        vocabulary.save(work_dir / VOCABULARY_FILE)
        plan.save(work_dir / _STATE_FILE)
        try:
            yield work_dir
        except UserError:
            # What mends the mistake makes another plan of it.
            shutil.rmtree(work_dir)
            with contextlib.suppress(OSError):
                output_dir.rmdir()
            raise
        except BaseException:
            # Of use to nobody, and the disk may be full.
            remove_partials(work_dir)
            raise
        shutil.rmtree(work_dir)
