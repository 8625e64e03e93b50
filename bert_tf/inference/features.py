"""Extracts features of texts in files to JSON lines or an .npz file."""

import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO, BinaryIO, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.config import AUTO, PER_TOKEN
from bert_tf.errors import UserError
from bert_tf.families.pretrained.settings import Settings
from bert_tf.files import (
    STANDARD_STREAM,
    check_output,
    written_beside,
)
from bert_tf.inference.precision import choose, difference_of_vectors
from bert_tf.inference.vectors import NOWHERE, Chunk, Extractor, Tokens
from bert_tf.progress import Progress, log
from bert_tf.tables.table import (
    TXT,
    Dialect,
    EmptyTable,
    MissingColumn,
    Table,
    known_format,
    text_of,
)
from bert_tf.text.given_texts import Text
from bert_tf.text.token_table import TokenTable

# google-research/bert, extract_features.py, `read_examples`.
_PAIR = re.compile(r"(.*) \|\|\| (.*)", re.DOTALL)
JSONL, NPZ = ".jsonl", ".npz"
# google-research/bert, extract_features.py.
_DECIMALS = 6
# At most this many numbers are formatted at a time.
_NUMBERS = 1 << 20


class Line(NamedTuple):
    """A text or pair of texts.

    Attributes:
      text: the text or pair.
      begin_b: first character of the second text in the line; 0 if it has its
        own column.
    """

    text: str | tuple[str, str]
    begin_b: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether all text is white space."""
        parts = (self.text,) if isinstance(self.text, str) else self.text
        return not any(part.strip() for part in parts)


def read_texts(
    files: Sequence[str | pathlib.Path],
    text_columns: Sequence[str],
    encoding_errors: str = "strict",
) -> Iterator[Line]:
    """Yields the texts of files.

    Args:
      files: tables, see `Table`; or text files, in which " ||| " separates the
        texts of a pair. "-" is text on standard input.
      text_columns: column of the text in a table, or the two of a pair.
      encoding_errors: "strict" or "replace", for bytes that are not UTF-8.

    Raises:
      UserError: a file is damaged or not UTF-8, or a row is malformed; see
        `Table.rows`.
    """
    for path in map(str, files):
        kind = known_format(path)
        names = text_columns if kind else ["text"]
        dialect = Dialect(kind or TXT, encoding_errors=encoding_errors)
        try:
            for row in Table(path, dialect).rows(names):
                if row.fault:
                    raise row.fault
                texts = [
                    text_of(cell, column, row.place)
                    for cell, column in zip(row.cells, names, strict=True)
                ]
                pair = None if kind else _PAIR.fullmatch(texts[0])
                if pair:
                    yield Line((pair[1], pair[2]), pair.start(2))
                elif len(texts) > 1:
                    yield Line((texts[0], texts[1]))
                else:
                    yield Line(texts[0])
        except EmptyTable:
            continue
        except MissingColumn as error:
            raise UserError(f"{error} Name it with `text_columns`.") from None


def extract_features(
    model: str | os.PathLike,
    inputs: Sequence[str | pathlib.Path],
    output: str | pathlib.Path,
    settings: Settings,
    precision: str = AUTO,
    text_columns: Sequence[str] = ("text",),
    encoding_errors: str = "strict",
    runtime: str = AUTO,
) -> str:
    """Writes the vectors of texts in files, in constant memory.

    The output has the order of the input, and appears only when it is complete.

    Args:
      model: a model folder or a model on a hub; see `load_checkpoint`.
      inputs: files; see `read_texts`.
      output: a .jsonl or .npz file, see `JsonLinesWriter` and `NpzWriter`; "-"
        is JSON lines on standard output. Offsets count characters of the line,
        or of the column of a JSON object.
      settings: layers, pooling and batches.
      precision: float32, mixed_bfloat16 or mixed_float16; or auto, see
        `bert_tf.inference.precision`.
      text_columns: see `read_texts`.
      encoding_errors: see `read_texts`.
      runtime: what computes the encoder; see `bert_tf.load`.

    Returns:
      A summary line.

    Raises:
      UserError: the output cannot be written, there is no text, or an input,
        the model or a setting is invalid.
    """
    if str(output) != STANDARD_STREAM:
        check_output(output, (JSONL, NPZ), inputs)
    if len(text_columns) not in (1, 2) or not all(text_columns):
        raise UserError(
            f"text_columns={','.join(text_columns)}: name one column, or two "
            "of a pair, comma-separated."
        )

    def lines() -> Iterator[Line]:
        return read_texts(inputs, text_columns, encoding_errors)

    total = 0
    if STANDARD_STREAM not in map(str, inputs):
        # Reports malformed lines before the computation starts.
        total = sum(1 for _ in lines())

    def opened(precision: str, runtime: str) -> Extractor:
        return Extractor.from_checkpoint(model, settings, precision, runtime)

    if precision == AUTO:
        extractor, _, rows, note = choose(
            opened,
            runtime,
            lambda extractor: extractor.model,
            lambda extractor: lines(),
            lambda extractor, rows: extractor.first_vectors(
                row.text for row in rows
            ),
            difference_of_vectors,
        )
    else:
        extractor, rows, note = opened(precision, runtime), lines(), ""
    log(f"{model}: computed by {extractor.model.computed_by}{note}.")
    source = _Source(rows)
    vocabulary = extractor.model.tokenizer.vocabulary
    with (
        _writer(output, settings.layers, vocabulary) as writer,
        Progress("extracting", total, 0, " texts") as progress,
    ):
        for chunk in extractor.chunks(source, progress.update):
            writer.add(source.placed(chunk))
        if not source.num_texts:
            names = ",".join(map(str, inputs))
            raise UserError(f"`inputs`={names}: has no text.")
    if source.num_empty:
        log(
            f"{source.num_empty:,} of {source.num_texts:,} lines are empty; "
            "their rows have only special tokens."
        )
    return source.summary(output, extractor)


class _Source:
    """Yields the texts of lines, and keeps counts and positions of pairs."""

    def __init__(self, lines: Iterator[Line]):
        self._lines = lines
        self._begins: collections.deque[int] = collections.deque()
        self._begun = time.monotonic()
        self.num_texts = self.num_empty = self.num_tokens = 0

    def __iter__(self) -> Iterator[Text]:
        for line in self._lines:
            self.num_texts += 1
            self.num_empty += line.is_empty
            self._begins.append(line.begin_b)
            yield line.text

    def placed(self, chunk: Chunk) -> Chunk:
        """Shifts a chunk's offsets to count from the beginning of its line."""
        self.num_tokens += int(chunk.starts[-1])
        begins = [self._begins.popleft() for _ in chunk.starts[1:]]
        tokens = chunk.tokens
        if tokens is None:
            return chunk
        shift = np.repeat(begins, np.diff(chunk.starts)) * tokens.segments
        shift = np.where(tokens.offsets == NOWHERE, 0, shift[:, None])
        offsets = tokens.offsets + shift.astype(np.int32)
        return chunk._replace(tokens=tokens._replace(offsets=offsets))

    def summary(self, output: str | pathlib.Path, extractor: Extractor) -> str:
        settings = extractor.settings
        seconds = time.monotonic() - self._begun
        kind = (
            "a vector a token"
            if settings.pooling == PER_TOKEN
            else f"a vector a text ({extractor.pooling})"
        )
        place = "standard output" if str(output) == STANDARD_STREAM else output
        return (
            f"{place}: {self.num_texts:,} texts, {self.num_tokens:,} tokens; "
            f"{kind}, layers {','.join(map(str, settings.layers))}, "
            f"{extractor.model.width} wide; "
            f"{self.num_texts / seconds:,.0f} texts/s."
        )


@contextlib.contextmanager
def _writer(
    output: str | pathlib.Path, layers: Sequence[int], vocabulary: TokenTable
) -> Iterator["JsonLinesWriter | NpzWriter"]:
    """Opens the writer of an output; the file appears when it is complete."""
    if str(output) == STANDARD_STREAM:
        yield JsonLinesWriter(sys.stdout.buffer, layers, vocabulary)
        sys.stdout.buffer.flush()
        return
    with written_beside(output) as beside:
        if pathlib.Path(output).suffix == JSONL:
            with open(beside, "wb") as file:
                yield JsonLinesWriter(file, layers, vocabulary)
        else:
            with contextlib.ExitStack() as files:
                writer = NpzWriter(beside, layers, vocabulary, files)
                yield writer
                writer.finish()


class JsonLinesWriter:
    """Writes a JSON object per text, in the layout of google-research/bert.

    {"linex_index": 0, "features": [{"token": "[CLS]", "offsets": null,
    "layers": [{"index": -1, "values": [...]}, ...]}, ...]}, where offsets are
    begin and end in characters; for pooled vectors
    {"linex_index": 0, "layers": [...]}.
    """

    def __init__(
        self, file: BinaryIO, layers: Sequence[int], vocabulary: TokenTable
    ):
        self._file = file
        self._layers = layers
        self._tokens = [
            json.dumps(token, ensure_ascii=False).encode()
            for token in vocabulary.tokens
        ]
        self._texts = 0

    def add(self, chunk: Chunk) -> None:
        """Writes a chunk of texts."""
        starts = chunk.starts
        if chunk.tokens is None:
            starts = np.arange(len(starts))
        step = max(1, _NUMBERS // chunk.vectors[0].size)
        for begin, stop in _ranges(starts, step):
            layers = self._formatted(
                chunk.vectors[starts[begin] : starts[stop]]
            )
            for row in range(begin, stop):
                first, last = starts[row : row + 2]
                values = layers[first - starts[begin] : last - starts[begin]]
                body = values[0]
                if chunk.tokens is not None:
                    tokens = (array[first:last] for array in chunk.tokens)
                    body = self._features(Tokens(*tokens), values)
                self._file.write(
                    b'{"linex_index": %d, %s}\n' % (self._texts, body)
                )
                self._texts += 1

    def _features(self, tokens: Tokens, layers: Sequence[bytes]) -> bytes:
        features = []
        for token_id, (start, end), values in zip(
            tokens.ids, tokens.offsets.tolist(), layers, strict=True
        ):
            at = b"null" if start == NOWHERE else b"[%d, %d]" % (start, end)
            token = self._tokens[token_id]
            features.append(
                b'{"token": %s, "offsets": %s, %s}' % (token, at, values)
            )
        return b'"features": [%s]' % b", ".join(features)

    def _formatted(self, vectors: np.ndarray) -> list[bytes]:
        """Formats the layers of each vector, float32 [N, K, H]."""
        # Several times faster than Python's formatting.
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


def _ranges(starts: np.ndarray, step: int) -> list[tuple[int, int]]:
    """Splits rows into ranges of about `step` vectors, at least one row."""
    ranges, begin = [], 0
    while begin < len(starts) - 1:
        stop = int(np.searchsorted(starts, starts[begin] + step, "right")) - 1
        stop = max(stop, begin + 1)
        ranges.append((begin, stop))
        begin = stop
    return ranges


class NpzWriter:
    """Writes an .npz file that `numpy.load` opens without pickle.

    layers: int32 [K], as requested; vectors: float32 [N, K, H] of N texts, or
    [T, K, H] of the T tokens of all texts. For tokens also
    row_starts: int64 [N + 1], index of each text's first token;
    input_ids: int32 [T]; segment_ids: int32 [T], 1 in the second text of a
    pair; offsets: int32 [T, 2], begin and end in characters, -1 for [CLS] and
    [SEP]; vocabulary: strings [V], so that vocabulary[input_ids] are the
    tokens.

    The arrays are collected in unnamed temporary files, which `files` closes.
    """

    def __init__(
        self,
        path: pathlib.Path,
        layers: Sequence[int],
        vocabulary: TokenTable,
        files: contextlib.ExitStack,
    ):
        self._path, self._files = path, files
        self._layers = np.array(layers, np.int32)
        self._vocabulary = vocabulary
        self._columns: dict[str, _Column] = {}
        self._tokens = 0

    def add(self, chunk: Chunk) -> None:
        """Appends a chunk of texts."""
        self._append("vectors", chunk.vectors)
        if chunk.tokens is None:
            return
        if not self._tokens:
            self._append("row_starts", np.zeros(1, np.int64))
        self._append("row_starts", chunk.starts[1:] + self._tokens)
        self._append("input_ids", chunk.tokens.ids)
        self._append("segment_ids", chunk.tokens.segments)
        self._append("offsets", chunk.tokens.offsets)
        self._tokens += int(chunk.starts[-1])

    def _append(self, name: str, array: np.ndarray) -> None:
        if name not in self._columns:
            file = tempfile.TemporaryFile(dir=self._path.parent)  # noqa: SIM115
            self._files.enter_context(file)
            self._columns[name] = _Column(file, array)
        self._columns[name].append(array)

    def finish(self) -> None:
        """Writes the file."""
        arrays: dict[str, np.ndarray] = {"layers": self._layers}
        if self._tokens:
            arrays["vocabulary"] = np.array(self._vocabulary.tokens)
        with zipfile.ZipFile(self._path, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            for name, column in self._columns.items():
                with archive.open(
                    f"{name}.npy", "w", force_zip64=True
                ) as member:
                    column.write(member)


class _Column:
    """An array that grows in a temporary file."""

    def __init__(self, file: IO[bytes], like: np.ndarray):
        self._file = file
        self._dtype = like.dtype
        self._shape = like.shape[1:]
        self._length = 0

    def append(self, array: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(array, self._dtype).data)
        self._length += len(array)

    def write(self, member: IO[bytes]) -> None:
        """Writes the array as .npy."""
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._length, *self._shape),
        }
        np.lib.format.write_array_header_1_0(member, header)
        self._file.seek(0)
        shutil.copyfileobj(self._file, member, 1 << 20)
