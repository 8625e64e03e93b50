"""Rows that are written as JSON lines, CSV, TSV and Parquet."""

import json

import pyarrow.parquet
import pytest

from bert_tf.errors import Fault
from bert_tf.tables.table import Table
from bert_tf.tables.writing import (
    json_to_parquet,
    read_written,
    refuse_tabs,
    to_cells,
    to_json,
)

ROWS = [
    {
        "row": n,
        "text": f'a, "é" {n}',
        "none": None,
        "labels": ["x", "y"][: n % 3],
        "probabilities": {"no": 0.25, "yes": n / 10_000},
        "entities": [{"text": "é", "start": n}] * (n % 2),
    }
    for n in range(9000)
]
PARTS = (ROWS[:5000], ROWS[5000:])
FLAT = ["probability of no", "probability of yes"]


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_cells_are_read_again(tmp_path, ending):
    path = tmp_path / f"t{ending}"
    path.write_bytes(
        b"".join(to_cells(p, ending, p is PARTS[0], False) for p in PARTS)
    )
    names = ["row", "text", "none", "labels", *FLAT]
    found = [row.cells for row in Table(path).read(names)]
    assert len(found) == len(ROWS)
    assert found[7] == (*("7", 'a, "é" 7', "", '["x"]', "0.25", "0.0007"),)
    assert [row["text"] for row in read_written(path)] == [
        row["text"] for row in ROWS
    ]


def test_json_lines_and_parquet_are_read_again(tmp_path):
    path, target = tmp_path / "t.jsonl", tmp_path / "t.parquet"
    path.write_bytes(b"".join(map(to_json, PARTS)))
    assert list(read_written(path)) == ROWS
    json_to_parquet(path, target)
    table = pyarrow.parquet.read_table(target)
    assert table.schema.names == [
        *("row", "text", "none", "labels", *FLAT, "entities"),
    ]
    columns = table.to_pydict()
    for name in ("row", "text", "none", "labels", "entities"):
        assert columns[name] == [row[name] for row in ROWS]
    assert columns[FLAT[1]][7] == 0.0007
    assert [row["text"] for row in read_written(target)] == columns["text"]


def test_values_that_parquet_cannot_hold_are_json(tmp_path):
    rows = [{"a": 1, "b": {}, "c": 2}, {"a": "x", "b": {}, "c": 2.5}]
    path, target = tmp_path / "t.jsonl", tmp_path / "t.parquet"
    path.write_bytes(to_json([*rows, {"c": None}]))
    json_to_parquet(path, target)
    assert pyarrow.parquet.read_table(target).to_pydict() == {
        "a": ["1", '"x"', None],
        "b": ["{}", "{}", None],
        "c": [2.0, 2.5, None],
    }


def test_numbers_of_any_size_are_written(tmp_path):
    """Also where a fraction follows in another chunk of rows."""
    path, target = tmp_path / "t.jsonl", tmp_path / "t.parquet"
    numbers = [2**60 + 1] * 9000 + [0.5]
    rows = [{"huge": 2**70, "a": n, "b": [[n]], "c": 1.5} for n in numbers]
    path.write_bytes(to_json(rows))
    json_to_parquet(path, target)
    columns = pyarrow.parquet.read_table(target).to_pydict()
    for name, values in columns.items():
        found = [json.loads(x) if isinstance(x, str) else x for x in values]
        assert found == [row[name] for row in rows]
    assert columns["a"][-1] == "0.5"
    assert columns["c"][0] == 1.5


@pytest.mark.parametrize("text", ["a\tb", "a\nb", "a\rb"])
def test_tsv_holds_no_tabs_and_line_ends(text):
    refuse_tabs({"text": "a b", "labels": ["a\tb"]})
    with pytest.raises(Fault, match="'text' holds a tab or a line end"):
        refuse_tabs({"text": text})
