"""Block files: tokenised documents on disk, grouped by pool.

One record file is made of one pool; the last pool is held out. A block file is
  8 bytes   magic
  8 bytes   length of the header
  header    JSON: the summary of the block, number of pools, dtype of the ids
  int64     first document of each pool, and the end
  int64     first sentence of each document, and the end
  int64     first token of each sentence, and the end
  ids       token ids, uint16 if the vocabulary is small enough, else int32
so that one pool is read with four short reads.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, BinaryIO, Self

import numpy as np

from bert_tf.corpora.streams import Position
from bert_tf.files import written_beside

_MAGIC = b"BERTTOK1"


@dataclasses.dataclass(frozen=True)
class Documents:
    """Tokenised documents as flat arrays.

    Attributes:
      ids: token ids, [T].
      sentence_starts: the first token of each sentence, and the end, int64
        [sentences + 1].
      document_starts: the first sentence of each document, and the end, int64
        [D + 1].
      repeats: how often each document is used, int64 [D]; None is once.
    """

    ids: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray
    repeats: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.document_starts) - 1

    def lengths(self) -> np.ndarray:
        """Returns the tokens of each document, int64 [D]."""
        return np.diff(self.sentence_starts[self.document_starts])

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Concatenates documents."""
        repeats = None
        if any(part.repeats is not None for part in parts):
            repeats = np.concatenate(
                [
                    np.ones(len(part), dtype=np.int64)
                    if part.repeats is None
                    else part.repeats
                    for part in parts
                ]
            )
        return cls(
            np.concatenate([part.ids for part in parts]),
            _concatenate_starts([part.sentence_starts for part in parts]),
            _concatenate_starts([part.document_starts for part in parts]),
            repeats,
        )

    def without_empty(self) -> Self:
        """Drops sentences without tokens, then documents without sentences."""
        keep = np.diff(self.sentence_starts) > 0
        kept_before = np.concatenate([[0], np.cumsum(keep)])
        document_starts = kept_before[self.document_starts]
        filled = np.diff(document_starts) > 0
        return type(self)(
            self.ids,
            np.append(self.sentence_starts[:-1][keep], len(self.ids)),
            np.append(document_starts[:-1][filled], np.sum(keep)),
        )

    def take(self, indices: np.ndarray) -> Self:
        """Gathers documents by index, int64 [D]."""
        counts = np.diff(self.document_starts)[indices]
        document_starts = np.concatenate([[0], np.cumsum(counts)])
        shift = self.document_starts[:-1][indices] - document_starts[:-1]
        sentences = np.arange(document_starts[-1]) + np.repeat(shift, counts)
        lengths = np.diff(self.sentence_starts)[sentences]
        # Tokens are copied by document: an index per token would take more
        # memory than the text.
        bounds = self.sentence_starts[self.document_starts]
        starts, ends = bounds[:-1][indices].tolist(), bounds[1:][indices]
        ids = [
            self.ids[start:end]
            for start, end in zip(starts, ends.tolist(), strict=True)
        ]
        return type(self)(
            np.concatenate([self.ids[:0], *ids]),
            np.concatenate([[0], np.cumsum(lengths)]),
            document_starts,
            None if self.repeats is None else self.repeats[indices],
        )


def _concatenate_starts(parts: Sequence[np.ndarray]) -> np.ndarray:
    joined, end = [np.zeros(1, dtype=np.int64)], 0
    for starts in parts:
        joined.append(starts[1:] - starts[0] + end)
        end = joined[-1][-1] if len(joined[-1]) else end
    return np.concatenate(joined)


def mix(numbers: np.ndarray) -> np.ndarray:
    """Applies the finaliser of splitmix64 (Steele, Lea, Flood 2014), uint64."""
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
    """Draws a random number for each document of a block, uint64 [count].

    Numbers of different purposes are independent.
    """
    key = mix(np.array([seed], dtype=np.uint64) + np.uint64(purpose << 32))
    key = mix(key ^ np.array([block], dtype=np.uint64))
    return mix(key ^ np.arange(count, dtype=np.uint64))


def block_path(work_dir: pathlib.Path, number: int) -> pathlib.Path:
    """Returns the file of a tokenised block."""
    return work_dir / f"block-{number:06d}.tokens"


def repeats_path(block: pathlib.Path) -> pathlib.Path:
    """Returns the file of how often each document of a block file is used.

    It holds uint16 numbers in the order of the block file. Without the file,
    each document is used once.
    """
    return block.with_suffix(".visits")


@dataclasses.dataclass(frozen=True)
class BlockSummary:
    """Statistics of a tokenised block.

    Attributes:
      documents, sentences, tokens, unknown: counts; unknown are [UNK].
      end: where the next block begins.
      bytes_read: bytes of the input files up to there.
      cut: whether the last document continues in the next block.
      warnings: one line for each unusual line of text.
      corpus: name of the corpus.
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
    def load(cls, path: pathlib.Path) -> Self:
        """Reads the summary of a block file."""
        with open(path, "rb") as file:
            header = _BlockFile(file).header
        names = {field.name for field in dataclasses.fields(cls)}
        values = {name: header[name] for name in names & header.keys()}
        values["end"] = Position(*header["end"])
        values["warnings"] = tuple(header["warnings"])
        return cls(**values)


def write_block(
    path: pathlib.Path,
    documents: Documents,
    pools: np.ndarray,
    num_pools: int,
    summary: BlockSummary,
) -> None:
    """Writes the documents of a block by pool, atomically.

    Args:
      path: the file to write.
      documents: the documents of the block.
      pools: the pool of each document, int64 [D].
      num_pools: number of pools.
      summary: statistics of the documents.
    """
    documents = documents.take(np.argsort(pools, kind="stable"))
    counts = np.bincount(pools, minlength=num_pools)
    header = dataclasses.asdict(summary) | {
        "end": dataclasses.astuple(summary.end),
        "num_pools": num_pools,
        "dtype": documents.ids.dtype.name,
    }
    text = json.dumps(header).encode("utf-8")
    with written_beside(path) as partial, open(partial, "wb") as file:
        file.write(_MAGIC + len(text).to_bytes(8, "little") + text)
        for starts in (
            np.concatenate([[0], np.cumsum(counts)]),
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
        """Reads a slice of the pool, document or sentence starts, or ids."""
        start, dtype, count = self._arrays[name]
        self._file.seek(start + first * dtype.itemsize)
        last = count if last is None else last
        return np.fromfile(self._file, dtype=dtype, count=last - first)


def document_tokens(path: pathlib.Path) -> np.ndarray:
    """Reads the number of tokens of each document, in file order, int64 [D]."""
    with open(path, "rb") as file:
        block = _BlockFile(file)
        return np.diff(block.read("sentences")[block.read("documents")])


def _read_block_pool(path: pathlib.Path, pool: int) -> Documents:
    with open(path, "rb") as file:
        block = _BlockFile(file)
        first, last = block.read("pools", pool, pool + 2)
        documents = block.read("documents", first, last + 1)
        sentences = block.read("sentences", documents[0], documents[-1] + 1)
        ids = block.read("ids", sentences[0], sentences[-1])
    pool_documents = Documents(
        ids, sentences - sentences[0], documents - documents[0]
    )
    if not repeats_path(path).exists():
        return pool_documents
    repeats = np.fromfile(
        repeats_path(path), "<u2", last - first, offset=2 * first
    )
    pool_documents = dataclasses.replace(
        pool_documents, repeats=repeats.astype(np.int64)
    )
    return pool_documents.take(np.flatnonzero(repeats))


def read_pool(paths: Sequence[pathlib.Path], pool: int) -> Documents:
    """Reads the documents of a pool that are used, from every block file."""
    return Documents.concatenate(
        [_read_block_pool(path, pool) for path in paths]
    )
