"""From files of texts to a file of vectors: JSON lines, or .npz of arrays."""

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
from typing import IO, BinaryIO, NamedTuple, Self

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, excerpt
from bert_tf.families.pretrained.settings import PER_TOKEN, Settings
from bert_tf.files import (
    STANDARD_STREAM,
    check_output,
    json_object,
    read_lines,
    whole_text,
    written_beside,
)
from bert_tf.inference.embed import truncation_line
from bert_tf.inference.vectors import NOWHERE, Chunk, Extractor, Tokens
from bert_tf.progress import Progress, log
from bert_tf.text.given_texts import Text
from bert_tf.text.token_table import TokenTable

# As google-research/bert, extract_features.py, `read_examples`.
_PAIR = re.compile(r"(.*) \|\|\| (.*)", re.DOTALL)
JSONL, NPZ = ".jsonl", ".npz"
# As google-research/bert, extract_features.py.
_DECIMALS = 6
# Numbers formatted at a time.
_NUMBERS = 1 << 20


class Line(NamedTuple):
    """A text, or a pair of them.

    Attributes:
      text: the text, or the pair.
      begin_b: where the second text begins in the line, in characters; 0 where
        it has a place of its own.
    """

    text: str | tuple[str, str]
    begin_b: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing but white space."""
        parts = (self.text,) if isinstance(self.text, str) else self.text
        return not any(part.strip() for part in parts)


def read_texts(
    files: Sequence[str | pathlib.Path],
    text_columns: Sequence[str],
    encoding_errors: str = "strict",
) -> Iterator[Line]:
    """Reads the texts of files, one after the other.

    Args:
      files: text files, where " ||| " parts the two texts of a pair; files of
        JSON objects, if their names end in .jsonl; "-" is standard input, a
        text file. .gz is unpacked.
      text_columns: key of the text in JSON objects, or the two keys of a pair.
      encoding_errors: "strict" or "replace", for bytes that are not UTF-8.

    Raises:
      UserError: a file is damaged, not UTF-8, or a line is not as it should
        be; see `bert_tf.files.read_lines`.
    """
    for path in files:
        is_json = str(path).removesuffix(".gz").endswith(".jsonl")
        file = sys.stdin.buffer if str(path) == STANDARD_STREAM else None
        for number, line in read_lines(path, encoding_errors, file, True):
            text = line.removesuffix("\n").removesuffix("\r")
            if is_json:
                place = f"{path}, line {number}"
                yield _of_json(text, text_columns, place, encoding_errors)
            elif match := _PAIR.fullmatch(text):
                yield Line((match[1], match[2]), match.start(2))
            else:
                yield Line(text)


def _of_json(
    text: str, columns: Sequence[str], place: str, encoding_errors: str
) -> Line:
    row = json_object(text, place, columns[0])
    cells = []
    for column in columns:
        if column not in row:
            raise UserError(
                f"{place}: has no {column!r}; its keys are "
                f"{', '.join(row) or 'none'}. Name the column with "
                "`text_columns`."
            )
        value = row[column]
        if not isinstance(value, str):
            raise UserError(
                f"{place}: {column!r} is {excerpt(value)}; a string is "
                "required."
            )
        cell = f"{place}: {column!r}"
        cells.append(whole_text(value, cell, encoding_errors))
    return Line((cells[0], cells[1]) if len(cells) > 1 else cells[0])


def extract_features(
    model: str | os.PathLike,
    inputs: Sequence[str | pathlib.Path],
    output: str | pathlib.Path,
    settings: Settings,
    precision: str = "float32",
    text_columns: Sequence[str] = ("text",),
    encoding_errors: str = "strict",
) -> str:
    """Writes the vectors of the texts of files.

    Memory does not grow with the texts. The output, in the order of the
    input, appears whole or not at all.

    Args:
      model: a model folder or a hub's name of one, as `load_checkpoint` takes
        it.
      inputs: files; see `read_texts`. "-" is standard input.
      output: a file that ends in .jsonl or .npz, see `JsonLinesWriter` and
        `NpzWriter`; "-" is JSON lines on standard output. Offsets count
        characters of the line, or of the column of a JSON object.
      settings: what to compute.
      precision: float32, mixed_bfloat16 or mixed_float16.
      text_columns: key of the text in JSON objects, or the two keys of a pair.
      encoding_errors: "strict" or "replace", for bytes that are not UTF-8.

    Returns:
      One line on what was written.

    Raises:
      UserError: the output cannot be written so, there is no text, or an
        input, the model or a setting is not as it should be.
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
        # A mistake in the last line shall not come out after hours.
        total = sum(1 for _ in lines())
    extractor = Extractor.from_checkpoint(model, settings, precision)
    source = _Source(lines())
    vocabulary = extractor.model.tokenizer.vocabulary
    num_truncated = 0
    with (
        _writer(output, settings.layers, vocabulary) as writer,
        Progress("extracting", total, 0, " texts") as progress,
    ):
        for chunk in extractor.chunks(source, progress.update):
            writer.add(source.placed(chunk))
            num_truncated += chunk.num_truncated
        if not source.num_texts:
            names = ",".join(map(str, inputs))
            raise UserError(f"`inputs`={names}: has no text.")
    if source.num_empty:
        log(
            f"{source.num_empty:,} of {source.num_texts:,} lines are empty; "
            "their rows are special tokens alone."
        )
    if num_truncated:
        log(
            truncation_line(
                num_truncated,
                source.num_texts,
                extractor.model.max_seq_length,
            )
        )
    return source.summary(output, extractor)


class _Source:
    """The texts of lines, and what is remembered of them until written."""

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
        """The next chunk, with offsets that count from the line's begin."""
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
    """What writes a file of that name, whole or not at all."""
    if str(output) == STANDARD_STREAM:
        yield JsonLinesWriter(sys.stdout.buffer, layers, vocabulary)
        sys.stdout.buffer.flush()
        return
    with written_beside(output) as beside:
        if pathlib.Path(output).suffix == JSONL:
            with open(beside, "wb") as file:
                yield JsonLinesWriter(file, layers, vocabulary)
        else:
            with NpzWriter(beside, layers, vocabulary) as writer:
                yield writer
                writer.finish()


class JsonLinesWriter:
    """Writes a JSON object a text, as google-research/bert lays it out.

    {"linex_index": 0, "features": [{"token": "[CLS]", "offsets": null,
    "layers": [{"index": -1, "values": [...]}, ...]}, ...]}, where the offsets
    are begin and end in characters; of pooled vectors
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
        """Writes a chunk's texts; `offsets` are those to be written."""
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
                own = layers[first - starts[begin] : last - starts[begin]]
                body = own[0]
                if chunk.tokens is not None:
                    tokens = (array[first:last] for array in chunk.tokens)
                    body = self._features(Tokens(*tokens), own)
                self._file.write(
                    b'{"linex_index": %d, %s}\n' % (self._texts, body)
                )
                self._texts += 1

    def _features(self, tokens: Tokens, layers: Sequence[bytes]) -> bytes:
        features = []
        for number, (start, end), own in zip(
            tokens.ids, tokens.offsets.tolist(), layers, strict=True
        ):
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


def _ranges(starts: np.ndarray, step: int) -> list[tuple[int, int]]:
    """Splits rows into ranges of about `step` vectors, one row at least."""
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
    """

    def __init__(
        self,
        path: pathlib.Path,
        layers: Sequence[int],
        vocabulary: TokenTable,
    ):
        self._path = path
        self._layers = np.array(layers, np.int32)
        self._vocabulary = vocabulary
        self._columns: dict[str, _Column] = {}
        self._tokens = 0

    def add(self, chunk: Chunk) -> None:
        """Takes a chunk's texts; `offsets` are those to be written."""
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
            self._columns[name] = _Column(self._path.parent, array)
        self._columns[name].append(array)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for column in self._columns.values():
            column.close()

    def finish(self) -> None:
        """Writes the file."""
        small: dict[str, np.ndarray] = {"layers": self._layers}
        if self._tokens:
            small["vocabulary"] = np.array(self._vocabulary.tokens)
        with zipfile.ZipFile(self._path, "w") as archive:
            for name, array in small.items():
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            for name, column in self._columns.items():
                with archive.open(
                    f"{name}.npy", "w", force_zip64=True
                ) as member:
                    column.write(member)


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
