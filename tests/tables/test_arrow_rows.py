"""Parquet, Arrow and Feather files, and the errors of malformed ones."""

import datetime
import decimal
import json

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from bert_tf.tables.table import Dialect, Table
from tests.user_errors import error_of

ROWS = [
    {
        "text": f"Row {n}, with é and 語.",
        "label": n % 3,
        "score": n / 4,
        "good": n % 2 == 0,
        "empty": None,
        "words": ["a", f"b{n}"],
        "answers": {"text": [f"é{n}"], "answer_start": [n]},
        "parts": [{"name": "x", "size": n}, {"name": "y", "size": 0}],
    }
    for n in range(2500)
]
COLUMNS = (
    *("text", "label", "score", "good", "empty", "words"),
    *("answers.text", "answers.answer_start", "parts.name", "parts.size"),
)


def write_parquet(table, path):
    pyarrow.parquet.write_table(table, path, row_group_size=1100)


def write_feather(table, path):
    pyarrow.feather.write_feather(table, path, compression="lz4")


def write_arrow(table, path):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)


def write_stream(table, path):
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)


WRITERS = {
    "t.parquet": write_parquet,
    "t.feather": write_feather,
    "T.ARROW": write_arrow,
    # Their first bytes tell.
    "t.csv": write_stream,
    "t": write_parquet,
}


@pytest.fixture
def write(tmp_path):
    def write(name, columns):
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        WRITERS[name](table, tmp_path / name)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("name", WRITERS)
def test_rows_are_those_of_json_lines(name, write, tmp_path):
    lines = tmp_path / "t.jsonl"
    lines.write_text("\n".join(map(json.dumps, ROWS)))
    path = write(name, pa.Table.from_pylist(ROWS))
    found, expected = (
        list(Table(str(each)).rows(COLUMNS, ["none"], whole=True))
        for each in (path, lines)
    )
    assert [row[:5] for row in found] == [row[:5] for row in expected]


def test_columns_have_numbers(write):
    path = write("t.feather", {"text": ["a", None], "label": [1, 2]})
    rows = Table(path).read(["label", "0"])
    assert [row.cells for row in rows] == [("1", "a"), ("2", "")]


def test_types_that_json_lacks(write):
    table = pa.table(
        {
            "float32": pa.array([0.1, 4.0], pa.float32()),
            "nan": [float("nan"), None],
            "big": pa.array(["a", "b"], pa.large_string()),
            "view": pa.array(["a", "b"], pa.string_view()),
            "bytes": pa.array(["é".encode(), None], pa.binary()),
            "named": pa.array(["no", "yes"]).dictionary_encode(),
            "listed": pa.array([["x"], None], pa.list_(pa.string())),
            "names": pa.array([[0], [0, 0]], pa.list_(pa.int8())),
            "price": [decimal.Decimal("1.50"), None],
            "day": [datetime.date(2026, 1, 2), None],
            "time": pa.array([1, 2], pa.timestamp("ns")),
        }
    )
    path = write("t.parquet", table)
    first, second = Table(path).rows(table.schema.names, whole=True)
    assert first.cells == (
        *("0.1", "nan", "a", "a", "é", "no", ("x",), ("0",), "1.50"),
        *("2026-01-02", "1970-01-01 00:00:00.000000001"),
    )
    assert second.cells == (
        *("4.0", "", "b", "b", "", "yes", "", ("0", "0"), "", ""),
        "1970-01-01 00:00:00.000000002",
    )
    kept = json.loads(json.dumps(dict(first.columns)))
    assert (kept["price"], kept["day"]) == ("1.50", "2026-01-02")
    assert kept["time"] == "1970-01-01 00:00:00.000000001"


def test_faults_of_rows_are_found_at_once(write):
    raw = pa.array([b"good", b"\xff", b"a\0b", b"fine"], pa.binary())
    path = write("t.parquet", {"text": raw})
    line = error_of(Table(path).read, ["text"])
    assert "2 of 4 rows cannot be used" in line
    rows = list(Table(path).rows(["text"], whole=True))
    assert rows[0].columns == {"text": "good"}
    assert rows[0].cells == ("good",)
    assert "row 2: 'text' is b'\\xff', which is not UTF-8" in str(rows[1].fault)
    assert "row 3: 'text' holds a NUL character" in str(rows[2].fault)
    replaced = Dialect(encoding_errors="replace", bad_rows="skip")
    rows = Table(path, replaced).read(["text"])
    assert [row.cells for row in rows] == [("good",), ("\ufffd",), ("fine",)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"txt": ["a"]}, "has no column 'text'. Did you mean 'txt'? Its"),
        (
            {"text": pa.array([{"a": 1}])},
            "has no column 'text'. Did you mean 'text.a'?",
        ),
        (
            {"text": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8()))},
            "the column 'text' is of type map<string, int8 ('text')>; it m",
        ),
        ({"text": [[["a"]]]}, "is of type list<element: list<element: str"),
        ({"text": pa.array([], pa.string())}, "has no rows"),
    ],
)
def test_columns_that_cannot_be_read(columns, message, write):
    path = write("t.parquet", columns)
    line = error_of(Table(path).read, ["text"])
    assert line.startswith(f"{path}: ")
    assert message in line


def test_two_columns_of_one_name(write):
    table = pa.Table.from_arrays([pa.array(["a"])] * 2, ["text", "text"])
    path = write("t.parquet", table)
    assert "2 columns are called 'text'" in error_of(Table(path).read, ["text"])


@pytest.mark.parametrize("name", WRITERS)
def test_files_that_end_early(name, write, tmp_path):
    path = write(name, {"text": [str(n) for n in range(5000)]})
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    line = error_of(Table(path).read, ["text"])
    assert line.startswith(f"{path}: ")
    assert "cannot be read (" in line
    assert line.endswith("; write the file again.")


def test_a_damaged_row_group_is_named(write, tmp_path):
    path = write("t.parquet", {"text": [str(n) for n in range(5000)]})
    content = bytearray((tmp_path / "t.parquet").read_bytes())
    group = pyarrow.parquet.ParquetFile(path).metadata.row_group(3)
    begin = group.column(0).dictionary_page_offset
    content[begin : begin + 40] = b"\xff" * 40
    (tmp_path / "t.parquet").write_bytes(content)
    line = error_of(Table(path).read, ["text"])
    assert line.startswith(f"{path}: row group 3 cannot be read (")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PARE" + b"\0" * 40, "is encrypted; decrypt it first."),
        (b"FEA1" + b"\0" * 40, "is of Feather's first version, which is no"),
        (b"text\na\n", "is no Parquet, Arrow or Feather file"),
    ],
)
def test_files_of_another_kind(content, message, tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(content)
    assert f"{path}: {message}" in error_of(Table(str(path)).read, ["text"])


def test_standard_input_is_text():
    dialect = Dialect(format="parquet")
    line = error_of(Table("-", dialect).read, ["text"])
    assert line.startswith("`format`=parquet: standard input is read as text")


@pytest.mark.parametrize("name", ["t.parquet", "T.ARROW", "t.csv"])
def test_classes_that_datasets_wrote_have_names(write, name):
    features = {
        "label": {"names": ["no", "yes"], "_type": "ClassLabel"},
        "text": {"dtype": "string", "_type": "Value"},
    }
    for info, expected in (
        ({"features": features}, ["yes", "no", "", ""]),
        ({"features": [1]}, ["1", "0", "-1", ""]),
    ):
        table = pa.table({"text": [*"abcd"], "label": [1, 0, -1, None]})
        written = json.dumps({"info": info})
        path = write(
            name, table.replace_schema_metadata({"huggingface": written})
        )
        rows = list(Table(path).rows(["label"], whole=True))
        assert [row.cells[0] for row in rows] == expected
    assert rows[0].columns == {"text": "a", "label": 1}
