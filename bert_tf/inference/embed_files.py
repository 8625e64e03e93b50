"""Writes the vectors of texts in files of any size, and resumes."""

import contextlib
import itertools
import json
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_tf.checkpoints import load_checkpoint
from bert_tf.checkpoints.sentence_files import read_sentence_modules
from bert_tf.checkpoints.sentence_modules import DOCUMENT_PROMPTS, first_prompt
from bert_tf.config import AUTO, KERAS
from bert_tf.errors import UserError
from bert_tf.families.data.similarity import COSINE
from bert_tf.families.pretrained.settings import Settings as VectorSettings
from bert_tf.files import PARQUET, locked, sync, write_text, written_beside
from bert_tf.inference.encode import is_of_tokens, shortened
from bert_tf.inference.quantized_vectors import (
    BYTES,
    number_ranges,
    quantize,
)
from bert_tf.inference.text_rows import NPY, EmbedSettings, TextRow
from bert_tf.inference.vector_folder import (
    DESCRIPTION,
    ID,
    RANGES,
    TEXT,
    VECTOR,
    model_digest,
    shard_files,
)
from bert_tf.inference.vectors import open_for_texts, text_vectors
from bert_tf.progress import Progress, log, silently
from bert_tf.recipe import read_json_object
from bert_tf.sources import local_folder
from bert_tf.tables.table import Table

_LOCK_FILE = ".lock"


def embed_files(
    model: str | os.PathLike,
    input: Any,
    output_dir: str | os.PathLike,
    settings: EmbedSettings | None = None,
) -> str:
    """Writes a folder of vectors; see `VectorFolder`.

        embed_files("minilm", "corpus.jsonl", "vectors")
        folder = VectorFolder("vectors")
        folder.search(bert_tf.load("minilm"), ["a calm sea"])

    Texts are read in constant memory. The same call continues an interrupted
    one after the files that are finished.

    Args:
      model: a model folder or a model on a hub; see `bert_tf.embed`.
      input: files of texts, or a table in memory; see `Table`.
      output_dir: the folder to write.
      settings: how to read the texts, and what to write; None for the
        defaults.

    Returns:
      A summary line.

    Raises:
      UserError: the folder has vectors of another model, input or settings; a
        row has no text; or an argument is invalid.
    """
    settings = settings or EmbedSettings()
    path = pathlib.Path(output_dir)
    table = settings.table(input)
    total = 0
    if table.is_stored:
        # Reports malformed rows before the computation starts.
        total = sum(1 for _ in settings.rows(table))
    with _folder(path):
        return _Run(model, table, path, settings, total).write()


@contextlib.contextmanager
def _folder(path: pathlib.Path) -> Iterator[None]:
    """Locks the folder; removes it again if nothing was written to it."""
    if path.is_file():
        raise UserError(f"`output_dir`={path}: is a file; name a folder.")
    path.mkdir(parents=True, exist_ok=True)
    lock = path / _LOCK_FILE
    names = {each.name for each in path.iterdir() if each.name[0] != "."}
    if names and DESCRIPTION not in names:
        raise UserError(
            f"`output_dir`={path}: has other files than vectors; name a folder "
            "that is not there yet."
        )
    with locked(lock, path):
        try:
            yield
        finally:
            lock.unlink()
            with contextlib.suppress(OSError):
                path.rmdir()


class _Run:
    """Writes the vectors that are not there yet; see `embed_files`."""

    def __init__(
        self,
        model: str | os.PathLike,
        table: Table,
        path: pathlib.Path,
        settings: EmbedSettings,
        total: int,
    ):
        self._path = path
        self._settings = settings
        self._total = total
        # The description by an interrupted run; empty without one.
        stored = read_json_object(path / DESCRIPTION, missing_ok=True)
        if stored and not table.is_stored:
            raise UserError(
                f"`output_dir`={path}: has vectors, and whether they are those "
                f"of {table.name} cannot be told; name another folder."
            )
        self._done = self._finished_files() if stored else 0
        self._ranges: np.ndarray | None = None
        if self._done and settings.vector_precision in BYTES:
            self._ranges = np.load(path / RANGES)
        rows: Iterator[TextRow] = settings.rows(table)
        if table.is_stored:
            rows = silently(rows)
        num_done = self._done * settings.rows_per_file
        rows = itertools.islice(rows, num_done, None)
        # Texts are read a chunk ahead of their vectors.
        self._rows, ahead = itertools.tee(rows)
        modules = read_sentence_modules(load_checkpoint(local_folder(model)))
        if is_of_tokens(modules):
            raise UserError(
                f"`model`={model}: computes no dense vector per text ({modules}"
                "); take encode of bert_tf.load."
            )
        vector_settings = VectorSettings(
            max_seq_length=settings.max_seq_length,
            batch_size=settings.batch_size,
            prompt_name=settings.prompt_name
            or first_prompt(modules, DOCUMENT_PROMPTS),
        )
        computed_in = stored.get("computed_in", settings.precision)
        runtime = settings.runtime
        # Where another runtime left the model to Keras, it does so again.
        if runtime == AUTO and stored.get("runtime") == KERAS:
            runtime = KERAS
        self._model, self._computed_in, self._texts, note = open_for_texts(
            model,
            (row.text for row in ahead),
            vector_settings,
            computed_in,
            runtime,
        )
        log(f"{model}: computed by {self._model.computed_by}{note}.")
        kept = settings.truncate_dim or None
        width = shortened(np.zeros((1, self._model.width)), kept).shape[1]
        self._description: dict[str, Any] = {
            "model": os.fspath(model),
            "model_digest": model_digest(self._model),
            "width": width,
            "normalized": settings.normalize,
            "precision": settings.vector_precision,
            "similarity": (modules and modules.similarity) or COSINE,
            "file_format": settings.file_format,
            "rows_per_file": settings.rows_per_file,
            "input": table.fingerprint,
            "settings": settings.to_dict(),
        }
        if stored:
            self._refuse_other(stored)

    def _finished_files(self) -> int:
        names = map(self._file, itertools.count())
        return sum(1 for _ in itertools.takewhile(pathlib.Path.is_file, names))

    def _file(self, number: int) -> pathlib.Path:
        return self._path / shard_files(self._settings.file_format, number)[0]

    def _refuse_other(self, stored: dict[str, Any]) -> None:
        """Raises `UserError` if the folder has vectors of something else."""
        for name in ("model_digest", "input", "settings"):
            before, now = stored.get(name), self._description[name]
            if before != json.loads(json.dumps(now)):
                what = {"model_digest": "model"}.get(name, name)
                shown = ""
                if name == "settings" and isinstance(before, dict):
                    odd = [n for n, v in now.items() if before.get(n) != v]
                    shown = f" ({', '.join(odd)})"
                raise UserError(
                    f"`output_dir`={self._path}: has vectors of another {what}"
                    f"{shown}; name another folder, or delete it."
                )

    def write(self) -> str:
        """Writes the files; returns a summary line."""
        settings, path = self._settings, self._path
        size = settings.rows_per_file
        num_rows = before = min(self._done * size, self._total)
        begun = time.monotonic()
        try:
            with Progress("embedding", self._total, before, " texts") as bar:
                for number, vectors in enumerate(
                    self._shards(bar), start=self._done
                ):
                    rows = list(itertools.islice(self._rows, len(vectors)))
                    if not number:
                        self._describe(None)
                        if self._ranges is not None:
                            _save(path / RANGES, self._ranges)
                    self._write_shard(number, rows, vectors)
                    num_rows = number * size + len(rows)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"{path}: {num_rows:,} texts are done; the same command "
                "continues after them."
            ) from None
        self._describe(num_rows)
        rate = (num_rows - before) / (time.monotonic() - begun)
        return (
            f"{path}: {num_rows:,} vectors of "
            f"{self._description['width']:,} numbers in "
            f"{settings.vector_precision}; {rate:,.0f} texts/s."
        )

    def _describe(self, num_rows: int | None) -> None:
        values = self._description | {
            "num_rows": num_rows,
            "computed_in": self._computed_in,
            "runtime": self._model.runtime_kind,
        }
        text = json.dumps(values, ensure_ascii=False, indent=2)
        write_text(self._path / DESCRIPTION, text + "\n")

    def _shards(self, progress: Progress) -> Iterator[np.ndarray]:
        """Yields the quantized vectors of each file."""
        settings = self._settings
        chunks = text_vectors(
            self._model, self._texts, progress.update, settings.rows_per_file
        )
        parts: list[np.ndarray] = []
        for chunk in chunks:
            parts.append(chunk.vectors[:, 0])
            if sum(map(len, parts)) == settings.rows_per_file:
                yield self._finished(np.concatenate(parts))
                parts = []
        if parts:
            yield self._finished(np.concatenate(parts))

    def _finished(self, vectors: np.ndarray) -> np.ndarray:
        settings = self._settings
        kept = settings.truncate_dim or None
        vectors = shortened(vectors, kept, settings.normalize)
        if settings.vector_precision in BYTES and self._ranges is None:
            if len(vectors) < 2:
                raise UserError(
                    f"`vector_precision`={settings.vector_precision}: one text "
                    "has no range of numbers; take float32."
                )
            self._ranges = number_ranges(vectors)
        return quantize(vectors, settings.vector_precision, self._ranges)

    def _write_shard(
        self, number: int, rows: list[TextRow], vectors: np.ndarray
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet

        settings = self._settings
        names = shard_files(settings.file_format, number)
        ids: list[str | int] = [row.id for row in rows]
        if any(isinstance(each, str) for each in ids):
            # Some rows of JSON lines may have none.
            ids = [*map(str, ids)]
        columns = {
            ID: pa.array(ids),
            TEXT: pa.array([row.text for row in rows], pa.large_string()),
        }
        if settings.file_format == PARQUET:
            numbers = pa.array(vectors.reshape(-1))
            columns[VECTOR] = pa.FixedSizeListArray.from_arrays(
                numbers, vectors.shape[1]
            )
        with written_beside(self._path / names[1]) as beside:
            pyarrow.parquet.write_table(pa.table(columns), beside)
            sync(beside)
        if settings.file_format == NPY:
            # Last: this file makes the shard a finished one.
            _save(self._path / names[0], vectors)


def _save(path: pathlib.Path, array: np.ndarray) -> None:
    with written_beside(path) as beside:
        with open(beside, "wb") as file:
            np.save(file, array)
        sync(beside)
