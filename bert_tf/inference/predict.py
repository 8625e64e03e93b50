"""Predicts the rows of a file of any size, and resumes interrupted runs."""

import contextlib
import csv
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Self

import numpy as np

from bert_tf.config import AUTO, KERAS
from bert_tf.errors import Fault, UserError
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
from bert_tf.inference.cells import Inputs
from bert_tf.inference.load import LoadedModel, load
from bert_tf.inference.precision import (
    choose,
    difference_of_answers,
)
from bert_tf.inference.rows import Columns, PredictSettings
from bert_tf.layers.initialization import bytes_of
from bert_tf.progress import Progress, log
from bert_tf.recipe import join_settings, read_json_object
from bert_tf.tables.table import Row, Table, existing_files
from bert_tf.tables.writing import (
    CSV,
    ENDINGS,
    JSONL,
    PARQUET,
    TSV,
    json_to_parquet,
    read_written,
    refuse_tabs,
    to_cells,
    to_json,
    without_formula,
)

# At most this many rows and characters are sorted by length, computed and
# written together. Interrupted runs lose at most one such chunk.
_ROWS, _CHARACTERS = 2048, 1 << 22
_STATE = "state.json"


def predict_file(
    model: str | os.PathLike,
    input: Any,
    output: str | os.PathLike,
    settings: PredictSettings | None = None,
    options: UsageOptions = NO_OPTIONS,
) -> str:
    """Writes a model's answers to the rows of a file; see `predict`.

    Args:
      model: a model folder; see `bert_tf.load`.
      input: as `predict` takes it; "-" is standard input.
      output: as `predict` takes it; "-" is JSON lines on standard output, and
        errors on standard error.
      settings: how to read the input, and how to compute.
      options: how the model is used, where its folder does not state it.

    Returns:
      A summary line.
    """
    settings = settings or PredictSettings()
    writer = _writer_of(output, input, settings)
    return _answer_rows(model, input, writer, settings, options)


def predict(
    model: str | os.PathLike | LoadedModel,
    input: Any,
    output: str | os.PathLike | None = None,
    *,
    text_column: str | None = None,
    keep_columns: str | None = None,
    settings: Mapping[str, Any] | None = None,
    **others: Any,
) -> pathlib.Path | list[dict[str, Any]] | dict[str, Any]:
    """Answers the rows of files or a table, as `bert-tf predict` does.

        bert_tf.predict("out/stars", "new.csv", "answers.jsonl")
        answers = bert_tf.predict("out/stars", frame, keep_columns="*")

    Files are answered in constant memory. The output appears when it is
    complete; until then it grows in OUTPUT.partial, from which the same call
    resumes. Rows without an answer are lines in OUTPUT.errors.jsonl with their
    number and the reason.

    Args:
      model: a model folder, or a model of `bert_tf.load`.
      input: the path of a .csv, .tsv, .jsonl or .txt file, which may be .gz,
        .bz2 or .zst, or of a .parquet, .arrow or .feather file; several of them
        or globs, comma-separated. In memory: a DataFrame of pandas or polars, a
        table of pyarrow, a data set of `datasets`, a mapping of columns, a list
        of rows; or a list of texts, or pairs of texts, for a model of these.
        Without `output` also one text: a string that names no file and does not
        look like a path, which has an ending such as .csv or no blanks but a /
        or *.
      output: a .jsonl, .csv, .tsv or .parquet file. A line has file, if there
        are several; row, the input line on which the row begins, in memory its
        position; index, the number of rows before it; the columns to keep; the
        model's inputs; and the answer, see `LoadedModel.__call__`. A kept
        column with the name of another value gets the prefix input_. In tables,
        each label's probability is a column; in CSV and TSV, lists are JSON.
      text_column: column of the text; by default that of the model's training,
        or text.
      keep_columns: columns to copy to the answers, comma-separated; "*" is all
        that the model does not read.
      settings: other settings by name, as a mapping.
      **others: any other setting of the command: question_column and others of
        columns and formats; and for a model folder batch_size, precision,
        runtime and device, see `bert_tf.load`.

    Returns:
      The path of the output. Without one, its lines in memory as a dict for
      each row, in their order; those of rows without an answer have error. For
      one text the dict.

    Raises:
      UserError: the output cannot be written or has answers to another input,
        an unfinished output is of another model, the input has no rows or
        lacks a column, no row has an answer; or see `bert_tf.load`.
    """
    columns = {"text_column": text_column, "keep_columns": keep_columns}
    given = join_settings(columns | others, settings)
    if isinstance(model, LoadedModel):
        for name in ("batch_size", "precision", "runtime", "device"):
            if name in given:
                raise UserError(
                    f"`{name}`={given[name]}: the model is loaded already; "
                    "give it to bert_tf.load."
                )
    chosen = PredictSettings.from_arguments(
        given, "the settings of predict", predict
    )
    is_one = output is None and isinstance(input, str) and _is_text(input)
    input = [input] if is_one else input
    writer = _writer_of(output, input, chosen)
    summary = _answer_rows(model, input, writer, chosen)
    if isinstance(writer, _Collected):
        return writer.rows[0] if is_one else writer.rows
    log(summary)
    return pathlib.Path(writer.place)


def _is_text(given: str) -> bool:
    """Whether a string is a text to answer, and not the path of a file."""
    looks_like_path = re.search(r"\.\w+$", given) or re.fullmatch(
        r"\S*[/\\*]\S*", given
    )
    is_file = given == STANDARD_STREAM or os.path.exists(given)
    return bool(given.strip()) and not looks_like_path and not is_file


def _answer_rows(
    model: str | os.PathLike | LoadedModel,
    input: Any,
    writer: "_Writer",
    settings: PredictSettings,
    options: UsageOptions = NO_OPTIONS,
) -> str:
    """Writes the answers to all rows; returns a summary line."""
    with contextlib.ExitStack() as stack:
        if isinstance(writer, _PartialFile):
            stack.enter_context(writer)
        in_file = isinstance(input, str | os.PathLike)
        labels = _candidates(settings)
        # Other labels need no columns of the training.
        if in_file and not isinstance(model, LoadedModel) and not labels:
            _check_header(pathlib.Path(model), input, settings)

        def opened(precision: str, runtime: str) -> LoadedModel:
            found = model
            if not isinstance(found, LoadedModel):
                found = load(
                    found,
                    settings.batch_size,
                    precision,
                    settings.device or None,
                    runtime,
                    **options.given,
                )
            if not labels:
                return found
            return found.with_labels(
                labels, settings.template, settings.multi_label
            )

        def columns_of(loaded: LoadedModel) -> Columns:
            return Columns.of_model(loaded.served, loaded.folder, settings)

        table = Table(())

        def rows_of(loaded: LoadedModel) -> Iterator[Row]:
            # The model's folder may state that its files have no header.
            nonlocal table
            columns = columns_of(loaded)
            table = columns.table(input, settings)
            same_columns = False
            if isinstance(writer, _PartialFile):
                target = pathlib.Path(writer.place)
                _refuse_other_answers(table, target, columns, settings)
                same_columns = target.suffix in (CSV, TSV)
            rows = columns.read(table, settings, same_columns)
            stack.enter_context(contextlib.closing(rows))
            # Raises here if the input has no rows or lacks a column.
            return itertools.chain([next(rows)], rows)

        precision, runtime = writer.choice(settings)
        if isinstance(model, LoadedModel):
            precision = model.served.compute_dtype
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
                _fingerprint(loaded, precision, table, columns, settings)
            )
        if loaded is not model:
            log(f"{model}: computed by {loaded.served.computed_by}{note}.")
        for _ in itertools.islice(rows, writer.num_rows):
            pass
        begun, before = time.monotonic(), writer.num_rows
        with _progress(table) as progress:
            counted = table.bytes_read
            for chunk in _chunks(rows):
                end = counted + len(chunk)
                if table.bytes_in_files:
                    end = table.bytes_read
                shares = np.linspace(counted, end, len(chunk) + 1, dtype=int)
                counter = map(progress.update, np.diff(shares).tolist())
                with_file = len(table.files) > 1
                lines, errors = _answers(loaded, chunk, counter, with_file)
                counted = end
                writer.add(lines, errors)
                speed = (writer.num_rows - before) / (time.monotonic() - begun)
                progress.update(0, f"{speed:,.0f} rows/s")
        if not writer.num_answered:
            shown = f"`input`={table.name}" if table.files else table.name
            raise UserError(
                f"{shown}: none of its {writer.num_rows:,} rows has an answer. "
                f"The first: {writer.first_error}"
            )
        writer.finish()
    done = writer.num_rows - before
    speed = done / max(time.monotonic() - begun, 1e-9)
    counts = f"{writer.num_answered:,} of {writer.num_rows:,} rows answered"
    if writer.num_answered < writer.num_rows:
        counts += f"; {writer.errors} says why the others are not"
    return f"{writer.place}: {counts}; {speed:,.1f} rows/s."


def _candidates(settings: PredictSettings) -> tuple[str, ...]:
    """Returns the labels of a zero-shot classification; none without one."""
    if not settings.candidate_labels:
        return ()
    # Only these models are asked for labels.
    from bert_tf.families.text_classification.zero_shot import check_candidates

    labels = map(str.strip, settings.candidate_labels.split(","))
    return check_candidates(labels, "candidate_labels")


def _check_header(
    folder: pathlib.Path, source: Any, settings: PredictSettings
) -> None:
    """Raises `UserError` if the columns that a folder states are missing.

    It takes no model, which takes seconds to load.
    """
    columns = Columns.of_folder(folder, settings)
    table = columns.table(source, settings)
    if columns.columns and table.files != (STANDARD_STREAM,):
        with contextlib.closing(columns.read(table, settings)) as rows:
            next(rows)


def _writer_of(
    output: str | os.PathLike | None, source: Any, settings: PredictSettings
) -> "_Writer":
    """Returns the writer; raises `UserError` for invalid file names."""
    paths: tuple[str, ...] = ()
    if isinstance(source, str | os.PathLike):
        paths = existing_files(os.fspath(source), "input")
    for path in paths:
        if path != STANDARD_STREAM:
            if os.path.isdir(path):
                raise UserError(f"`input`={path}: is a folder; name a file.")
            if not os.path.getsize(path):
                raise UserError(f"`input`={path}: is empty.")
    if output is None:
        return _Collected()
    if str(output) == STANDARD_STREAM:
        return _StandardOutput()
    check_output(output, ENDINGS, paths)
    return _PartialFile(pathlib.Path(output), settings.escape_formulas)


def _refuse_other_answers(
    table: Table,
    output: pathlib.Path,
    columns: Columns,
    settings: PredictSettings,
) -> None:
    """Raises `UserError` if the output exists, with answers to other rows."""
    if not output.exists() or not output.stat().st_size:
        return
    advice = "delete it or name another file."
    if STANDARD_STREAM in table.files:
        raise UserError(
            f"`output`={output}: is there already, and whether it answers "
            f"standard input cannot be told; {advice}"
        )
    try:
        with (
            contextlib.closing(columns.read(table, settings)) as rows,
            contextlib.closing(read_written(output)) as lines,
        ):
            number = -1
            for line in lines:
                number = int(line["index"])
                row = next(row for row in rows if row.position == number)
                if row.fault:
                    raise ValueError
                for name, value in zip(columns.columns, row.cells, strict=True):
                    cell: Any = (
                        value if isinstance(value, str) else [*(value or ())]
                    )
                    is_text = output.suffix in (CSV, TSV)
                    if is_text and cell != value:
                        cell = json.dumps(cell, ensure_ascii=False)
                    if is_text and settings.escape_formulas:
                        cell = without_formula(cell)
                    if line[name] != cell:
                        raise ValueError
            if number < 0:
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
            f"answers to {table.name}; {advice}"
        ) from None


def _errors_file(output: pathlib.Path) -> pathlib.Path:
    return output.with_name(f"{output.name}.errors{JSONL}")


def _progress(table: Table) -> Progress:
    """Creates a bar of bytes, or of rows if bytes cannot be counted."""
    if table.bytes_in_files:
        size, before = table.bytes_in_files, table.bytes_read
        return Progress("predicting", size, before, "B")
    return Progress("predicting", table.num_rows, 0, " rows")


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yields consecutive rows that are computed together."""
    chunk: list[Row] = []
    characters = 0
    for row in rows:
        chunk.append(row)
        characters += sum(len(cell or ()) for cell in row.cells)
        characters += sum(len(str(value)) for value in row.columns.values())
        if len(chunk) == _ROWS or characters >= _CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _inputs(model: LoadedModel, row: Row) -> Inputs:
    """Returns the model's inputs by column."""
    cells: Iterable[Any] = row.cells
    return dict(zip(model.served.columns, cells, strict=True))


def _in_order(
    model: LoadedModel, rows: Sequence[Row]
) -> list[Answer | Refusal]:
    """Returns the answers of the rows that are not malformed."""
    inputs = [_inputs(model, row) for row in rows if not row.fault]
    found = dict(model.answers(inputs))
    return [found[number] for number in range(len(inputs))]


def _answers(
    model: LoadedModel,
    chunk: list[Row],
    counter: Iterator[None],
    with_file: bool,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the output lines and the error lines of a chunk, in order."""
    valid = [row for row in chunk if not row.fault]
    inputs = [_inputs(model, row) for row in valid]
    answers: dict[int, Answer | Refusal] = {}
    for number, answer in model.answers(inputs):
        answers[valid[number].position] = answer
        next(counter)
    lines, errors = [], []
    for row in chunk:
        fault = str(row.fault).removeprefix(f"{row.place}: ")
        answer = answers.get(row.position, Refusal("", fault))
        begin: dict[str, Any] = {"row": row.number, "index": row.position}
        if with_file:
            begin = {"file": row.path, **begin}
        if isinstance(answer, Refusal):
            fault = f"{answer.column} {answer.why}".strip()
            errors.append(_with_kept(begin, row.columns, {"error": fault}))
        else:
            values = {**_inputs(model, row), **answer}
            lines.append(_with_kept(begin, row.columns, values))
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
    table: Table,
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
        "input": table.fingerprint,
        "settings": [settings.to_dict(), columns.columns, columns.header],
        "precision": precision,
        "runtime": model.served.runtime_kind,
    }


class _Writer:
    """Counts the rows that a subclass writes.

    Args:
      place, errors: where it writes answers and errors, for messages.
    """

    def __init__(self, place: str = "", errors: str = "") -> None:
        self.place, self.errors = place, errors
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


class _Collected(_Writer):
    """Holds the answers and errors of all rows, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []

    def add(self, lines: list[dict], errors: list[dict]) -> None:
        """Appends the answers and errors of a chunk."""
        super().add(lines, errors)
        self.rows += sorted(lines + errors, key=lambda row: row["index"])


class _StandardOutput(_Writer):
    """Writes JSON lines to standard output, errors to standard error."""

    def __init__(self) -> None:
        super().__init__("standard output", "standard error")

    def add(self, lines: list[dict], errors: list[dict]) -> None:
        """Writes the answers and errors of a chunk."""
        super().add(lines, errors)
        sys.stdout.buffer.write(to_json(lines))
        sys.stdout.buffer.flush()
        for error in errors:
            log(_fault(error))


class _PartialFile(_Writer):
    """Writes answers to OUTPUT.partial until the output is complete."""

    def __init__(self, output: pathlib.Path, escape_formulas: bool):
        super().__init__(str(output), str(_errors_file(output)))
        self._escape_formulas = escape_formulas
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
        ending = self._output.suffix
        if ending == TSV:
            lines, refused = _without_tabs(lines)
            errors = sorted(errors + refused, key=lambda row: row["index"])
        if ending in (CSV, TSV):
            header = not self.num_answered
            text = to_cells(lines, ending, header, self._escape_formulas)
        else:
            text = to_json(lines)
        super().add(lines, errors)
        try:
            for name, content in ("output", text), ("errors", to_json(errors)):
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
        answers = self._folder / "output"
        if self._output.suffix == PARQUET:
            rows, answers = answers, self._folder / "parquet"
            json_to_parquet(rows, answers)
        os.replace(answers, self._output)
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


def _without_tabs(lines: list[dict]) -> tuple[list[dict], list[dict]]:
    """Splits output lines into those that TSV can hold, and error lines."""
    held, errors = [], []
    for line in lines:
        try:
            refuse_tabs(line)
        except Fault as fault:
            begin = {k: line[k] for k in ("file", "row", "index") if k in line}
            errors.append({**begin, "error": str(fault)})
        else:
            held.append(line)
    return held, errors


def _fault(error: dict) -> str:
    place = f"{error['file']}, " if "file" in error else ""
    return f"{place}row {error['row']}: {error['error']}"
