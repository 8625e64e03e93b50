"""Tables in memory are the tables of files with the same rows."""

import datetime
import decimal
import json

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from bert_tf.tables.table import Table
from tests.frames import (
    ClassLabel,
    DataSet,
    Frame,
    PolarsFrame,
    RowStream,
)
from tests.user_errors import error_of

ROWS = [
    {"text": f"é {n}", "label": n, "score": n / 4, "good": n > 1, "none": None}
    | {"words": ["a", f"b{n}"], "answers": {"text": [f"x{n}"], "start": [n]}}
    for n in range(2100)
]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}
NAMES = (*("text", "label", "score", "good", "none", "words"), "answers.text")
FORMS = {
    "columns": COLUMNS,
    "rows": ROWS,
    "frame": Frame(COLUMNS),
    "polars": PolarsFrame(COLUMNS),
    "data set": DataSet(COLUMNS),
    "stream": RowStream(COLUMNS),
    "pyarrow": pa.Table.from_pylist(ROWS),
    "record batch": pa.RecordBatch.from_pylist(ROWS),
}


def cells(data, required, optional=()):
    return [row.cells for row in Table(data).read(required, optional)]


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_those_of_a_file(form, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    found, expected = (
        list(Table(source).rows(NAMES, ["absent"], whole=True))
        for source in (FORMS[form], path)
    )
    assert [row.cells for row in found] == [row.cells for row in expected]
    assert [row.columns for row in found] == [row.columns for row in expected]
    # Twice, as a table of a file.
    table = Table(FORMS[form])
    assert len(table.read(["text"])) == len(table.read(["label"])) == 2100
    assert [row.number for row in found] == list(range(2100))
    assert found[3].place == "`input`, row 3"


def test_a_reader_of_batches_is_read_once():
    table = pa.Table.from_pylist(ROWS)
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    assert cells(reader, ["text"]) == [(row["text"],) for row in ROWS]


def test_types_that_json_lacks():
    day, moment = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3)
    data = {
        "number": [np.int64(3), np.float32(0.5), float("nan"), True],
        "other": [decimal.Decimal("1.50"), day, moment, None],
        "bytes": [b"a", b"\xc3\xa9", b"", None],
        "list": [np.array([1, 2]), ("a", 1), [], None],
    }
    assert cells(data, list(data)) == [
        ("3", "1.50", "a", ("1", "2")),
        ("0.5", "2026-01-02", "é", ("a", "1")),
        ("", "2026-01-02 03:00:00", "", ()),
        ("true", "", "", ""),
    ]
    json.dumps([dict(row.columns) for row in Table(data).rows([], whole=True)])


def test_classes_of_data_sets_have_names():
    data = DataSet(
        {"text": ["a", "b", "c"], "label": [1, 0, -1]},
        {"label": ClassLabel(["no", "yes"]), "text": None},
    )
    assert cells(data, ["text", "label"]) == [
        *(("a", "yes"), ("b", "no"), ("c", "")),
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "`input` is 3; give a DataFrame, a Dataset, a mapping of col"),
        ([], "`input` is []; give a DataFrame"),
        ({}, "`input`: has no columns; give as many of each"),
        ({"a": []}, "`input`: has 0 of a; give as many of each, at least"),
        ({"a": ["x"], "b": []}, "`input`: has 1 of a, 0 of b; give as many"),
        ({"a": "x"}, "`input`: 'a' is 'x'; give a list of the cells of this"),
        ([{"a": 1}, 2], "`input`, row 1: is 2; give a mapping of columns to"),
        ({"b": [1]}, "`input`, row 0: has no 'a'; its keys are 'b'."),
        (DataSet({"a": []}), "`input`: has no rows."),
        ({"a": [object]}, "`input`, row 0: 'a' is <class 'object'>; it must"),
        ({"a": [b"\xff"]}, "`input`, row 0: 'a' is b'\\xff', which is not UTF"),
        ({"a": [[b"\xff"]]}, "`input`, row 0: 'a' is b'\\xff', which is not"),
        ({"a": ["x\0"]}, "`input`, row 0: 'a' holds a NUL character; remove"),
        ({"a": ["\ud800"]}, "`input`, row 0: 'a' is '\\ud800', with half of"),
    ],
)
def test_data_that_are_no_table(data, message):
    assert error_of(Table(data).read, ["a"]).startswith(message)


def test_what_is_not_read_row_by_row_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pa.table({"a": ["x"]}), path)
    line = error_of(Table(pyarrow.dataset.dataset(path)).read, ["a"])
    assert line.startswith("`input` is <pyarrow._dataset.FileSystemDataset")


def test_the_number_of_rows_may_be_known_before_they_are_read():
    found = {form for form, data in FORMS.items() if Table(data).num_rows}
    assert found == {"columns", "rows", "pyarrow", "record batch"}
    assert all(Table(FORMS[form]).num_rows == 2100 for form in found)


def test_all_faults_are_reported_at_once():
    data = {"a": ["x", object, "\0", "y", object]}
    line = error_of(Table(data).read, ["a"])
    assert "3 of 5 rows cannot be used, as listed above" in line
    assert "no text or number: 1, 4; NUL characters: 2." in line
