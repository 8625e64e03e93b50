"""Tables, and the errors of malformed files."""

import gzip
import pathlib
import re
import struct
import types

import pytest

from bert_tf.families.data.examples import examples_of
from bert_tf.families.recipe import TableRecipe
from bert_tf.tables.table import FORMATS, Dialect, Format, Table
from tests import user_errors


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        if isinstance(content, str):
            content = content.encode()
        if name.endswith(".gz"):
            content = gzip.compress(content)
        path.write_bytes(content)
        return str(path)

    return write


def cells(path, required, optional=(), **dialect):
    rows = Table(path, Dialect(**dialect)).read(required, optional)
    return [row.cells for row in rows]


def error_of(path, required=("a", "b"), **dialect):
    line = user_errors.error_of(Table(path, Dialect(**dialect)).read, required)
    assert line.startswith(path)
    return line.removeprefix(path)


@pytest.mark.parametrize("name", ["t.tsv", "T.TSV"])
def test_tsv(write, name):
    lines = ["a\tb\tc", 'a "\tx\u2028y\t', '"\t"q" \x85\t7', "é\t'\t "]
    path = write(name, "\n".join(lines))
    rows = Table(path).read(["b", "a"], ["none", "c"])
    assert [row[:3] for row in rows] == [
        (2, 0, ("x\u2028y", 'a "', None, "")),
        (3, 1, ('"q" \x85', '"', None, "7")),
        (4, 2, ("'", "é", None, " ")),
    ]


def test_without_a_header(write):
    path = write("t.tsv", "gj\t1\t*\tHe sat.\nad\t0\t\tHim sat.")
    expected = [("He sat.", "1"), ("Him sat.", "0")]
    assert cells(path, ["3", "1"], header=False) == expected
    assert cells(path, ["-1", "1"], header=False) == expected
    rows = Table(path, Dialect(header=False)).read(["0"])
    assert [row.number for row in rows] == [1, 2]
    # A name takes precedence over a number.
    path = write("t.tsv", "1\tx\nnamed\tsecond\n")
    assert cells(path, ["1", "x", "0"]) == [("named", "second", "named")]


def test_csv(write):
    text = (
        '\ufeffid,text,label\r\n1,"one, ""two""\r\nthree",a\r\n'
        '2,plain \'s,b\r\n3,"",c\r\n'
    )
    path = write("t.csv", text)
    rows = Table(path).read(["text", "label"])
    assert [(row.number, *row.cells) for row in rows] == [
        (2, 'one, "two"\r\nthree', "a"),
        (4, "plain 's", "b"),
        (5, "", "c"),
    ]
    other = write("export.txt", text)
    assert cells(other, ["id"], format="csv") == [("1",), ("2",), ("3",)]
    text = "word " * 60_000
    assert cells(write("t.csv", f'a,b\n"{text}",2\n'), ["a"]) == [(text,)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "sep=;\na;b\n1;2\n"),
        ("t.csv", '\ufeff"SEP=;"\r\na;b\r\n1;"2"\r\n'),
        ("t.csv", "sep=^\na^b\n1^2\n"),
        ("t.csv", "sep=\t\na\tb\n1\t2\n"),
        ("t.tsv", "sep=,\na,b\n1,2\n"),
    ],
)
def test_the_line_sep_states_the_delimiter(write, name, text):
    path = write(name, text)
    assert cells(path, ["a", "b"], chosen=True) == [("1", "2")]
    rows = Table(path, Dialect(chosen=True)).read(["a"])
    assert rows[0].number == 3


def test_jsonl(write):
    path = write(
        "t.jsonl",
        '{"b": "x", "a": 1, "c": ["u", 2]}\n'
        '{"a": 3.50, "b": "\\u00e9\\n", "d": true}\n'
        '{"b": null, "a": NaN, "c": []}\n\n',
    )
    assert cells(path, ["a", "b"], ["c"]) == [
        ("1", "x", ("u", "2")),
        ("3.50", "é\n", None),
        ("NaN", "", ()),
    ]


def test_keys_of_objects_are_columns(write):
    path = write(
        "t.jsonl",
        '{"a": {"b": "x"}, "c": [{"d": 1}, {"d": "y"}], "e": {"f": {}}}\n'
        '{"a": {"b": null}, "c": {"d": 2.0}, "a.b": "z"}\n',
    )
    assert cells(path, ["a.b", "c.d"], ["e", "c"]) == [
        ("x", ("1", "y"), None, None),
        ("z", "2.0", None, None),
    ]


def test_empty_lines(write):
    assert cells(write("t.tsv", "a\tb\n1\t2\n\n\n"), ["a"]) == [("1",)]
    # With one column, a blank line is a row with an empty text.
    assert cells(write("o.tsv", "a\nx\n\ny\n"), ["a"]) == [
        ("x",),
        ("",),
        ("y",),
    ]


@pytest.mark.parametrize(
    ("name", "content", "advice"),
    [
        ("t.tsv", "1\tone\n2\ttwo\n", "pass `header`=False and name columns"),
        ("t.csv", "1;2\n3;4\n", "pass `header`=False and name columns"),
    ],
)
def test_advice_where_the_settings_are_the_users(write, name, content, advice):
    path = write(name, content)
    assert advice in error_of(path, ["text"], chosen=True)
    assert advice not in error_of(path, ["text"])


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("t.tsv", "", ": is empty."),
        ("t.csv", "", ": is empty."),
        ("t.jsonl", "\n", ": has no rows."),
        ("t.csv", "\ufeff", ": is empty."),
        ("t.tsv", "\n\n", ": is empty."),
        ("t.csv", "a,b\r1,2\r", ", row 1: holds a carriage return inside"),
        ("t.tsv", "a\tb\r1\t2\r", ", line 1: holds a carriage return inside"),
        ("t.jsonl", '{"a": 1, "b": 2}\r{"a": 1, "b": 2}\r', ", line 1: holds"),
        ("t.tsv", "a\tb\n", ": has no rows."),
        ("t.csv", "a,b", ": has no rows."),
        (
            "t.tsv",
            "a\tb\n1\t2\nonly one\n",
            ", row 3: has 1 cell and the header 2 ('only one'); correct the "
            "row. Or pass `bad_rows`=skip.",
        ),
        ("t.tsv", "a\tb\n1\t2\n\n3\t4\n", ", row 3: has 1 cell and the h"),
        ("t.tsv", "a\tb\n1\t2\t3\n", ", row 2: has 3 cells and the header 2"),
        ("t.csv", 'a,b\n"1\n2",3\n4\n', ", row 4: has 1 cell and the header 2"),
        ("t.tsv", "a\tc\n1\t2\n", ": has no column 'b'. Its columns are 'a', "),
        ("t.tsv", "a\tB\n1\t2\n", ": has no column 'b'. Its columns are 'a', "),
        ("t.tsv", "a\tb\tb\n1\t2\t3\n", ": 2 columns are called 'b'; name one"),
        ("t.tsv", b"a\tb\n1\t\0x\n", ", line 2: byte 3 is NUL"),
        ("t.csv", b"a,b\n1,\0x\n", ", line 2: byte 3 is NUL"),
        (
            "t.tsv",
            b"a\tb\n1\t\xe9t\xe9\n",
            ", line 2: byte 3 (0xe9) is not UTF-8; convert the file or pass "
            "`encoding_errors`=replace.",
        ),
        ("t.tsv", "a\tb\n1\t2\n".encode("utf-16"), ": is UTF-16; convert"),
        ("t.csv", 'a,b\n1,"never closed\n2,3\n', ", row 2: is not CSV ("),
        ("t.csv", 'a,b\n1,"x"y\n', ", row 2: is not CSV ("),
        ("t.jsonl", '{"a": 1, "b": 2}\n{"a"\n', ", row 2: '{\"a\"' is"),
        ("t.jsonl", '["a"]\n', ", row 1: '[\"a\"]' is no object; write"),
        ("t.jsonl", '{"a": 1, "a": 2}\n', ", row 1: the key 'a' occurs twice."),
        ("t.jsonl", '{"a": 1}\n', ", row 1: has no 'b'; its keys are 'a'."),
        ("t.jsonl", '{"a": 1, "b": 2}\n\n{"a": 1, "b": 2}\n', ", row 2: is"),
        ("t.jsonl", '{"a": 1, "b": {"c": 2}}\n', ", row 1: has no 'b'; its"),
        ("t.jsonl", '{"a": 1, "b": [[2]]}\n', ", row 1: 'b' is [2]; it"),
        ("t.jsonl", '{"a": 1, "b": "\\u0000"}\n', ", row 1: 'b' holds a NUL"),
        ("t.jsonl", '{"a": 1, "b": "\\ud83d"}\n', ", row 1: 'b' is '\\ud83d'"),
        ("t.txt", "a\nb\n", ": neither name nor first line tells the fo"),
    ],
)
def test_broken_files(write, name, content, expected):
    assert error_of(write(name, content)).startswith(expected)


def test_a_column_of_nearly_that_name(write):
    path = write("t.tsv", "sentence\tlabels\nx\t1\n")
    assert "'label'. Did you mean 'labels'?" in error_of(path, ["label"])
    line = error_of(path, ["label"], header=False)
    assert "its 2 columns are called 0 to 1" in line


def test_replacing_half_of_a_pair(write):
    path = write("t.jsonl", '{"a": "x\\ud83d"}\n')
    assert cells(path, ["a"], encoding_errors="replace") == [("x\ufffd",)]


FAULTY = (
    b"text,label\n"
    b"fine,pos\n"
    b"only one\n"
    b'1,"never closed\n'  # row 4: up to the quote of row 6
    b"2,ok\n"
    b'3,"quoted "" fine"\n'
    b"\xe9t\xe9,neg\n"
    b'5,"x"y\n'
    b'"over\nlines",neg\n'
    b"nul\0,pos\n"
    b"a,b,c\n"
    b"last,pos\n"
)


def test_all_faults_are_reported_at_once(write, capsys):
    path = write("t.csv", FAULTY)
    line = error_of(path, ["text"])
    assert line.startswith(": 6 of 11 rows ")
    counts = "cells: 3, 12; not CSV: 4, 8; not UTF-8: 7; NUL bytes: 11."
    assert counts in line
    assert line.endswith("`bad_rows`=skip.")
    table = capsys.readouterr().err.splitlines()
    assert table[0] == f"{path}: 6 of 11 rows cannot be used:"
    assert "; row 3: has 1 cell and the header 2 ('only one');" in table[1]
    begins = [row.split("; ")[0] for row in table[1:]]
    assert [re.split(" {2,}", begin)[2:] for begin in begins] == [
        ["number of cells", "3, 12"],
        ["not CSV", "4, 8"],
        ["not UTF-8", "7"],
        ["NUL bytes", "11"],
    ]


def test_what_is_left_when_faults_are_skipped(write, capsys):
    path = write("t.csv", FAULTY)
    rows = Table(path, Dialect(bad_rows="skip")).read(["text"])
    assert [row[:3] for row in rows] == [
        (2, 0, ("fine",)),
        (5, 3, ("2",)),
        (6, 4, ("3",)),
        (9, 7, ("over\nlines",)),
        (13, 10, ("last",)),
    ]
    assert "(bad_rows=skip):" in capsys.readouterr().err
    # Rows in between cannot be distinguished from an open quote.
    path = write("t.csv", 'a,b\n1,"open\nno row\n\n2,"over\nlines"\n3,4\n')
    rows = list(Table(path).rows(["a", "b"]))
    assert "Lines 2 to 4 are taken for this row." in str(rows[0].fault)
    assert [row.number for row in rows] == [2, 5, 7]
    assert rows[1].cells == ("2", "over\nlines")
    # A malformed header ends the reading.
    assert ", row 1: is not CSV" in error_of(write("t.csv", 'a,"b\n1,2\n'))


def test_a_quote_that_is_never_closed_hides_no_rows(write):
    """Even if every other row begins with one."""
    rows = "".join(f'{n},"open\n{n},fine\n' for n in range(0, 4000, 2))
    path = write("t.csv", f"a,b\n{rows}")
    rows = list(Table(path).rows(["a"]))
    good = [row.cells for row in rows if not row.fault]
    assert good == [(str(n),) for n in range(0, 4000, 2)]


def test_rows_are_read_one_at_a_time(monkeypatch):
    read = []

    def lines():
        for line in [b"a\tb\n", b"1\t2\n", b"3\n", b"5\t6\n"]:
            read.append(line)
            yield line

    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=lines()))
    rows = Table("-", Dialect(format="tsv")).rows(["b"])
    assert (next(rows).cells, len(read)) == (("2",), 2)
    bad = next(rows)
    assert (bad.number, bad.position, len(read)) == (3, 1, 3)
    assert str(bad.fault).startswith("-, row 3: has 1 cell")
    assert next(rows).position == 2


@pytest.mark.parametrize(
    ("name", "content", "delimiter"),
    [
        ("t.csv", 'text;"label"\none, two;"a;b"\n', "semicolons"),
        ("t.csv", "text|label\none, two|a;b\n", "pipes"),
        ("t.csv", "text\tlabel\r\none, two\ta;b\r\n", "tabs"),
        ("t.tsv", 'text,label\n"one, two",a;b\n', "commas"),
        ("t.csv.gz", "\ufeffx, y;text;label\n0;one, two;a;b\n", None),
        ("t.csv.gz", '\ufeffx, y;text;label\n0;one, two;"a;b"\n', "semicolons"),
    ],
)
def test_delimiters_that_are_recognised(
    write, capsys, name, content, delimiter
):
    path = write(name, content)
    if delimiter is None:
        assert "has 4 cells" in error_of(path, ["text"], chosen=True)
        return
    found = cells(path, ["text", "label"], chosen=True)
    assert found == [("one, two", "a;b")]
    shown = capsys.readouterr().err
    assert f"{path}: its columns are divided by {delimiter}" in shown


def test_delimiters_that_are_not_recognised(write, capsys):
    path = write("t.csv", "a;text;b|text|c\n1;2;3\n")
    line = error_of(path, ["text"], chosen=True)
    assert "may be divided by semicolons or by pipes" in line
    # The delimiter of the format, or of the user, takes precedence.
    path = write("t.csv", "text,label;text\n1,2\n")
    assert cells(path, ["text"], chosen=True) == [("1",)]
    path = write("t.tsv", "a,b\n1,2\n")
    line = error_of(path, ["a"], chosen=True, format="tsv")
    assert line.endswith("leave out `format`=tsv.")
    # The delimiter of other files is not detected.
    assert "has no column 'a'" in error_of(path, ["a"])
    assert not capsys.readouterr().err


def test_a_list_is_no_text(write):
    path = write("t.jsonl", '{"a": ["x"], "b": "y", "l": 1}\n')
    rows = Table(path).rows(["a", "b", "l"])
    examples = examples_of(
        path, rows, ("a", "b"), TableRecipe(), lambda cell, _: cell
    )
    line = user_errors.error_of(list, examples)
    assert line.startswith(f"{path}, row 1: 'a' is a list, ('x',); it must be")


def test_several_files_are_one_table(write, tmp_path, capsys):
    """Each has its own header, and faults name file and row."""
    write("b.csv", "text,label\nfour,1\nfive\n")
    write("a.csv", "label;text\n1;one\n0;two\n0;three\n")
    write("c.jsonl", '{"text": "six", "label": 1}\n')
    write("d.tsv", "text\tlabel\n")
    table = Table(f"{tmp_path}/*.csv, {tmp_path}/c.jsonl,{tmp_path}/d.tsv")
    table = Table(table.name, Dialect(bad_rows="skip", chosen=True))
    rows = table.read(["text", "label"])
    assert [
        (pathlib.Path(row.path).name, row.number, row.position) for row in rows
    ] == [
        *(("a.csv", 2, 0), ("a.csv", 3, 1), ("a.csv", 4, 2)),
        *(("b.csv", 2, 3), ("c.jsonl", 1, 5)),
    ]
    assert [row.cells[0] for row in rows] == "one two three four six".split()
    assert f"number of cells  {tmp_path}/b.csv:3; " in capsys.readouterr().err
    sizes = [(tmp_path / name).stat().st_size for name in ("a.csv", "b.csv")]
    assert table.bytes_read == table.bytes_in_files > sum(sizes)
    for source, message in (
        (f"{tmp_path}/*.txt", "`input`={}/*.txt: no such file."),
        (f"{tmp_path}/a.csv,{tmp_path}/x", "`input`={}/x: no such file."),
    ):
        line = user_errors.error_of(Table, source)
        assert line == message.format(tmp_path)
    line = user_errors.error_of(Table(f"{tmp_path}/[ab].csv").read, ["id"])
    assert line.startswith(f"{tmp_path}/a.csv: has no column 'id'.")
    # A file's name may have a comma.
    assert Table(write("a,b.csv", "x\n1\n")).read(["x"])[0].cells == ("1",)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ('\ufeff{"a": "x", "b": 1}\n', "jsonl"),
        ("a\tb\nx\t1\n", "tsv"),
        ("a,b\nx,1\n", "csv"),
        ("a;b\r\nx;1\r\n", "csv"),
    ],
)
@pytest.mark.parametrize("name", ["export", "part-0.gz"])
def test_the_first_line_tells_what_the_name_does_not(
    write, name, content, kind, capsys
):
    path = write(name, content)
    assert cells(path, ["a", "b"], chosen=True) == [("x", "1")]
    shown = capsys.readouterr().err
    assert f"{path}: its first line looks like {kind}, and is read" in shown


def test_a_format_is_a_function_and_a_line(tmp_path, monkeypatch):
    """A made-up binary format: records of a number and a padded text."""

    def read(path, lines, selection, dialect):
        assert not list(lines)
        content = pathlib.Path(path).read_bytes()
        names = (*selection.required, *selection.optional)
        records = struct.iter_unpack("<i8s", content)
        for number, (label, text) in enumerate(records, start=1):
            row = {"label": str(label), "text": text.rstrip(b"\0").decode()}
            yield number, (tuple(map(row.get, names)), row)

    monkeypatch.setitem(FORMATS, "rec", Format(read, is_text=False))
    path = tmp_path / "t.rec"
    path.write_bytes(struct.pack("<i8si8s", 3, b"one", 4, b"two"))
    rows = Table(path, Dialect(chosen=True)).read(["text"], ["label", "x"])
    found = [row.cells for row in rows]
    assert found == [("one", "3", None), ("two", "4", None)]
    (tmp_path / "t.csv").write_text("text,label\nthree,5\n")
    both = Table(f"{path},{tmp_path}/t.csv").read(["label"])
    assert [row.cells for row in both] == [("5",), ("3",), ("4",)]
