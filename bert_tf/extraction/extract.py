"""From files of texts to a file of vectors."""

import collections
import contextlib
import dataclasses
import os
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.extraction.embed import cut_line
from bert_tf.extraction.extractor import NOWHERE, Chunk, Extractor, Text
from bert_tf.extraction.reading import STANDARD_STREAM, Line, read_lines
from bert_tf.extraction.settings import TOKENS, Settings
from bert_tf.extraction.writing import JsonLinesWriter, NpzWriter
from bert_tf.files import written_beside
from bert_tf.progress import Progress, notice
from bert_tf.text.vocabulary import Vocabulary

JSONL, NPZ = ".jsonl", ".npz"


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
      inputs: files; see `read_lines`. "-" is standard input.
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
    _check_output(output, inputs)
    if len(text_columns) not in (1, 2) or not all(text_columns):
        raise UserError(
            f"text_columns={','.join(text_columns)}: name one column, or two "
            "of a pair, comma-separated."
        )

    def lines() -> Iterator[Line]:
        return read_lines(inputs, text_columns, encoding_errors)

    total = 0
    if STANDARD_STREAM not in map(str, inputs):
        # A mistake in the last line shall not come out after hours.
        total = sum(1 for _ in lines())
    extractor = Extractor.from_checkpoint(model, settings, precision)
    source = _Source(lines())
    vocabulary = extractor.tokenizer.vocabulary
    num_cut = 0
    with (
        _writer(output, settings.layers, vocabulary) as writer,
        Progress("extracting", total, 0, " texts") as progress,
    ):
        for chunk in extractor.chunks(source, progress.update):
            writer.add(source.placed(chunk))
            num_cut += chunk.num_cut
        if not source.num_texts:
            raise UserError(f"`inputs`={_named(inputs)}: has no text.")
    if source.num_empty:
        notice(
            f"{source.num_empty:,} of {source.num_texts:,} lines are empty; "
            "their rows are [CLS] [SEP]."
        )
    if num_cut:
        notice(cut_line(num_cut, source.num_texts, extractor.max_seq_length))
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
        rows = chunk.rows
        self.num_tokens += len(rows.ids)
        begins = np.array([self._begins.popleft() for _ in range(len(rows))])
        if chunk.offsets is None:
            return chunk
        shift = np.repeat(begins, rows.lengths) * rows.segments
        shift = np.where(chunk.offsets == NOWHERE, 0, shift[:, None])
        offsets = chunk.offsets + shift.astype(np.int32)
        return dataclasses.replace(chunk, offsets=offsets)

    def summary(self, output: str | pathlib.Path, extractor: Extractor) -> str:
        settings = extractor.settings
        seconds = time.monotonic() - self._begun
        kind = (
            "a vector a token"
            if settings.pooling == TOKENS
            else f"a vector a text ({settings.pooling})"
        )
        place = "standard output" if str(output) == STANDARD_STREAM else output
        return (
            f"{place}: {self.num_texts:,} texts, {self.num_tokens:,} tokens; "
            f"{kind}, layers {','.join(map(str, settings.layers))}, "
            f"{extractor.encoder.config.hidden_size} wide; "
            f"{self.num_texts / seconds:,.0f} texts/s."
        )


def _check_output(
    output: str | pathlib.Path, inputs: Sequence[str | pathlib.Path]
) -> None:
    path = pathlib.Path(output)
    if str(output) == STANDARD_STREAM:
        return
    if path.suffix not in (JSONL, NPZ):
        raise UserError(
            f"`output`={output}: the name tells the format; end it in .jsonl "
            "or .npz."
        )
    if path.is_dir():
        raise UserError(f"`output`={output}: is a folder; name a file.")
    for source in inputs:
        if path.exists() and path.samefile(source):
            raise UserError(
                f"`output`={output}: is the input; name another file."
            )


@contextlib.contextmanager
def _writer(
    output: str | pathlib.Path, layers: Sequence[int], vocabulary: Vocabulary
) -> Iterator[JsonLinesWriter | NpzWriter]:
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


def _named(inputs: Sequence[str | pathlib.Path]) -> str:
    return ",".join(map(str, inputs))
