"""Text, JSON lines and dumps, whole and in pieces, and their mistakes."""

import gzip
import json
import pathlib
import re

import pyarrow as pa
import pyarrow.parquet
import pytest
from corpus_files import HEAD, TAIL, articles, page, write_dump

from bert_tf.corpora import reading, streams, wikipedia
from bert_tf.corpora.reading import DocumentSplitter, reader_of
from bert_tf.corpora.recipe import CorpusRecipe
from bert_tf.corpora.sources import files_of
from bert_tf.corpora.streams import Document, Position
from tests.packing import PACK
from tests.user_errors import error_of

START = Position()


def read(
    path: pathlib.Path,
    start: Position = START,
    workers: int = 1,
    **settings: object,
) -> list[Document]:
    recipe = CorpusRecipe(**settings)
    (file,) = files_of([path], recipe)
    with DocumentSplitter(workers) as splitter:
        return list(splitter.documents(reader_of(file, recipe), start))


def places(documents: list[Document]) -> list[tuple]:
    """All but `disk_bytes`, which depends on the size of reads."""
    return [(d.sentences, d.line, d.end, d.cut) for d in documents]


def sentences(documents: list[Document]) -> list[list[str]]:
    return [d.sentences for d in documents if d.sentences]


TEXT = "\ufeffOne two\nthree. Four!\n\n \nFive\n六。七。\n\n\n\nEight?"


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (
            "blank_line",
            [["One two three.", "Four!"], ["Five 六。", "七。"], ["Eight?"]],
        ),
        ("file", [["One two three.", "Four!", "Five 六。", "七。", "Eight?"]]),
        (
            "line",
            [["One two"], ["three.", "Four!"], ["Five"], ["六。", "七。"]]
            + [["Eight?"]],
        ),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a.bz2", "a.zst"])
def test_text(tmp_path, ends, expected, name) -> None:
    settings = {"input_format": "text", "document_end": ends}
    data = PACK.get(name[2:], bytes)(TEXT.encode())
    (tmp_path / name).write_bytes(data)
    found = read(tmp_path / name, **settings)
    assert sentences(found) == expected
    assert found[-1].disk_bytes == len(data)
    for number, document in enumerate(found):
        rest = read(tmp_path / name, document.end, **settings)
        assert sentences(rest) == expected[number + 1 :]
        assert [d.line for d in rest] == [d.line for d in found[number + 1 :]]


def test_text_without_end_is_cut(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("bert_tf.corpora.reading.DOCUMENT_BYTES", 50)
    path = tmp_path / "a.txt"
    path.write_text("A line of text.\n" * 20)
    found = read(path, input_format="text", document_end="file")
    assert [d.cut for d in found] == [True] * 5
    assert sum(len(d.sentences) for d in found) == 20


def test_json_lines(tmp_path: pathlib.Path) -> None:
    rows = [
        {"text": "One. Two!\nThree", "id": 1},
        {"text": ""},
        {"id": 2, "text": "Ein \u2028 Satz.\n\nNoch \U0001f600 einer."},
    ]
    text = "\n\n".join(json.dumps(row) for row in rows)
    (tmp_path / "a.jsonl").write_text(text)
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write(text)
    expected = [
        ["One.", "Two!", "Three"],
        ["Ein Satz.", "Noch \U0001f600 einer."],
    ]
    for name in ("a.jsonl", "a.jsonl.gz"):
        found = read(tmp_path / name)
        assert sentences(found) == expected
        assert [d.line for d in found] == [1, 3, 5]
        assert sentences(read(tmp_path / name, found[1].end)) == expected[1:]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv.zst", "a.parquet"])
def test_columns_of_tables(tmp_path: pathlib.Path, name: str) -> None:
    texts = ["One. Two!", "", "Ein \u2028 Satz. Noch \U0001f600 einer."]
    texts += ["Three.\nFour"] * (name != "a.tsv.zst")
    columns = {"id": [*"1234"][: len(texts)], "body": texts}
    if name == "a.parquet":
        pyarrow.parquet.write_table(pa.table(columns), tmp_path / name)
    else:
        quote = '"' if name == "a.csv" else ""
        lines = [f"{n},{quote}{text}{quote}" for n, text in enumerate(texts)]
        content = "\n".join(["id,body", *lines]) + "\n"
        if name != "a.csv":
            content = content.replace(",", "\t")
        pack = PACK.get(name.rpartition(".")[2], bytes)
        (tmp_path / name).write_bytes(pack(content.encode()))
    found = read(tmp_path / name, text_field="body")
    expected = [["One.", "Two!"], ["Ein Satz.", "Noch \U0001f600 einer."]]
    expected += [["Three.", "Four"]] * (len(texts) - 3)
    assert sentences(found) == expected
    assert found[-1].disk_bytes == (tmp_path / name).stat().st_size
    rest = read(tmp_path / name, found[1].end, text_field="body")
    assert sentences(rest) == expected[1:]
    assert [d.line for d in rest] == [d.line for d in found[2:]]
    line = error_of(read, tmp_path / name)
    assert line.startswith(f"{tmp_path / name}: has no column 'text'.")
    assert line.endswith("Name it with `text_field`.")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 2: '{' is not JSON"),
        (b"plain words", "line 2: 'plain words' is not JSON"),
        (b"[1]", r"line 2: '\[1\]' is no object"),
        (b'{"body": "x", "id": 1}', "no key 'text' .*: body, id.*`text_field`"),
        (b'{"text": 5}', "line 2: 'text' is 5; it must be a text"),
        (b'{"text": null}', "line 2: 'text' is None"),
        (b'{"text": "\xff"}', "line 2: byte 11 .0xff. is not UTF-8"),
        (b'{"text": "\\ud800"}', "half of a surrogate pair"),
        (b"9" * 5000, "line 2: .* is not JSON"),
        (b"[" * 99999, "line 2: .* is not JSON"),
    ],
)
def test_mistakes_in_json_lines(tmp_path, line, message) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "good"}\n' + line + b"\n")
    line = error_of(read, path)
    assert re.search(f"a.jsonl.*{message}", line), line


def test_replaced_bytes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a\xff \\ud800."}\n')
    found = read(path, encoding_errors="replace")
    assert sentences(found) == [["a\ufffd \ufffd."]]
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\ntwo\nth\xffee\n")
    assert "a.txt, line 4: byte 3" in error_of(read, path, input_format="text")
    found = read(path, input_format="text", encoding_errors="replace")
    assert sentences(found) == [["one"], ["two th\ufffdee"]]


def test_a_line_without_end(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 100)
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n' + "x" * 300)
    assert "line 2: has more than" in error_of(read, path)


@pytest.mark.parametrize(
    "name", ["w.xml", "w.xml.bz2", "w-multistream.xml.bz2", "w.xml-p1p9.bz2"]
)
def test_a_dump_in_pieces_of_any_size(tmp_path, name, monkeypatch) -> None:
    path = write_dump(tmp_path / name, articles(9))
    whole = read(path)
    text = sentences(whole)
    assert len(text) == 9
    twice = ["Town 4 is a town of 44.", "It is old.", "It has a wall."]
    assert text[4] == twice * 2
    assert whole[0].line == HEAD.count("\n") + 1
    lines = (HEAD + "".join(articles(9))).split("\n")
    assert all(lines[d.line - 1].strip() == "<page>" for d in whole)
    for size in (7, 64, 1000):
        monkeypatch.setattr(wikipedia, "_READ_BYTES", size)
        monkeypatch.setattr(streams, "_READ_BYTES", size)
        small = read(path)
        assert sentences(small) == text
        assert [d.end.offset for d in small] == [d.end.offset for d in whole]
        for number in range(0, len(small), 4):
            rest = read(path, small[number].end)
            assert places(rest) == places(small[number + 1 :])
    if "multistream" in name:
        assert len({d.end.stream for d in whole}) == 6
        # A stream that is not needed is not read again.
        monkeypatch.setattr(wikipedia, "_HEAD_BYTES", 64)
        monkeypatch.setattr(streams, "_READ_BYTES", 64)
        data = bytearray(path.read_bytes())
        enter = whole[12].end
        before = max(d.end.stream for d in whole if d.end.stream < enter.stream)
        data[before : enter.stream] = bytes(enter.stream - before)
        path.write_bytes(data)
        assert sentences(read(path, enter)) == sentences(whole[13:])
    assert read(path, whole[-1].end) == []


def test_workers_change_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(reading, "_BATCH_BYTES", 900)
    path = write_dump(tmp_path / "w-multistream.xml.bz2", articles(30))
    assert read(path, workers=2) == read(path, workers=1)


def test_the_links_of_a_dump_are_known_by_its_own_names(tmp_path) -> None:
    text = "A[[Datei:x.png|a caption]] b[[Kategorie:C]] [[Diskussion:D|c]]."
    path = write_dump(tmp_path / "w.xml", [page(text)])
    assert sentences(read(path)) == [["A b c."]]


def test_pages_that_are_no_articles(tmp_path: pathlib.Path) -> None:
    pages = [
        page("A module.", space=828),
        page("Some code.", model="javascript"),
        page("{{only}} [[Datei:x.png|boxes]]"),
        page("An article."),
        "  <page><title>x</title><ns>0</ns></page>\n",
        "  <page><ns>0</ns><revision><text>Old. </text></revision>"
        "<revision><text>New.</text></revision></page>\n",
    ]
    path = write_dump(tmp_path / "w.xml", pages)
    assert sentences(read(path)) == [["An article."], ["New."]]


DUMP = (HEAD + "".join(articles(20)) + TAIL).encode()
PACKED = PACK["bz2"](DUMP)
DAMAGED = {
    "no_dump.xml": (b"<html><page>x</page></html>", "is no dump of a wiki"),
    "empty.xml": (b"", "is no dump of a wiki"),
    "torn.xml": (DUMP[:-400], "ends in the middle of the dump"),
    "no_end.xml": (DUMP[: -len(TAIL)], "ends in the middle of the dump"),
    "utf16.xml": (DUMP.decode().encode("utf-16"), "is UTF-16; convert"),
    "torn.xml.bz2": (PACKED[:-200], "damaged bz2 file .it ends in the mid"),
    "rest.xml.bz2": (PACKED + b"rest", "damaged bz2 file"),
    "plain.xml.bz2": (DUMP, "damaged bz2 file .invalid data stream"),
    "torn.xml.gz": (gzip.compress(DUMP)[:-200], "damaged gzip file"),
    "bad.xml": (
        DUMP.replace(b"<id>7</id>", b"<id>7</i>", 1),
        f"line {HEAD.count(chr(10)) + 1}: the page .* is not XML",
    ),
    "latin.xml": (DUMP.replace(b"wall", b"w\xe4ll", 1), "is not UTF-8"),
}


# Damage is met where documents are found, what no XML is where they are split.
@pytest.mark.parametrize(
    ("name", "workers"),
    [*((name, 1) for name in DAMAGED), ("torn.xml", 2), ("bad.xml", 2)],
)
def test_damaged_dumps(tmp_path: pathlib.Path, name: str, workers: int) -> None:
    data, message = DAMAGED[name]
    (tmp_path / name).write_bytes(data)
    line = error_of(read, tmp_path / name, workers=workers)
    assert re.search(f"{name}.*{message}", line), line


def test_a_page_that_is_too_long(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(wikipedia, "MAX_LINE_BYTES", 2000)
    monkeypatch.setattr(wikipedia, "_READ_BYTES", 500)
    path = write_dump(tmp_path / "w.xml", [page("word " * 2000)])
    assert "page after line 1 has more than" in error_of(read, path)
