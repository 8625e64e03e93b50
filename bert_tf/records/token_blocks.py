"""Tokenised blocks on the disk, their documents dealt to pools.

A pool is what one record file is made of; the last pool is held out. A block
file is
  8 bytes   magic
  8 bytes   length of the header
  header    JSON: counts, dtype of the ids, statistics, the corpus position
  int64     first document of each pool and the end
  int64     first sentence of each document and the end
  int64     first token of each sentence and the end
  ids       token ids, uint16 where the vocabulary allows, else int32
so that one pool is read with four short reads.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Self

import numpy as np

from bert_tf.corpora.streams import Position
from bert_tf.files import written_beside

_MAGIC = b"BERTTOK1"


@dataclasses.dataclass(frozen=True)
class Documents:
    """Tokenised documents, flat.

    Attributes:
      ids: token ids, [t].
      sentence_starts: the token each sentence begins with and the end, int64
        [s + 1].
      document_starts: the sentence each document begins with and the end,
        int64 [d + 1].
      repeats: how often each document is to be used, int64 [d]; None for once.
    """

    ids: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray
    repeats: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.document_starts) - 1

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Joins documents in the order given."""
        repeats = None
        if any(part.repeats is not None for part in parts):
            once = (np.ones(len(part), dtype=np.int64) for part in parts)
            repeats = np.concatenate(
                [
                    ones if part.repeats is None else part.repeats
                    for part, ones in zip(parts, once, strict=True)
                ]
            )
        return cls(
            np.concatenate([part.ids for part in parts]),
            _join_starts([part.sentence_starts for part in parts]),
            _join_starts([part.document_starts for part in parts]),
            repeats,
        )

    def without_empty(self) -> Self:
        """Drops sentences without tokens, then documents without sentences."""
        kept = np.diff(self.sentence_starts) > 0
        kept_before = np.concatenate([[0], np.cumsum(kept)])
        document_starts = kept_before[self.document_starts]
        filled = np.diff(document_starts) > 0
        return type(self)(
            self.ids,
            np.append(self.sentence_starts[:-1][kept], len(self.ids)),
            np.append(document_starts[:-1][filled], np.sum(kept)),
        )

    def take(self, order: np.ndarray) -> Self:
        """Picks documents in the order given, int [d]."""
        sentences, document_starts = _take_ranges(self.document_starts, order)
        lengths = np.diff(self.sentence_starts)[sentences]
        sentence_starts = np.concatenate([[0], np.cumsum(lengths)])
        # The tokens of a document are copied at once: a number for each of
        # them would take more memory than the text.
        bounds = self.sentence_starts[self.document_starts]
        starts, ends = bounds[:-1][order].tolist(), bounds[1:][order].tolist()
        ids = [self.ids[a:b] for a, b in zip(starts, ends, strict=True)]
        repeats = None if self.repeats is None else self.repeats[order]
        return type(self)(
            np.concatenate([self.ids[:0], *ids]),
            sentence_starts,
            document_starts,
            repeats,
        )


def _join_starts(parts: Sequence[np.ndarray]) -> np.ndarray:
    joined, end = [np.zeros(1, dtype=np.int64)], 0
    for starts in parts:
        joined.append(starts[1:] - starts[0] + end)
        end = joined[-1][-1] if len(joined[-1]) else end
    return np.concatenate(joined)


def _take_ranges(
    starts: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The members of some ranges in order, and where each range begins."""
    lengths = np.diff(starts)[order]
    new_starts = np.concatenate([[0], np.cumsum(lengths)])
    shift = starts[:-1][order] - new_starts[:-1]
    return np.arange(new_starts[-1]) + np.repeat(shift, lengths), new_starts


def mix(numbers: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014), uint64."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(
        0xBF58476D1CE4E5B9
    )
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(
        0x94D049BB133111EB
    )
    return numbers ^ numbers >> np.uint64(31)


def draw_numbers(
    count: int, block: int, seed: int, purpose: int = 0
) -> np.ndarray:
    """One random number for each document of a block, uint64 [count].

    Other purposes give other numbers.
    """
    key = mix(np.array([seed], dtype=np.uint64) + np.uint64(purpose << 32))
    key = mix(key ^ np.array([block], dtype=np.uint64))
    return mix(key ^ np.arange(count, dtype=np.uint64))


def block_path(work_dir: pathlib.Path, number: int) -> pathlib.Path:
    """The file of a tokenised block."""
    return work_dir / f"block-{number:06d}.tokens"


@dataclasses.dataclass(frozen=True)
class BlockSummary:
    """What is known of a tokenised block.

    Attributes:
      documents, sentences, tokens, unknown: counts; unknown are [UNK].
      end: the place where the next block begins.
      bytes_read: bytes of the input files up to there.
      cut: whether the last document continues in the next block.
      warnings: one line for each unusual line of text.
      corpus: name of the corpus that it is of.
    """

    documents: int
    sentences: int
    tokens: int
    unknown: int
    end: Position
    bytes_read: int
    cut: bool
    warnings: tuple[str, ...]
    corpus: str = ""

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> Self:
        """The inverse of `header`; other keys are ignored."""
        names = {f.name for f in dataclasses.fields(cls)}
        values = {name: header[name] for name in names & header.keys()}
        values["end"] = Position(*header["end"])
        values["warnings"] = tuple(header["warnings"])
        return cls(**values)

    def header(self) -> dict[str, Any]:
        """The values as JSON takes them."""
        values = dataclasses.asdict(self)
        return values | {"end": dataclasses.astuple(self.end)}


@dataclasses.dataclass(frozen=True)
class ShardJob:
    """What a worker needs to write one shard.

    Attributes:
      name: file name of the records.
      pools: the pools whose documents become records, in order.
      borrowed_pools: pools whose documents may serve as random text B, in
        order.
    """

    name: str
    pools: tuple[int, ...]
    borrowed_pools: tuple[int, ...]


def write_block(
    path: pathlib.Path,
    documents: Documents,
    pools: np.ndarray,
    num_pools: int,
    header: dict[str, Any],
) -> None:
    """Writes the documents of a block by pool, whole or not at all.

    Args:
      path: the file to write.
      documents: the block's documents.
      pools: the pool of each document, int64 [d].
      num_pools: number of pools.
      header: what else to keep, for `read_header`.
    """
    documents = documents.take(np.argsort(pools, kind="stable"))
    counts = np.bincount(pools, minlength=num_pools)
    pool_starts = np.concatenate([[0], np.cumsum(counts)])
    text = json.dumps(
        header
        | {
            "num_pools": num_pools,
            "documents": len(documents),
            "sentences": len(documents.sentence_starts) - 1,
            "tokens": len(documents.ids),
            "dtype": documents.ids.dtype.name,
        }
    ).encode("utf-8")
    with written_beside(path) as beside, open(beside, "wb") as file:
        file.write(_MAGIC + len(text).to_bytes(8, "little") + text)
        for starts in (
            pool_starts,
            documents.document_starts,
            documents.sentence_starts,
        ):
            file.write(starts.astype("<i8").tobytes())
        file.write(documents.ids.tobytes())
        file.flush()
        os.fsync(file.fileno())


class _BlockFile:
    """The header of a block file, and slices of its arrays."""

    def __init__(self, file: BinaryIO) -> None:
        magic, length = file.read(8), int.from_bytes(file.read(8), "little")
        if magic != _MAGIC:
            raise ValueError(f"{file.name}: not a file of tokenised text")
        self.header: dict[str, Any] = json.loads(file.read(length))
        self._file = file
        self._arrays: dict[str, tuple[int, np.dtype, int]] = {}
        start = file.tell()
        for name, count, dtype in (
            ("pools", self.header["num_pools"] + 1, "<i8"),
            ("documents", self.header["documents"] + 1, "<i8"),
            ("sentences", self.header["sentences"] + 1, "<i8"),
            ("ids", self.header["tokens"], self.header["dtype"]),
        ):
            self._arrays[name] = start, np.dtype(dtype), count
            start += count * np.dtype(dtype).itemsize

    def read(
        self, name: str, first: int = 0, last: int | None = None
    ) -> np.ndarray:
        """A slice of the pool, document or sentence starts, or of the ids."""
        start, dtype, count = self._arrays[name]
        self._file.seek(start + first * dtype.itemsize)
        last = count if last is None else last
        return np.fromfile(self._file, dtype=dtype, count=last - first)


def read_header(path: pathlib.Path) -> dict[str, Any]:
    """Reads the header of a block file."""
    with open(path, "rb") as file:
        return _BlockFile(file).header


def repeats_path(block: pathlib.Path) -> pathlib.Path:
    """The file that says how often each document of a block is to be used.

    It holds uint16 numbers in the order of the block's file. Where it is
    missing, each document is used once.
    """
    return block.with_suffix(".visits")


def _read_repeats(
    block: pathlib.Path, first: int = 0, last: int | None = None
) -> np.ndarray | None:
    path = repeats_path(block)
    if not path.exists():
        return None
    count = -1 if last is None else last - first
    repeats = np.fromfile(path, dtype="<u2", count=count, offset=2 * first)
    return repeats.astype(np.int64)


def document_tokens(path: pathlib.Path) -> np.ndarray:
    """The tokens of each document, in the order of the file, int64 [d]."""
    with open(path, "rb") as file:
        block = _BlockFile(file)
        return np.diff(block.read("sentences")[block.read("documents")])


def pool_documents(path: pathlib.Path) -> np.ndarray:
    """The documents to be used of each pool of a block file, int64 [pools]."""
    with open(path, "rb") as file:
        starts = _BlockFile(file).read("pools")
    repeats = _read_repeats(path)
    if repeats is None:
        return np.diff(starts)
    used_before = np.concatenate([[0], np.cumsum(repeats > 0)])
    return np.diff(used_before[starts])


def _read_block_pool(path: pathlib.Path, pool: int) -> Documents:
    with open(path, "rb") as file:
        block = _BlockFile(file)
        first, last = block.read("pools", pool, pool + 2)
        documents = block.read("documents", first, last + 1)
        sentences = block.read("sentences", documents[0], documents[-1] + 1)
        ids = block.read("ids", sentences[0], sentences[-1])
    repeats = _read_repeats(path, first, last)
    found = Documents(
        ids, sentences - sentences[0], documents - documents[0], repeats
    )
    return found if repeats is None else found.take(np.flatnonzero(repeats))


def read_pool(paths: Sequence[pathlib.Path], pool: int) -> Documents:
    """Reads the documents to be used of one pool from every block file."""
    return Documents.concatenate(
        [_read_block_pool(path, pool) for path in paths]
    )
