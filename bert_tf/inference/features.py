"""Extracts features of texts in files to JSON lines or an .npz file."""

import contextlib
import functools
import itertools
import json
import os
import pathlib
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import numpy as np
import tensorflow as tf

from bert_tf.config import AUTO, MEAN, PER_TOKEN
from bert_tf.errors import UserError
from bert_tf.families.pretrained.settings import Settings
from bert_tf.features import INPUT_IDS, SEGMENT_IDS
from bert_tf.files import (
    STANDARD_STREAM,
    check_output,
    open_output,
)
from bert_tf.inference.vectors import (
    NOWHERE,
    OFFSETS,
    Chunk,
    open_for_texts,
    text_vectors,
)
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
from bert_tf.text.given_texts import Parts

# google-research/bert, extract_features.py, `read_examples`.
_SEPARATOR = " ||| "
JSONL, NPZ = ".jsonl", ".npz"
# google-research/bert, extract_features.py.
_DECIMALS = 6
# At most this many numbers are formatted at a time.
_NUMBERS = 1 << 20


def read_texts(
    files: Sequence[str | pathlib.Path],
    text_columns: Sequence[str],
    encoding_errors: str = "strict",
) -> Iterator[tuple[Parts, int]]:
    """Yields the texts of the rows of files.

    Args:
      files: tables, see `Table`; or text files, in which " ||| " separates the
        texts of a pair. "-" is text on standard input.
      text_columns: column of the text in a table, or the two of a pair.
      encoding_errors: "strict" or "replace", for bytes that are not UTF-8.

    Yields:
      A text or the two of a pair, and the first character of the second one in
      its line; 0 if it has its own column.

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
                texts = tuple(
                    text_of(cell, column, row.place)
                    for cell, column in zip(row.cells, names, strict=True)
                )
                pair = () if kind else tuple(texts[0].rsplit(_SEPARATOR, 1))
                if pair[1:]:
                    yield pair, len(pair[0]) + len(_SEPARATOR)
                else:
                    yield texts, 0
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
      output: a .jsonl or .npz file, see `write_json_lines` and `write_npz`; "-"
        is JSON lines on standard output. Offsets count characters of the line,
        or of the column of a table.
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
    to_file = str(output) != STANDARD_STREAM
    if to_file:
        check_output(output, (JSONL, NPZ), inputs)
    if len(text_columns) not in (1, 2) or not all(text_columns):
        raise UserError(
            f"text_columns={','.join(text_columns)}: name one column, or two "
            "of a pair, comma-separated."
        )
    read = functools.partial(read_texts, inputs, text_columns, encoding_errors)
    total = 0
    if STANDARD_STREAM not in map(str, inputs):
        # Reports malformed lines before the computation starts.
        total = sum(1 for _ in read())
    # Texts are read a chunk ahead of their vectors.
    rows, ahead = itertools.tee(read())
    given = (parts if parts[1:] else parts[0] for parts, _ in ahead)
    opened, _, texts, note = open_for_texts(
        model, given, settings, precision, runtime
    )
    log(f"{model}: computed by {opened.computed_by}{note}.")
    num_texts = num_empty = num_tokens = 0

    def chunks(progress: Progress) -> Iterator[Chunk]:
        nonlocal num_texts, num_empty, num_tokens
        for chunk in text_vectors(opened, texts, progress.update):
            count = len(chunk.starts) - 1
            parts, begins = zip(*itertools.islice(rows, count), strict=True)
            num_texts += count
            num_empty += sum(not "".join(each).strip() for each in parts)
            num_tokens += int(chunk.starts[-1])
            if chunk.tokens:
                # Offsets in a second text count from the begin of its line.
                shift = np.repeat(begins, np.diff(chunk.starts))
                shift *= chunk.tokens[SEGMENT_IDS.name]
                offsets = chunk.tokens[OFFSETS]
                offsets += np.where(offsets == NOWHERE, 0, shift[:, None])
            yield chunk

    begun = time.monotonic()
    to_npz = pathlib.Path(output).suffix == NPZ
    write = write_npz if to_npz else write_json_lines
    with (
        open_output(output) as file,
        Progress("extracting", total, 0, " texts") as progress,
    ):
        tokens = opened.tokenizer.vocabulary.tokens
        write(file, chunks(progress), settings.layers, tokens)
        if not num_texts:
            names = ",".join(map(str, inputs))
            raise UserError(f"`inputs`={names}: has no text.")
    if num_empty:
        log(
            f"{num_empty:,} of {num_texts:,} lines are empty; their rows have "
            "only special tokens."
        )
    kind = "a vector a token"
    if settings.pooling != PER_TOKEN:
        mean = MEAN if settings.pooling == AUTO else settings.pooling
        kind = f"a vector a text ({opened.modules or mean})"
    return (
        f"{output if to_file else 'standard output'}: {num_texts:,} texts, "
        f"{num_tokens:,} tokens; {kind}, "
        f"layers {','.join(map(str, settings.layers))}, {opened.width} wide; "
        f"{num_texts / (time.monotonic() - begun):,.0f} texts/s."
    )


def write_json_lines(
    file: IO[bytes],
    chunks: Iterable[Chunk],
    layers: Sequence[int],
    tokens: Sequence[str],
) -> None:
    """Writes a JSON object per text, in the layout of google-research/bert.

    {"linex_index": 0, "features": [{"token": "[CLS]", "offsets": null,
    "layers": [{"index": -1, "values": [...]}, ...]}, ...]}, where offsets are
    begin and end in characters; for pooled vectors
    {"linex_index": 0, "layers": [...]}.

    Args:
      file: the file.
      chunks: the vectors.
      layers: the layers as requested, K.
      tokens: the tokens of the vocabulary by id.
    """
    quoted = [
        json.dumps(token, ensure_ascii=False).encode() for token in tokens
    ]
    number = itertools.count()
    for chunk in chunks:
        vectors = rows = _formatted(chunk, layers, quoted)
        if chunk.tokens:
            rows = (
                b'"features": [%s]' % b", ".join(itertools.islice(vectors, n))
                for n in np.diff(chunk.starts)
            )
        for row in rows:
            file.write(b'{"linex_index": %d, %s}\n' % (next(number), row))


def _formatted(
    chunk: Chunk, layers: Sequence[int], quoted: Sequence[bytes]
) -> Iterator[bytes]:
    """Yields the JSON of each vector, behind its token and offsets if any."""
    step = max(1, _NUMBERS // chunk.vectors[0].size)
    for begin in range(0, len(chunk.vectors), step):
        part = slice(begin, begin + step)
        # Several times faster than Python's formatting.
        numbers = tf.strings.as_string(chunk.vectors[part], _DECIMALS)
        joined = tf.strings.reduce_join(numbers, axis=-1, separator=", ")
        formatted = [
            b'"layers": [%s]'
            % b", ".join(
                b'{"index": %d, "values": [%s]}' % (index, values)
                for index, values in zip(layers, row, strict=True)
            )
            for row in joined.numpy()
        ]
        if not chunk.tokens:
            yield from formatted
            continue
        for token_id, (start, end), values in zip(
            chunk.tokens[INPUT_IDS.name][part].tolist(),
            chunk.tokens[OFFSETS][part].tolist(),
            formatted,
            strict=True,
        ):
            at = b"null" if start == NOWHERE else b"[%d, %d]" % (start, end)
            yield b'{"token": %s, "offsets": %s, %s}' % (
                quoted[token_id],
                at,
                values,
            )


def write_npz(
    file: IO[bytes],
    chunks: Iterable[Chunk],
    layers: Sequence[int],
    tokens: Sequence[str],
) -> None:
    """Writes an .npz file that `numpy.load` opens without pickle.

    layers: int32 [K], as requested; vectors: float32 [N, K, H] of N texts, or
    [T, K, H] of the T tokens of all texts. For tokens also
    row_starts: int64 [N + 1], index of each text's first token;
    input_ids: int32 [T]; segment_ids: int32 [T], 1 in the second text of a
    pair; offsets: int32 [T, 2], begin and end in characters, -1 for [CLS] and
    [SEP]; vocabulary: strings [V], so that vocabulary[input_ids] are the
    tokens.

    Args:
      file, chunks, layers, tokens: see `write_json_lines`.
    """
    whole = {"layers": np.array(layers, np.int32)}
    # Arrays that grow, each in an unnamed file, and what their rows are like.
    growing: dict[str, tuple[IO[bytes], np.ndarray]] = {}
    num_tokens = 0
    with contextlib.ExitStack() as files:
        for chunk in chunks:
            arrays = {"vectors": chunk.vectors}
            if chunk.tokens:
                starts = chunk.starts + num_tokens
                arrays["row_starts"] = starts[1:] if num_tokens else starts
                arrays |= chunk.tokens
                num_tokens += int(chunk.starts[-1])
            for name, array in arrays.items():
                if name not in growing:
                    place = pathlib.Path(file.name).parent
                    temporary = tempfile.TemporaryFile(dir=place)  # noqa: SIM115
                    files.enter_context(temporary)
                    # A view would hold the whole chunk.
                    growing[name] = temporary, array[0].copy()
                growing[name][0].write(np.ascontiguousarray(array).data)
        if num_tokens:
            whole["vocabulary"] = np.array(tokens)
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in whole.items():
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            for name, (column, row) in growing.items():
                header = {
                    "descr": np.lib.format.dtype_to_descr(row.dtype),
                    "fortran_order": False,
                    "shape": (column.tell() // row.nbytes, *row.shape),
                }
                column.seek(0)
                with archive.open(
                    f"{name}.npy", "w", force_zip64=True
                ) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    shutil.copyfileobj(column, member, 1 << 20)
