"""Answers to the rows of a file, of any size, that a killed run resumes."""

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
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import IO, Any, BinaryIO, Self

from bert_tf.errors import UserError
from bert_tf.families.requests import Refusal
from bert_tf.families.text_model import Answer
from bert_tf.families.usage_options import NO_OPTIONS, UsageOptions
from bert_tf.files import (
    STANDARD_STREAM,
    check_output,
    lock_now,
    sync,
    write_text,
)
from bert_tf.foreign_files import GzipReader
from bert_tf.inference.load import LoadedModel, load
from bert_tf.inference.rows import (
    Columns,
    InputRow,
    PredictSettings,
)
from bert_tf.progress import Progress, log
from bert_tf.recipe import read_json_object

JSONL, CSV = ".jsonl", ".csv"
# What is sorted by length, computed and written together: the largest number
# of rows and of characters. A run that is killed loses no more.
_ROWS, _CHARACTERS = 2048, 1 << 22
_STATE = "state.json"


def predict_file(
    model: str | os.PathLike,
    input: str | os.PathLike,
    output: str | os.PathLike,
    settings: PredictSettings | None = None,
    options: UsageOptions = NO_OPTIONS,
) -> str:
    """Writes a model's answers to the rows of a file, in their order.

    Memory does not grow with the file. The output appears when it is whole;
    until then it grows in OUTPUT.partial, from where the same call resumes. A
    row that has no answer is a line in OUTPUT.errors.jsonl, with its number
    and why; on standard output's way, a line on standard error.

    Args:
      model: what `bert_tf.load` takes.
      input: a .csv, .tsv, .jsonl or .txt file, or one of them .gz; "-" is
        standard input.
      output: a file that ends in .jsonl or .csv; "-" is JSON lines on standard
        output. A line has row, the line of the input that the row begins on,
        index, how many rows come before, the columns that are kept, what was
        asked and the answer; see `LoadedModel.__call__`. A kept column that is
        called as another value has input_ before its name. In CSV each label's
        probability has a column, and lists are JSON.
      settings: how to read the input, and what computes.
      options: how the model is used, where its folder does not state it.

    Returns:
      A line on how many rows were answered.

    Raises:
      UserError: the output cannot be written, has answers to another input
        or, unfinished, of another model, the input has no rows or other
        columns, no row has an answer, or see `bert_tf.load`.
    """
    settings = settings or PredictSettings()
    path, target = str(input), pathlib.Path(output)
    _check(path, target)
    is_file = str(output) != STANDARD_STREAM
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_Source(path))
        writer: _PartialFile | _StandardOutput = _StandardOutput()
        if is_file:
            writer = stack.enter_context(_PartialFile(target))
        loaded = load(
            model,
            settings.batch_size,
            settings.precision,
            settings.device or None,
            **options.given,
        )
        columns = Columns.of_model(loaded.served, loaded.folder, settings)
        if is_file:
            _refuse_other_answers(path, target, columns, settings)
        alike = is_file and target.suffix == CSV
        rows = columns.read(path, source.lines, settings, alike)
        # An input without rows or columns is refused here.
        rows = itertools.chain([next(rows)], rows)
        if isinstance(writer, _PartialFile):
            writer.resume(_fingerprint(loaded, source, columns, settings))
        for _ in itertools.islice(rows, writer.num_rows):
            pass
        begun, before = time.monotonic(), writer.num_rows
        with source.progress() as progress:
            for window in _windows(rows):
                lines, errors = _answers(
                    loaded, window, source.counter(len(window), progress)
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
    found = f"{writer.num_answered:,} of {writer.num_rows:,} rows answered"
    if writer.num_answered < writer.num_rows:
        where = _errors_file(target) if is_file else "standard error"
        found += f"; {where} says why the others are not"
    place = output if is_file else "standard output"
    return f"{place}: {found}; {speed:,.1f} rows/s."


def _check(path: str, output: pathlib.Path) -> None:
    """Raises `UserError` for files that cannot be, before anything is done."""
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
    path: str,
    output: pathlib.Path,
    columns: Columns,
    settings: PredictSettings,
) -> None:
    """Raises `UserError` for a file that has no answers to this input."""
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
                if row.asked is None:
                    raise ValueError
                for name, value in row.asked.items():
                    found: Any = value if isinstance(value, str) else [*value]
                    if output.suffix == CSV and found != value:
                        found = json.dumps(found, ensure_ascii=False)
                    if line[name] != found:
                        raise ValueError
            if not number:
                raise ValueError
        except UserError:
            # The input's.
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
    """The lines of an input, and how much of it is read.

    Args:
      path: the file; "-" is standard input.
    """

    def __init__(self, path: str):
        self.path = path

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
        """What tells this input from another."""
        if self._file is None:
            return [STANDARD_STREAM]
        status = os.fstat(self._file.fileno())
        return [os.path.abspath(self.path), status.st_size, status.st_mtime_ns]

    def progress(self) -> Progress:
        """The bar: of bytes, or of the rows of standard input."""
        if self._file is None:
            return Progress("predicting", 0, 0, " rows")
        self._counted = self._file.tell()
        return Progress("predicting", self.size, self._counted, "B")

    def counter(self, num_rows: int, progress: Progress) -> Iterator[None]:
        """Moves the bar at each row of a window that was read just now."""
        begin, end = self._counted, self._counted + num_rows
        if self._file:
            end = self._file.tell()
        for number in range(1, num_rows + 1):
            now = begin + (end - begin) * number // num_rows
            progress.update(now - self._counted)
            self._counted = now
            yield


def _windows(rows: Iterable[InputRow]) -> Iterator[list[InputRow]]:
    """Consecutive rows that are computed together."""
    window: list[InputRow] = []
    characters = 0
    for row in rows:
        window.append(row)
        characters += sum(map(len, (row.asked or {}).values()))
        characters += sum(len(str(value)) for value in row.kept.values())
        if len(window) == _ROWS or characters >= _CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def _answers(
    model: LoadedModel, window: list[InputRow], counter: Iterator[None]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The lines of the output and those of the errors, each in order."""
    places = [n for n, row in enumerate(window) if row.asked is not None]
    asked = [row.asked for row in window if row.asked is not None]
    found: dict[int, Answer | Refusal] = {}
    for number, answer in model.answers(asked):
        found[places[number]] = answer
        next(counter)
    lines, errors = [], []
    for place, row in enumerate(window):
        answer = found.get(place, Refusal("", row.fault))
        begin = {"row": row.number, "index": row.position}
        if isinstance(answer, Refusal):
            fault = f"{answer.column} {answer.why}".strip()
            errors.append(_with_kept(begin, row.kept, {"error": fault}))
        else:
            values = {**(row.asked or {}), **answer}
            lines.append(_with_kept(begin, row.kept, values))
    for _ in counter:
        pass
    return lines, errors


def _with_kept(
    begin: Mapping[str, Any], kept: Mapping[str, Any], end: Mapping[str, Any]
) -> dict[str, Any]:
    """A line with the columns that are kept amid its own values."""
    line = dict(begin)
    for name, value in kept.items():
        while name in line or name in end:
            name = f"input_{name}"
        line[name] = value
    return {**line, **end}


def _fingerprint(
    model: LoadedModel,
    source: _Source,
    columns: Columns,
    settings: PredictSettings,
) -> dict[str, Any]:
    """What the bytes of an output depend on."""
    digest = hashlib.sha256()
    for weight in model.served.weights:
        digest.update(weight.numpy().tobytes())
    kept = json.dumps([model.facts, model.tokenizer.vocabulary.tokens])
    digest.update(kept.encode())
    return {
        "model": digest.hexdigest(),
        "input": source.fingerprint,
        "settings": [settings.to_dict(), columns.places, columns.header],
    }


class _StandardOutput:
    """Writes JSON lines to standard output, errors to standard error."""

    def __init__(self) -> None:
        self.num_rows = self.num_answered = 0
        self.first_error = ""

    def add(self, lines: list[dict], errors: list[dict]) -> None:
        """Writes the answers and the errors of a window."""
        self.num_rows += len(lines) + len(errors)
        self.num_answered += len(lines)
        sys.stdout.buffer.write(_to_json(lines))
        sys.stdout.buffer.flush()
        for error in errors:
            log(_fault(error))
            self.first_error = self.first_error or _fault(error)

    def finish(self) -> None:
        """Everything is written."""


class _PartialFile:
    """Writes answers into a folder beside the output, until it is whole.

    Args:
      output: the file to write.
    """

    def __init__(self, output: pathlib.Path):
        self.num_rows = self.num_answered = 0
        self.first_error = ""
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
        return self

    def resume(self, fingerprint: dict[str, Any]) -> None:
        """Goes on behind what an earlier run wrote.

        Raises:
          UserError: that was of another input, model or settings.
        """
        # As JSON has it.
        self._fingerprint = json.loads(json.dumps(fingerprint))
        sizes = {"output": 0, "errors": 0}
        if (self._folder / _STATE).is_file():
            state = read_json_object(self._folder / _STATE)
            before = state["fingerprint"]
            for name, value in self._fingerprint.items():
                if before.get(name) != value:
                    raise UserError(
                        f"`output`={self._output}: {self._folder} has "
                        f"{state['rows']:,} rows that another {name} "
                        "answered; delete that folder to begin again."
                    )
            noted = {name: state[name] for name in sizes}
            if self._fingerprint["input"] != [STANDARD_STREAM] and all(
                (self._folder / name).is_file()
                and os.path.getsize(self._folder / name) >= size
                for name, size in noted.items()
            ):
                sizes = noted
                self.num_rows = state["rows"]
                self.num_answered = state["answered"]
                self.first_error = state["first_error"]
                log(f"{self._folder}: resumes behind {self.num_rows:,} rows.")
        for name, size in sizes.items():
            self._files[name] = open(self._folder / name, "ab")
            self._files[name].truncate(size)

    def add(self, lines: list[dict], errors: list[dict]) -> None:
        """Writes the answers and the errors of a window, and notes it."""
        self.num_rows += len(lines) + len(errors)
        if self._output.suffix == CSV:
            text = _to_csv(lines, header=not self.num_answered)
        else:
            text = _to_json(lines)
        self.num_answered += len(lines)
        if errors and not self.first_error:
            self.first_error = _fault(errors[0])
        try:
            self._write({"output": text, "errors": _to_json(errors)})
        except OSError as error:
            # A full disk does not say which file could not grow.
            error.filename = str(self._output)
            raise

    def _write(self, contents: dict[str, bytes]) -> None:
        """Appends to both files, and notes their sizes."""
        for name, content in contents.items():
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

    def finish(self) -> None:
        """Puts the files into their places."""
        errors = _errors_file(self._output)
        if self.num_answered < self.num_rows:
            os.replace(self._folder / "errors", errors)
        else:
            errors.unlink(missing_ok=True)
        os.replace(self._folder / "output", self._output)
        shutil.rmtree(self._folder)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._files.values():
            # What a full disk did not take; that was raised when it was
            # written.
            with contextlib.suppress(OSError):
                file.close()
        if self._lock:
            self._lock.close()
        nothing = bool(self._files) and not self.num_answered
        if nothing or not (self._folder / _STATE).is_file():
            shutil.rmtree(self._folder, ignore_errors=True)
        elif isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(
                f"{self._folder}: {self.num_rows:,} rows are done; the same "
                "command goes on behind them."
            )


def _fault(error: dict) -> str:
    return f"row {error['row']}: {error['error']}"


def _to_json(lines: list[dict]) -> bytes:
    return "".join(
        f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines
    ).encode()


def _to_csv(lines: list[dict], header: bool) -> bytes:
    """Rows of CSV: probabilities by label in columns, lists as JSON."""
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
