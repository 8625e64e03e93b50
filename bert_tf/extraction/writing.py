"""Vectors to a file as they come: JSON lines, or one .npz of arrays."""

import json
import pathlib
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from typing import IO, BinaryIO, Self

import numpy as np
import tensorflow as tf

from bert_tf.extraction.extractor import NOWHERE, Chunk
from bert_tf.text.vocabulary import Vocabulary

# As google-research/bert, extract_features.py.
_DECIMALS = 6
# Numbers formatted at a time.
_NUMBERS = 1 << 20


class JsonLinesWriter:
    """Writes a JSON object a text, as google-research/bert lays it out.

    {"linex_index": 0, "features": [{"token": "[CLS]", "offsets": null,
    "layers": [{"index": -1, "values": [...]}, ...]}, ...]}, where the offsets
    are begin and end in characters; of pooled vectors
    {"linex_index": 0, "layers": [...]}.

    Args:
      file: takes the bytes.
      layers: the layers as they were asked for.
      vocabulary: gives the tokens.
    """

    def __init__(
        self, file: BinaryIO, layers: Sequence[int], vocabulary: Vocabulary
    ):
        self._file = file
        self._layers = layers
        self._tokens = [
            json.dumps(token, ensure_ascii=False).encode()
            for token in vocabulary.tokens
        ]
        self._texts = 0

    def add(self, chunk: Chunk) -> None:
        """Writes a chunk's texts; `offsets` are those to be written."""
        starts = chunk.rows.starts
        if chunk.offsets is None:
            starts = np.arange(len(chunk.rows) + 1)
        step = max(1, _NUMBERS // chunk.vectors[0].size)
        for begin, stop in _stretches(starts, step):
            layers = self._formatted(
                chunk.vectors[starts[begin] : starts[stop]]
            )
            for row in range(begin, stop):
                first, last = starts[row : row + 2]
                own = layers[first - starts[begin] : last - starts[begin]]
                if chunk.offsets is None:
                    body = own[0]
                else:
                    body = self._features(chunk, slice(first, last), own)
                self._file.write(
                    b'{"linex_index": %d, %s}\n' % (self._texts, body)
                )
                self._texts += 1

    def _features(
        self, chunk: Chunk, place: slice, layers: Sequence[bytes]
    ) -> bytes:
        """The tokens of a text."""
        features = []
        assert chunk.offsets is not None
        ids, offsets = chunk.rows.ids[place], chunk.offsets[place].tolist()
        for number, (start, end), own in zip(ids, offsets, layers, strict=True):
            at = b"null" if start == NOWHERE else b"[%d, %d]" % (start, end)
            features.append(
                b'{"token": %s, "offsets": %s, %s}'
                % (self._tokens[number], at, own)
            )
        return b'"features": [%s]' % b", ".join(features)

    def _formatted(self, vectors: np.ndarray) -> list[bytes]:
        """The layers of each vector of float32 [N, K, H]."""
        # Several times as fast as Python's own formatting.
        numbers = tf.strings.as_string(vectors, precision=_DECIMALS)
        joined = tf.strings.reduce_join(numbers, axis=-1, separator=", ")
        return [
            b'"layers": [%s]'
            % b", ".join(
                b'{"index": %d, "values": [%s]}' % (index, values)
                for index, values in zip(self._layers, row, strict=True)
            )
            for row in joined.numpy()
        ]


def _stretches(starts: np.ndarray, step: int) -> list[tuple[int, int]]:
    """Cuts rows into stretches of about `step` vectors, one row at least."""
    found, begin = [], 0
    while begin < len(starts) - 1:
        stop = int(np.searchsorted(starts, starts[begin] + step, "right")) - 1
        stop = max(stop, begin + 1)
        found.append((begin, stop))
        begin = stop
    return found


class NpzWriter:
    """Writes one .npz of arrays, which `numpy.load` opens without pickle.

    layers: int32 [K], as they were asked for; vectors: float32 [N, K, H] of N
    texts, or [T, K, H] of the T tokens of all texts. With tokens also
    row_starts: int64 [N + 1], where each text begins among the tokens;
    input_ids: int32 [T]; segment_ids: int32 [T], 1 in the second text of a
    pair; offsets: int32 [T, 2], begin and end in characters, -1 for [CLS] and
    [SEP]; vocabulary: strings [V], so that vocabulary[input_ids] are the
    tokens.

    What is not finished lies in nameless files beside, which go with the
    process; leave the writer as a context to be rid of them earlier.

    Args:
      path: the file, written by `finish`.
      layers: the layers as they were asked for.
      vocabulary: gives the tokens.
    """

    def __init__(
        self,
        path: pathlib.Path,
        layers: Sequence[int],
        vocabulary: Vocabulary,
    ):
        self._path = path
        self._layers = np.array(layers, np.int32)
        self._vocabulary = vocabulary
        self._columns: dict[str, _Column] = {}
        self._tokens = 0

    def add(self, chunk: Chunk) -> None:
        """Takes a chunk's texts; `offsets` are those to be written."""
        self._append("vectors", chunk.vectors)
        if chunk.offsets is None:
            return
        rows = chunk.rows
        if not self._tokens:
            self._append("row_starts", np.zeros(1, np.int64))
        self._append("row_starts", rows.starts[1:] + self._tokens)
        self._append("input_ids", rows.ids)
        self._append("segment_ids", rows.segments)
        self._append("offsets", chunk.offsets)
        self._tokens += len(rows.ids)

    def _append(self, name: str, array: np.ndarray) -> None:
        if name not in self._columns:
            self._columns[name] = _Column(self._path.parent, array)
        self._columns[name].append(array)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for column in self._columns.values():
            column.close()

    def finish(self) -> None:
        """Writes the file."""
        with zipfile.ZipFile(self._path, "w") as archive:
            self._write(archive, "layers", self._layers)
            if self._tokens:
                tokens = np.array(self._vocabulary.tokens)
                self._write(archive, "vocabulary", tokens)
            for name, column in self._columns.items():
                with archive.open(
                    f"{name}.npy", "w", force_zip64=True
                ) as member:
                    column.write(member)

    def _write(
        self, archive: zipfile.ZipFile, name: str, array: np.ndarray
    ) -> None:
        with archive.open(f"{name}.npy", "w") as member:
            np.lib.format.write_array(member, array, allow_pickle=False)


class _Column:
    """An array that grows on the disk."""

    def __init__(self, folder: pathlib.Path, like: np.ndarray):
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._dtype = like.dtype
        self._shape = like.shape[1:]
        self._length = 0

    def append(self, array: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(array, self._dtype).data)
        self._length += len(array)

    def write(self, member: IO[bytes]) -> None:
        """Writes the whole array as .npy."""
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._length, *self._shape),
        }
        np.lib.format.write_array_header_1_0(member, header)
        self._file.seek(0)
        shutil.copyfileobj(self._file, member, 1 << 20)

    def close(self) -> None:
        """Forgets it."""
        self._file.close()
