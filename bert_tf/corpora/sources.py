"""Input files and data sets, in named corpora that are mixed, or unnamed."""

import dataclasses
import glob
import math
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence

from bert_tf.corpora import data_sets
from bert_tf.corpora.recipe import (
    AUTO,
    JSONL,
    SENTENCES,
    TABLE,
    TFDS,
    WIKIPEDIA,
    CorpusRecipe,
)
from bert_tf.errors import UserError
from bert_tf.files import expand_inputs
from bert_tf.tables.table import known_format

# Parts of a large dump are called NAME.xml-p1p41242.bz2.
DUMP_NAME = r"\.xml(-p\d+p\d+[\w-]*)?"
_FORMATS_BY_NAME = (
    (re.compile(DUMP_NAME + r"(\.gz|\.bz2|\.zst)?$"), WIKIPEDIA),
    (re.compile(r"\.(jsonl|ndjson)(\.gz|\.bz2|\.zst)?$"), JSONL),
)
_JSON = re.compile(r"\.json(\.gz|\.bz2|\.zst)?$")
_UNREADABLE = re.compile(
    r"\.(zip|7z|xz|lz4|rar|tar|tgz|tbz2?|tar\.\w+"
    r"|tfrecord)$"
)
MAX_REPEATS = 10_000
# NAME= or NAME:WEIGHT= before a path.
_NAMED = re.compile(
    r"(?P<name>[^\W\d][\w-]*)(:(?P<weight>[^=/]*))?=(?P<rest>.*)"
)
_Expand = Callable[[str], Sequence[str | pathlib.Path]]


@dataclasses.dataclass(frozen=True)
class CorpusFile:
    """A text file or a data set.

    Attributes:
      path: absolute path or URL of the file, or `tfds:` name of the data set.
      format: one of the formats of `bert_tf.corpora.recipe`.
      corpus: name of its corpus; empty if corpora are unnamed.
      weight: how often a document of its corpus is used, before smoothing.
    """

    path: str
    format: str
    corpus: str = ""
    weight: float = 1.0

    def size(self) -> int:
        """Returns the bytes that `Document.disk_bytes` counts up to."""
        if self.format == TFDS:
            return data_sets.describe(self.path).size
        return pathlib.Path(self.path).stat().st_size


def format_of(path: str, input_format: str = AUTO) -> str:
    """Returns the format of a file, by its name unless it is given.

    Raises:
      UserError: the file is of a kind that is not read, or its name does not
        imply a format.
    """
    name = pathlib.Path(path).name.lower()
    packed = _UNREADABLE.search(name)
    if packed:
        raise UserError(
            f"`inputs`={path}: {packed[0]} files are not read; give plain, "
            ".gz, .bz2 or .zst files of text, JSON lines, a Wikipedia dump "
            "or tables."
        )
    if input_format != AUTO:
        return input_format
    for pattern, file_format in _FORMATS_BY_NAME:
        if pattern.search(name):
            return file_format
    if known_format(path):
        return TABLE
    if _JSON.search(name):
        raise UserError(
            f"`inputs`={path}: the name does not tell what it holds; pass "
            "`input_format`=jsonl if every line is a JSON object."
        )
    return SENTENCES


def files_of(
    paths: str | pathlib.Path | Sequence[str | pathlib.Path | CorpusFile],
    recipe: CorpusRecipe,
    expand: _Expand = expand_inputs,
) -> tuple[CorpusFile, ...]:
    """Converts paths and `tfds:` names to files of an unnamed corpus.

    A single one is parsed by `parse_inputs`.
    """
    if isinstance(paths, str | pathlib.Path):
        return parse_inputs(str(paths), recipe, expand)
    files = []
    for path in paths:
        if isinstance(path, CorpusFile):
            files.append(path)
        elif str(path).startswith(data_sets.PREFIX):
            files.append(CorpusFile(str(path), TFDS))
        else:
            kind = format_of(str(path), recipe.input_format)
            files.append(CorpusFile(str(pathlib.Path(path).absolute()), kind))
    return tuple(files)


def parse_inputs(
    text: str, recipe: CorpusRecipe, expand: _Expand = expand_inputs
) -> tuple[CorpusFile, ...]:
    """Parses a comma-separated list of inputs.

    Each is a path or glob, or `tfds:DATA_SET[@SPLIT]`; NAME= or NAME:WEIGHT=
    before it adds it to the corpus of that name.

    Args:
      text: the list.
      recipe: how the files are read.
      expand: expands comma-separated paths and globs to files; strings it
        returns are URLs and stay as they are.

    Returns:
      The files, sorted by corpus and path.

    Raises:
      UserError: an input does not exist or cannot be read, a weight is not a
        number, only some inputs are named, or a file is in two corpora.
    """
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise UserError("`inputs`: give one or more files or globs.")
    members: dict[str, list[str]] = {}
    weights: dict[str, float] = {}
    for item in items:
        name, weight, rest = _parse_item(item)
        members.setdefault(name, []).append(rest)
        if weights.setdefault(name, weight) != weight:
            raise UserError(
                f"`inputs`={item}: {name} has the weight {weights[name]:g} "
                "elsewhere; give each corpus one weight."
            )
    if "" in members and len(members) > 1:
        raise UserError(
            f"`inputs`={members[''][0]}: has no name and others have one; "
            "write NAME=PATH for each input, or for none."
        )
    files: dict[str, CorpusFile] = {}
    for name in sorted(members):
        for path, kind in _expand_members(members[name], recipe, expand):
            file = CorpusFile(path, kind, name, weights[name])
            other = files.setdefault(path, file).corpus
            if other != name:
                raise UserError(
                    f"`inputs`: {path} is in {other} and in {name}; name it in "
                    "one corpus."
                )
    if recipe.smoothing != 1 and len(members) == 1:
        raise UserError(
            f"smoothing is {recipe.smoothing:g}, and there is one corpus; "
            f"name the corpora, for example `inputs`=en=a.txt,de=b.txt."
        )
    return tuple(files.values())


def _parse_item(item: str) -> tuple[str, float, str]:
    """Returns corpus name, weight and path of an item."""
    match = _NAMED.fullmatch(item)
    # A folder of a partitioned data set may be called lang=en.
    if not match or glob.glob(item, recursive=True):
        return "", 1.0, item
    name, weight_text, rest = match["name"], match["weight"], match["rest"]
    if not rest:
        raise UserError(f"`inputs`={item}: give a file after {name}=.")
    if weight_text is None:
        return name, 1.0, rest
    try:
        weight = float(weight_text)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and 0 < weight <= MAX_REPEATS):
        raise UserError(
            f"`inputs`={item}: the weight {weight_text!r} is no number above 0 "
            f"and up to 10,000; write for example {name}:3=PATH to use each "
            "document three times."
        )
    return name, weight, rest


def _expand_members(
    members: Sequence[str], recipe: CorpusRecipe, expand: _Expand
) -> list[tuple[str, str]]:
    """Returns path and format of each file of a corpus."""
    data = [item for item in members if item.startswith(data_sets.PREFIX)]
    patterns = ",".join(item for item in members if item not in data)
    files = [(item, TFDS) for item in data]
    for path in expand(patterns) if patterns else ():
        kind = format_of(str(path), recipe.input_format)
        name = path if isinstance(path, str) else str(path.absolute())
        files.append((name, kind))
    return files


def sampling_rates(
    sizes: Mapping[str, int], weights: Mapping[str, float], smoothing: float
) -> dict[str, float]:
    """Computes how often, on average, a document of each corpus is used.

    The share q of a corpus becomes q^s / sum(q^s), where s is the smoothing,
    and the total amount of text stays: multilingual BERT's exponentially
    smoothed weighting (google-research/bert, multilingual.md, s = 0.7). The
    result is multiplied by the weight. Hence, with s = 1, the weight is how
    often each document is used; with s = 0, weights are the shares.

    Args:
      sizes: tokens or words of each corpus.
      weights: the weight of each corpus.
      smoothing: s, from 0 to 1.

    Raises:
      UserError: a corpus would be repeated more than `MAX_REPEATS` times.
    """
    total = sum(sizes.values())
    if smoothing == 1 or not total:
        return dict(weights)
    shares = {name: size / total for name, size in sizes.items() if size}
    norm = sum(share**smoothing for share in shares.values())
    rates = {
        name: weights[name] * share ** (smoothing - 1) / norm
        for name, share in shares.items()
    }
    for name, rate in rates.items():
        if rate > MAX_REPEATS:
            raise UserError(
                f"`inputs`: {name} would be repeated {rate:,.0f} times; give "
                "it more text or a smaller weight, or raise `smoothing`."
            )
    return dict.fromkeys(sizes, 0.0) | rates
