"""Files of vectors of texts, and invalid inputs."""

import functools
import gzip
import io
import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.families.pretrained.settings import Settings
from bert_tf.inference import features as module
from bert_tf.inference import vectors
from bert_tf.inference.features import extract_features, read_texts
from tests.families.pretrained.extraction_models import (
    TOKENS,
    alone,
    save_model,
    small_encoder,
    small_tokenizer,
    some_texts,
)
from tests.user_errors import error_of

pytestmark = pytest.mark.usefixtures("eagerly")
MODEL = (small_encoder(), small_tokenizer())
LINES = [
    "Über the café 😀!",
    "the cat's mat ||| A 我们 dog",
    "",
    "a | b ||| c ||| running",
    *some_texts(9, seed=4),
]
TOKEN_SETTINGS = Settings((-1, 0), "none", batch_size=4)


@functools.cache
def model_of(settings: Settings) -> PretrainedModel:
    return PretrainedModel(*MODEL, settings)


@pytest.fixture
def model(monkeypatch) -> str:
    """A name for the model, which is built once."""

    def load(source, settings, precision, runtime):
        assert source in ("model", MODEL)
        assert precision == "float32"
        return model_of(settings)

    monkeypatch.setattr(vectors, "open_model", load)
    return "model"


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(vectors, "_TEXTS", 5)
    monkeypatch.setattr(module, "_NUMBERS", 500)


@pytest.fixture
def lines_file(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes("\n".join(LINES).encode())
    return path


def pair_of(line: str):
    first, separator, second = line.rpartition(" ||| ")
    return (first, second) if separator else line


def expected_offsets(line: str) -> list:
    """The offsets of the tokens in the line, from the offsets in its parts."""
    found, begin = [None], 0
    for part in (line,) if isinstance(pair_of(line), str) else pair_of(line):
        _, starts, ends = MODEL[1].tokenize_with_offsets(part)
        places = zip(starts.numpy(), ends.numpy(), strict=True)
        found += [[int(s) + begin, int(e) + begin] for s, e in places]
        found.append(None)
        begin += len(part) + len(" ||| ")
    return found


def json_rows(path) -> list[dict]:
    return list(map(json.loads, path.read_text("utf-8").splitlines()))


def files_in(path) -> set[str]:
    return {file.name for file in path.iterdir()}


def test_json_lines_as_in_the_original_and_offsets(
    lines_file, tmp_path, capsys
):
    folder = save_model(tmp_path / "model")
    output = tmp_path / "features.jsonl"
    said = extract_features(folder, [lines_file], output, TOKEN_SETTINGS)
    rows = json_rows(output)
    assert [row["linex_index"] for row in rows] == list(range(len(LINES)))
    for row, line in zip(rows, LINES, strict=True):
        expected = alone(*MODEL, pair_of(line))
        features = row["features"]
        tokens = [TOKENS[i] for i in expected["ids"]]
        assert [f["token"] for f in features] == tokens
        assert [f["offsets"] for f in features] == expected_offsets(line)
        for place, feature in enumerate(features):
            assert [x["index"] for x in feature["layers"]] == [-1, 0]
            for number, layer in zip((3, 0), feature["layers"], strict=True):
                np.testing.assert_allclose(
                    layer["values"],
                    expected["layers"][number, place],
                    atol=1e-5,
                )
    assert f"{len(LINES)} texts" in said
    empty = sum(not line.strip() for line in LINES)
    assert f"{empty} of {len(LINES)} lines are empty" in capsys.readouterr().err


def test_npz_holds_the_same(model, lines_file, tmp_path):
    output = tmp_path / "features.npz"
    extract_features(model, [lines_file], output, TOKEN_SETTINGS)
    assert files_in(tmp_path) == {"lines.txt", "features.npz"}
    with np.load(output, allow_pickle=False) as file:
        found = dict(file)
    assert {name: str(a.dtype) for name, a in found.items()} == {
        "layers": "int32",
        "vectors": "float32",
        "row_starts": "int64",
        "input_ids": "int32",
        "segment_ids": "int32",
        "offsets": "int32",
        "vocabulary": "<U6",
    }
    np.testing.assert_array_equal(found["layers"], [-1, 0])
    tokens = found["vocabulary"][found["input_ids"]]
    assert len(found["row_starts"]) == len(LINES) + 1
    for row, line in enumerate(LINES):
        expected = alone(*MODEL, pair_of(line))
        own = slice(*found["row_starts"][row : row + 2])
        np.testing.assert_array_equal(
            found["segment_ids"][own], expected["segments"]
        )
        vectors = expected["layers"][[3, 0]].transpose(1, 0, 2)
        np.testing.assert_allclose(found["vectors"][own], vectors, atol=1e-5)
        assert list(tokens[own]) == [TOKENS[i] for i in expected["ids"]]
        offsets = [o or [-1, -1] for o in expected_offsets(line)]
        np.testing.assert_array_equal(found["offsets"][own], offsets)
    assert found["row_starts"][-1] == len(found["vectors"])


@pytest.mark.parametrize("suffix", ["jsonl", "npz"])
def test_pooled_vectors_are_those_of_embed(model, lines_file, tmp_path, suffix):
    output = tmp_path / f"sentences.{suffix}"
    extract_features(model, [lines_file], output, Settings((2, -1), "mean"))
    if suffix == "npz":
        with np.load(output, allow_pickle=False) as file:
            assert set(file) == {"layers", "vectors"}
            found = file["vectors"]
    else:
        rows = json_rows(output)
        assert [row["linex_index"] for row in rows] == list(range(len(LINES)))
        assert [x["index"] for x in rows[0]["layers"]] == [2, -1]
        found = np.array([[x["values"] for x in r["layers"]] for r in rows])
    expected = bert_tf.embed(MODEL, map(pair_of, LINES))
    np.testing.assert_allclose(found[:, 1], expected, atol=1e-5)
    assert found.shape == (len(LINES), 2, 24)


def test_json_input_gzip_and_several_files(model, tmp_path):
    first, second = tmp_path / "1.jsonl.gz", tmp_path / "2.txt"
    rows = [{"q": "the ||| cat", "a": "dog", "n": 1}, {"a": "é", "q": "Hello"}]
    with gzip.open(first, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    second.write_bytes("\ufeffa mat\r\nit\r\n".encode())
    output = tmp_path / "out.npz"
    extract_features(
        model,
        [first, second],
        output,
        Settings((-1,), "none"),
        text_columns=("q", "a"),
    )
    with np.load(output) as file:
        tokens = file["vocabulary"][file["input_ids"]]
        starts, offsets = file["row_starts"], file["offsets"]
    assert [" ".join(r) for r in np.split(tokens, starts[1:-1])] == [
        "[CLS] the | | | cat [SEP] dog [SEP]",
        "[CLS] hello [SEP] e [SEP]",
        "[CLS] a mat [SEP]",
        "[CLS] it [SEP]",
    ]
    # Offsets in the second text of an object start from 0.
    assert offsets[7].tolist() == [0, 3]


def test_tables_have_columns(tmp_path):
    """A cell of two lines is one text."""
    rows = [{"id": 1, "text": 'a "b"\nc'}, {"id": 2, "text": "d ||| e"}]
    for name in ("t.csv", "t.parquet"):
        path = tmp_path / name
        table = pa.Table.from_pylist(rows)
        if path.suffix == ".csv":
            path.write_text('id,text\n1,"a ""b""\nc"\n2,d ||| e\n')
        else:
            pyarrow.parquet.write_table(table, path)
        found = [*read_texts([path], ["text"])]
        assert found == [((row["text"],), 0) for row in rows]
        found = [*read_texts([path], ["id", "text"])]
        assert found[1] == (("2", "d ||| e"), 0)
        line = error_of(list, read_texts([path], ["txt"]))
        assert line.startswith(f"{path}: has no column 'txt'")
        assert line.endswith("Name it with `text_columns`.")


class Standard:
    """A standard stream with a buffer of bytes."""

    def __init__(self, data: bytes = b""):
        self.buffer = io.BytesIO(data)


def test_standard_streams(model, lines_file, tmp_path, monkeypatch):
    output = tmp_path / "features.jsonl"
    extract_features(model, [lines_file], output, TOKEN_SETTINGS)
    monkeypatch.setattr(sys, "stdin", Standard(lines_file.read_bytes()))
    standard_output = Standard()
    monkeypatch.setattr(sys, "stdout", standard_output)
    said = extract_features(model, ["-"], "-", TOKEN_SETTINGS)
    monkeypatch.undo()
    assert standard_output.buffer.getvalue() == output.read_bytes()
    assert said.startswith("standard output: 13 texts")


def test_bytes_that_are_not_utf_8_can_be_replaced(model, tmp_path):
    path, output = tmp_path / "in.txt", tmp_path / "out.npz"
    path.write_bytes(b"the \xff cat")
    extract_features(
        model, [path], output, Settings((1,), "none"), encoding_errors="replace"
    )
    with np.load(output) as file:
        # U+FFFD is dropped.
        assert file["offsets"].tolist()[1:-1] == [[0, 3], [6, 9]]


@pytest.mark.parametrize("name", ["out.jsonl", "out.npz"])
def test_nothing_half_written(model, lines_file, tmp_path, monkeypatch, name):
    output = tmp_path / name
    output.write_text("older")
    text_vectors = module.text_vectors

    def breaks_off(*arguments):
        yield next(text_vectors(*arguments))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "text_vectors", breaks_off)
    with pytest.raises(OSError, match="No space left") as caught:
        extract_features(model, [lines_file], output, TOKEN_SETTINGS)
    assert caught.value.filename == str(output)
    assert output.read_text() == "older"
    assert files_in(tmp_path) == {"lines.txt", name}


def test_memory_is_that_of_a_chunk(model, tmp_path, monkeypatch):
    path = tmp_path / "many.txt"
    path.write_text("the cat sat on the mat\n" * 60)
    num_read = 0

    def counted(*arguments):
        nonlocal num_read
        num_read = 0
        for row in read_texts(*arguments):
            num_read += 1
            yield row

    waiting = []

    def weighed(file, chunks, layers, tokens):
        for number, chunk in enumerate(chunks):
            assert len(chunk.starts) == 6
            waiting.append(num_read - 5 * number)

    monkeypatch.setattr(module, "read_texts", counted)
    monkeypatch.setattr(module, "write_npz", weighed)
    output = tmp_path / "out.npz"
    extract_features(model, [path], output, TOKEN_SETTINGS, "float32")
    # A chunk, and the text after it.
    assert waiting == [6] * 11 + [5]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"ok\n\xe4\n", r"a.txt, line 2: byte 1 \(0xe4\) is not U"),
        ("a.txt", b"ok\na\rb\n", "a.txt, line 2: holds a carriage return"),
        ("a.txt.gz", b"\x1f\x8bnone", "a.txt.gz: damaged gzip file"),
        ("a.jsonl", b'{"text": "a"}\n{\n', r"a.jsonl, row 2: '{' is not JSON"),
        ("a.jsonl", b'"a"\n', r"a.jsonl, row 1: '\"a\"' is no object"),
        ("a.jsonl", b'{"t": 1}', "row 1: has no 'text'; its keys are 't'. Cor"),
        ("a.jsonl", b'{"text": {}}', "1: has no 'text'; its keys are none. "),
        ("a.jsonl", b'{"text": "\\ud800"}', "1: 'text' is .* half of a surro"),
        ("a.jsonl", b"{}\n\n", "row 1: has no 'text'; its keys are none"),
        ("a.gz", gzip.compress(b"", mtime=0), "`inputs`=.*a.gz: has no text"),
    ],
)
def test_bad_files(model, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        extract_features(
            model, [tmp_path / name], tmp_path / "out.npz", Settings()
        )
    assert "\n" not in str(caught.value)
    assert files_in(tmp_path) == {name}


@pytest.mark.parametrize(
    ("output", "columns", "message"),
    [
        ("out.csv", ("text",), "out.csv: the name tells the format; end it in"),
        ("out", ("text",), "`output`=.*out: the name tells the format"),
        ("old.npz", ("text",), "`output`=.*old.npz: is a folder; name a file"),
        ("in.jsonl", ("text",), "in.jsonl: is the input; name another file"),
        ("out.npz", ("a", "b", "c"), "text_columns=a,b,c: name one column, or"),
        ("out.npz", ("",), "text_columns=: name one column"),
    ],
)
def test_bad_arguments(model, tmp_path, output, columns, message):
    (tmp_path / "old.npz").mkdir()
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a"}\n')
    with pytest.raises(UserError, match=message):
        extract_features(
            model, [path], tmp_path / output, Settings(), text_columns=columns
        )
    assert files_in(tmp_path) == {"old.npz", "in.jsonl"}
