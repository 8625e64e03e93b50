"""Predicts the rows of a file of any size, and resumes interrupted runs."""

import contextlib
import csv
import hashlib
import io
import itertools
import json
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, BinaryIO, Self

from bert_tf.config import AUTO, KERAS
from bert_tf.errors import UserError
from bert_tf.families.requests import Refusal
from bert_tf.families.text_model import Answer
from bert_tf.families.usage_options import NO_OPTIONS, UsageOptions
from bert_tf.files import (
    STANDARD_STREAM,
    arrow_kind,
    check_output,
    lock_now,
    sync,
    write_text,
)
from bert_tf.foreign_files import GzipReader
from bert_tf.inference.load import LoadedModel, load
from bert_tf.inference.precision import (
    choose,
    difference_of_answers,
)
from bert_tf.inference.rows import Columns, InputRow, PredictSettings
from bert_tf.layers.initialization import bytes_of
from bert_tf.progress import Progress, log
from bert_tf.recipe import read_json_object

JSONL, CSV = ".jsonl", ".csv"
# At most this many rows and characters are sorted by length, computed and
# written together. Interrupted runs lose at most one such chunk.
_ROWS, _CHARACTERS = 2048, 1 << 22
_STATE = "state.json"


def predict_file(
    model: str | os.PathLike,
    input: str | os.PathLike,
    output: str | os.PathLike,
    settings: PredictSettings | None = None,
    options: UsageOptions = NO_OPTIONS,
) -> str:
    """Writes a model's answers to the rows of a file, in constant memory.

    The output appears when it is complete; until then it grows in
    OUTPUT.partial, from which the same call resumes. Rows without an answer are
    lines in OUTPUT.errors.jsonl with their number and the reason, or lines on
    standard error if the output is standard output.

    Args:
      model: a model folder; see `bert_tf.load`.
      input: a .csv, .tsv, .jsonl or .txt file, which may be .gz, or a
        .parquet, .arrow or .feather file; "-" is standard input.
      output: a .jsonl or .csv file; "-" is JSON lines on standard output. A
        line has row, the input line on which the row begins; index, the number
        of rows before it; the columns to keep; the model's inputs; and the
        answer, see `LoadedModel.__call__`. A kept column with the name of
        another value gets the prefix input_. In CSV, each label's probability
        is a column, and lists are JSON.
      settings: how to read the input, and how to compute.
      options: how the model is used, where its folder does not state it.

    Returns:
      A summary line.

    Raises:
      UserError: the output cannot be written or has answers to another input,
        an unfinished output is of another model, the input has no rows or
        lacks a column, no row has an answer; or see `bert_tf.load`.
    """
    settings = settings or PredictSettings()
    path, target = str(input), pathlib.Path(output)
    _check(path, target)
    is_file = str(output) != STANDARD_STREAM
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_Source(path))
        writer: _Writer = _StandardOutput()
        if is_file:
            writer = stack.enter_context(_PartialFile(target))

        def opened(precision: str, runtime: str) -> LoadedModel:
            return load(
                model,
                settings.batch_size,
                precision,
                settings.device or None,
                runtime,
                **options.given,
            )

        def columns_of(loaded: LoadedModel) -> Columns:
            return Columns.of_model(loaded.served, loaded.folder, settings)

        def rows_of(loaded: LoadedModel) -> Iterator[InputRow]:
            columns = columns_of(loaded)
            if is_file:
                _refuse_other_answers(path, target, columns, settings)
            is_csv = is_file and target.suffix == CSV
            rows = columns.read(path, source.lines, settings, is_csv)
            # Raises here if the input has no rows or lacks a column.
            return itertools.chain([next(rows)], rows)

        precision, runtime = writer.choice(settings)
        if precision == AUTO:
            loaded, precision, rows, note = choose(
                opened,
                runtime,
                lambda loaded: loaded.served,
                rows_of,
                _in_order,
                difference_of_answers,
            )
        else:
            loaded = opened(precision, runtime)
            rows, note = rows_of(loaded), ""
        if isinstance(writer, _PartialFile):
            columns = columns_of(loaded)
            writer.resume(
                _fingerprint(loaded, precision, source, columns, settings)
            )
        log(f"{model}: computed by {loaded.served.computed_by}{note}.")
        for _ in itertools.islice(rows, writer.num_rows):
            pass
        begun, before = time.monotonic(), writer.num_rows
        with source.progress() as progress:
            for chunk in _chunks(rows):
                lines, errors = _answers(
                    loaded, chunk, source.counter(len(chunk), progress)
                )
                writer.add(lines, errors)
                speed = (writer.num_rows - before) / (time.monotonic() - begun)
                progress.update(0, f"{speed:,.0f} rows/s")
        if not writer.num_answered:
            raise UserError(
                f"`input`={path}: none of its {writer.num_rows:,} rows has an "
                f"answer. The first: {writer.first_error}"
            )
        writer.finish()
    done = writer.num_rows - before
    speed = done / max(time.monotonic() - begun, 1e-9)
    counts = f"{writer.num_answered:,} of {writer.num_rows:,} rows answered"
    if writer.num_answered < writer.num_rows:
        where = _errors_file(target) if is_file else "standard error"
        counts += f"; {where} says why the others are not"
    place = output if is_file else "standard output"
    return f"{place}: {counts}; {speed:,.1f} rows/s."


def _check(path: str, output: pathlib.Path) -> None:
    """Raises `UserError` for invalid file names."""
    if path != STANDARD_STREAM:
        if not os.path.exists(path):
            raise UserError(f"`input`={path}: no such file.")
        if os.path.isdir(path):
            raise UserError(f"`input`={path}: is a folder; name a file.")
        if not os.path.getsize(path):
            raise UserError(f"`input`={path}: is empty.")
    if str(output) != STANDARD_STREAM:
        check_output(output, (JSONL, CSV), [path])


def _refuse_other_answers(
    path: str, output: pathlib.Path, columns: Columns, settings: PredictSettings
) -> None:
    """Raises `UserError` if the output exists, with answers to other rows."""
    if not output.exists() or not output.stat().st_size:
        return
    advice = "delete it or name another file."
    if path == STANDARD_STREAM:
        raise UserError(
            f"`output`={output}: is there already, and whether it answers "
            f"standard input cannot be told; {advice}"
        )
    csv.field_size_limit(2**31 - 1)
    with (
        _Source(path) as source,
        output.open(encoding="utf-8", newline="") as file,
    ):
        rows = columns.read(path, source.lines, settings)
        try:
            answered: Iterator[dict[str, Any]] = map(json.loads, file)
            if output.suffix == CSV:
                answered = csv.DictReader(file)
            number = 0
            for line in answered:
                number = int(line["row"])
                row = next(row for row in rows if row.number == number)
                if row.inputs is None:
                    raise ValueError
                for name, value in row.inputs.items():
                    cell: Any = value if isinstance(value, str) else [*value]
                    if output.suffix == CSV and cell != value:
                        cell = json.dumps(cell, ensure_ascii=False)
                    if line[name] != cell:
                        raise ValueError
            if not number:
                raise ValueError
        except UserError:
            raise
        except (
            ValueError,
            LookupError,
            TypeError,
            StopIteration,
            RecursionError,
            csv.Error,
        ):
            raise UserError(
                f"`output`={output}: is there already and has other lines than "
                f"answers to {path}; {advice}"
            ) from None


def _errors_file(output: pathlib.Path) -> pathlib.Path:
    return output.with_name(f"{output.name}.errors{JSONL}")


class _Source:
    """The lines of a file or of standard input, and its progress bar."""

    def __init__(self, path: str):
        self.path = path
        # Parquet and Arrow files are not read from beginning to end.
        self._counts_rows = path == STANDARD_STREAM or bool(arrow_kind(path))

    def __enter__(self) -> Self:
        self._file: BinaryIO | None = None
        self.lines: Iterable[bytes] = sys.stdin.buffer
        self.size = 0
        if self.path != STANDARD_STREAM:
            self._file = open(self.path, "rb")
            self.size = os.fstat(self._file.fileno()).st_size
            self.lines = self._file
            if self.path.endswith(".gz"):
                self.lines = GzipReader(self.path, self._file)
        self._counted = 0
        return self

    def __exit__(self, *error: object) -> None:
        if self._file:
            self._file.close()

    @property
    def fingerprint(self) -> list[str | int]:
        """Identifies the input, to resume only with the same one."""
        if self._file is None:
            return [STANDARD_STREAM]
        status = os.fstat(self._file.fileno())
        return [os.path.abspath(self.path), status.st_size, status.st_mtime_ns]

    def progress(self) -> Progress:
        """Creates a bar of bytes, or of rows for standard input."""
        if self._file is None or self._counts_rows:
            return Progress("predicting", 0, 0, " rows")
        self._counted = self._file.tell()
        return Progress("predicting", self.size, self._counted, "B")

    def counter(self, num_rows: int, progress: Progress) -> Iterator[None]:
        """Advances the bar with each row of the chunk that was just read."""
        begin, end = self._counted, self._counted + num_rows
        if self._file and not self._counts_rows:
            end = self._file.tell()
        for number in range(1, num_rows + 1):
            now = begin + (end - begin) * number // num_rows
            progress.update(now - self._counted)
            self._counted = now
            yield


def _chunks(rows: Iterable[InputRow]) -> Iterator[list[InputRow]]:
    """Yields consecutive rows that are computed together."""
    chunk: list[InputRow] = []
    characters = 0
    for row in rows:
        chunk.append(row)
        characters += sum(map(len, (row.inputs or {}).values()))
        characters += sum(len(str(value)) for value in row.kept.values())
        if len(chunk) == _ROWS or characters >= _CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _in_order(
    model: LoadedModel, rows: Sequence[InputRow]
) -> list[Answer | Refusal]:
    """Returns the answers of the rows that are not malformed."""
    inputs = [row.inputs for row in rows if row.inputs is not None]
    found = dict(model.answers(inputs))
    return [found[number] for number in range(len(inputs))]


def _answers(
    model: LoadedModel, chunk: list[InputRow], counter: Iterator[None]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the output lines and the error lines of a chunk, in order."""
    valid = [row for row in chunk if row.inputs is not None]
    inputs = [row.inputs for row in valid if row.inputs is not None]
    answers: dict[int, Answer | Refusal] = {}
    for number, answer in model.answers(inputs):
        answers[valid[number].position] = answer
        next(counter)
    lines, errors = [], []
    for row in chunk:
        answer = answers.get(row.position, Refusal("", row.fault))
        begin = {"row": row.number, "index": row.position}
        if isinstance(answer, Refusal):
            fault = f"{answer.column} {answer.why}".strip()
            errors.append(_with_kept(begin, row.kept, {"error": fault}))
        else:
            values = {**(row.inputs or {}), **answer}
            lines.append(_with_kept(begin, row.kept, values))
    for _ in counter:
        pass
    return lines, errors


def _with_kept(
    begin: Mapping[str, Any], kept: Mapping[str, Any], end: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns a line with kept columns, which are renamed if necessary."""
    line = dict(begin)
    for name, value in kept.items():
        while name in line or name in end:
            name = f"input_{name}"
        line[name] = value
    return {**line, **end}


def _fingerprint(
    model: LoadedModel,
    precision: str,
    source: _Source,
    columns: Columns,
    settings: PredictSettings,
) -> dict[str, Any]:
    """Identifies everything that determines the output."""
    digest = hashlib.sha256()
    for weight in model.served.weights:
        digest.update(bytes_of(weight))
    kept = json.dumps([model.facts, model.tokenizer.vocabulary.tokens])
    digest.update(kept.encode())
    return {
        "model": digest.hexdigest(),
        "input": source.fingerprint,
        "settings": [settings.to_dict(), columns.columns, columns.header],
        "precision": precision,
        "runtime": model.served.runtime_kind,
    }


class _Writer:
    """Counts the rows that a subclass writes."""

    def __init__(self) -> None:
        self.num_rows = self.num_answered = 0
        self.first_error = ""

    def choice(self, settings: PredictSettings) -> tuple[str, str]:
        """Returns the precision and the runtime to open the model with."""
        return settings.precision, settings.runtime

    def add(self, lines: list[dict], errors: list[dict]) -> None:
        """Counts the answers and errors of a chunk."""
        self.num_rows += len(lines) + len(errors)
        self.num_answered += len(lines)
        if errors and not self.first_error:
            self.first_error = _fault(errors[0])

    def finish(self) -> None:
        """Completes the output."""


class _StandardOutput(_Writer):
    """Writes JSON lines to standard output, errors to standard error."""

    def add(self, lines: list[dict], errors: list[dict]) -> None:
        """Writes the answers and errors of a chunk."""
        super().add(lines, errors)
        sys.stdout.buffer.write(_to_json(lines))
        sys.stdout.buffer.flush()
        for error in errors:
            log(_fault(error))


class _PartialFile(_Writer):
    """Writes answers to OUTPUT.partial until the output is complete."""

    def __init__(self, output: pathlib.Path):
        super().__init__()
        self._output = output
        self._folder = output.with_name(f"{output.name}.partial")
        self._files: dict[str, IO[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock_now(self._folder / "lock")
        except OSError as error:
            raise UserError(
                f"`output`={self._output}: cannot be written there "
                f"({error.strerror}); name another place."
            ) from None
        if self._lock is None:
            raise UserError(
                f"`output`={self._output}: another run is writing it; wait for "
                "it or name another file."
            )
        # The state of the run that was interrupted; empty without one.
        state = read_json_object(self._folder / _STATE, missing_ok=True)
        self._state: dict[str, Any] = state
        return self

    def choice(self, settings: PredictSettings) -> tuple[str, str]:
        """Returns what the interrupted run chose where the settings do not."""
        precision, runtime = super().choice(settings)
        before = self._state.get("fingerprint", {})
        if precision == AUTO:
            precision = before.get("precision", AUTO)
        # Where OpenVINO leaves the model to Keras, it does so again.
        if runtime == AUTO and before.get("runtime") == KERAS:
            runtime = KERAS
        return precision, runtime

    def resume(self, fingerprint: dict[str, Any]) -> None:
        """Continues the output of an interrupted run.

        Raises:
          UserError: the run had another input, model or settings.
        """
        # Tuples become lists, as in the stored fingerprint.
        self._fingerprint = json.loads(json.dumps(fingerprint))
        sizes = {"output": 0, "errors": 0}
        if state := self._state:
            before = state["fingerprint"]
            for name, value in self._fingerprint.items():
                if before.get(name) != value:
                    raise UserError(
                        f"`output`={self._output}: {self._folder} has "
                        f"{state['rows']:,} rows that another {name} "
                        "answered; delete that folder to begin again."
                    )
            stored = {name: state[name] for name in sizes}
            if self._fingerprint["input"] != [STANDARD_STREAM] and all(
                (self._folder / name).is_file()
                and os.path.getsize(self._folder / name) >= size
                for name, size in stored.items()
            ):
                sizes = stored
                self.num_rows = state["rows"]
                self.num_answered = state["answered"]
                self.first_error = state["first_error"]
                log(f"{self._folder}: resumes after {self.num_rows:,} rows.")
        for name, size in sizes.items():
            self._files[name] = open(self._folder / name, "ab")
            self._files[name].truncate(size)

    def add(self, lines: list[dict], errors: list[dict]) -> None:
        """Appends the answers and errors of a chunk, and stores the state."""
        if self._output.suffix == CSV:
            text = _to_csv(lines, header=not self.num_answered)
        else:
            text = _to_json(lines)
        super().add(lines, errors)
        try:
            for name, content in ("output", text), ("errors", _to_json(errors)):
                self._files[name].write(content)
                self._files[name].flush()
                sync(self._folder / name)
            state = {
                "fingerprint": self._fingerprint,
                "rows": self.num_rows,
                "answered": self.num_answered,
                "first_error": self.first_error,
                **{n: os.path.getsize(self._folder / n) for n in self._files},
            }
            write_text(self._folder / _STATE, json.dumps(state))
        except OSError as error:
            # The error of a full disk does not name the file.
            error.filename = str(self._output)
            raise

    def finish(self) -> None:
        """Moves the files to their final names."""
        errors = _errors_file(self._output)
        if self.num_answered < self.num_rows:
            os.replace(self._folder / "errors", errors)
        else:
            errors.unlink(missing_ok=True)
        os.replace(self._folder / "output", self._output)
        shutil.rmtree(self._folder)

    def __exit__(
        self, _kind: object, error: BaseException | None, _trace: object
    ) -> None:
        for file in self._files.values():
            # Flushing to a full disk fails again; `add` has raised the error.
            with contextlib.suppress(OSError):
                file.close()
        if self._lock:
            self._lock.close()
        is_empty = bool(self._files) and not self.num_answered
        if is_empty or not (self._folder / _STATE).is_file():
            shutil.rmtree(self._folder, ignore_errors=True)
        elif isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(
                f"{self._folder}: {self.num_rows:,} rows are done; the same "
                "command resumes after them."
            )


def _fault(error: dict) -> str:
    return f"row {error['row']}: {error['error']}"


def _to_json(lines: list[dict]) -> bytes:
    return "".join(
        f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines
    ).encode()


def _to_csv(lines: list[dict], header: bool) -> bytes:
    """Formats rows of CSV: a column per label's probability, lists as JSON."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    for line in lines:
        cells: dict[str, Any] = {}
        for name, value in line.items():
            if isinstance(value, dict) and name == "probabilities":
                cells |= {f"probability of {n}": v for n, v in value.items()}
            elif isinstance(value, list | tuple | dict):
                cells[name] = json.dumps(value, ensure_ascii=False)
            else:
                cells[name] = value
        if header:
            table.writerow(cells)
            header = False
        table.writerow(cells.values())
    return text.getvalue().encode()
