"""Files of texts: formats, columns, resumed runs, malformed rows."""

import csv
import gzip
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from bert_tf.errors import UserError
from bert_tf.inference import predict as module
from bert_tf.inference.load import LoadedModel
from bert_tf.inference.predict import predict_file
from bert_tf.inference.rows import PredictSettings
from bert_tf.tables.writing import read_written
from tests.inference import serving_models as models
from tests.inference.test_load import COLUMNS, assert_near
from tests.user_errors import error_of

TEXTS = [text for text in models.texts(30, 9, 7) if text.strip()]


@pytest.fixture(autouse=True)
def kinds(monkeypatch):
    """Has `predict_file` find the model of a kind, by its name, in a folder."""

    def find(folder, batch_size, precision, device, runtime):
        loaded = models.loaded(folder.name)
        model = LoadedModel(loaded.served, folder, batch_size)
        model._function = loaded._function
        return model

    monkeypatch.setattr(module, "load", find)
    monkeypatch.setattr(module, "_ROWS", 8)


def write(path, rows):
    """Rows by column as a file of the format that its name tells."""
    if path.suffix == ".jsonl":
        lines = (json.dumps(row, ensure_ascii=False) for row in rows)
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        return path
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(rows[0])
        table.writerows(row.values() for row in rows)
    return path


def rows_of(kind, texts=TEXTS):
    columns = COLUMNS[kind](texts)
    return [
        dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]


def read(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def predict(folder, source, output, **settings):
    """The lines that predict_file writes."""
    predict_file(folder, source, output, PredictSettings(**settings))
    return (read_csv if output.suffix == ".csv" else read)(output)


def test_formats_are_read_and_csv_is_written(tmp_path):
    texts = [" ".join(text.split()) for text in TEXTS]
    rows = [{"a": str(n), "title": t} for n, t in enumerate(texts)]
    answers = models.loaded("several_labels")(texts)
    model = tmp_path / "several_labels"
    source = write(tmp_path / "in.csv", rows)
    table = "".join(f"{row['a']}\t{row['title']}\n" for row in rows)
    (tmp_path / "in.tsv").write_text(table, "utf-8")
    lines = "".join(f"{text}\n" for text in texts).encode()
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(lines))
    columns = pa.Table.from_pylist(rows)
    pyarrow.parquet.write_table(columns, tmp_path / "in.parquet")
    for name, settings in (
        ("in.csv", {"text_column": "title"}),
        ("in.tsv", {"text_column": "1", "header": False}),
        ("in.parquet", {"text_column": "title"}),
        ("in.txt.gz", {}),
    ):
        output = tmp_path / f"{name}.jsonl"
        lines = predict(model, tmp_path / name, output, **settings)
        for line, text, answer in zip(lines, texts, answers, strict=True):
            assert line["text"] == text
            assert line["labels"] == answer["labels"]
            assert_near(line["probabilities"], answer["probabilities"])
    table = predict(model, source, tmp_path / "out.csv", text_column="title")
    for row, line in zip(table, lines, strict=True):
        assert (row["text"], row["row"]) == (line["text"], str(line["row"] + 1))
        assert json.loads(row["labels"]) == line["labels"]
        found = float(row["probability of b"])
        assert found == pytest.approx(line["probabilities"]["b"], abs=1e-5)


def test_columns_are_those_of_the_training(tmp_path):
    model = tmp_path / "classes"
    model.mkdir()
    facts = {"task": "mood", "text_columns": "head, body"}
    (model / "task.json").write_text(json.dumps(facts))
    (model / "recipe.json").write_text('{"header": true}')
    row = {"body": "the ferry", "head": "is good"}
    source = write(tmp_path / "in.csv", [row])
    (line,) = predict(model, source, tmp_path / "out.jsonl")
    answer = models.loaded("classes")("is good", "the ferry")
    assert_near(line["probabilities"], answer["probabilities"])
    # SWAG's own columns, where no recipe says others.
    endings = {f"ending{n}": f"{n}" for n in range(4)}
    rows = [{"sent1": "the", "sent2": "is", **endings}]
    model, source = tmp_path / "choice", write(tmp_path / "swag.csv", rows)
    (line,) = predict(model, source, tmp_path / "swag.jsonl")
    assert line["start"] == "is"
    assert line["choices"] == ["0", "1", "2", "3"]
    model.mkdir()
    recipe = {"context_column": "a", "start_column": "b", "choice_columns": "c"}
    (model / "recipe.json").write_text(json.dumps(recipe))
    rows = [
        {"a": "the", "b": "is", "c": ["x", "A"]},
        {"a": "a", "b": "", "c": "x"},
    ]
    source = write(tmp_path / "in.jsonl", rows)
    (line,) = predict(model, source, tmp_path / "list.jsonl")
    assert (line["text"], line["choices"]) == ("the", ["x", "A"])
    (error,) = read(tmp_path / "list.jsonl.errors.jsonl")
    assert error["row"] == 2
    assert error["error"].startswith("'c' is the one column of choices and has")


def test_bad_rows_are_lines_and_not_the_end(tmp_path):
    source = tmp_path / "in.csv"
    source.write_bytes(
        b"text,id\nthe ferry,1\nis\n\xff,3\n ,4\n[MASK] is,5\n[MASK]"
        + b" the ferry" * 50
        + b",6\na [MASK],7\n"
    )
    model, output = tmp_path / "pretrained", tmp_path / "out.jsonl"
    summary = predict_file(model, source, output)
    assert [line["row"] for line in read(output)] == [6, 8]
    errors = read(tmp_path / "out.jsonl.errors.jsonl")
    # Where the row can be read, with its id.
    expected = (
        (2, 0, "1", "text holds no [MASK]."),
        (3, 1, None, "has 1 cell and the header 2"),
        (4, 2, None, "0xff) is not UTF-8"),
        (5, 3, "4", "the text in 'text' is empty"),
        (7, 5, "6", " tokens beside"),
    )
    for error, (row, index, key, why) in zip(errors, expected, strict=True):
        assert (error["row"], error["index"]) == (row, index)
        assert error.get("id") == key
        assert why in error["error"]
    assert "2 of 7 rows answered; " in summary
    assert "out.jsonl.errors.jsonl" in summary
    # Another run without such rows takes the file away.
    source.write_text("text,id\n[MASK],1\n")
    output.write_text("")
    predict_file(model, source, output)
    assert not (tmp_path / "out.jsonl.errors.jsonl").exists()
    source.write_text("text\nthe\nferry\n")
    line = error_of(predict_file, model, source, output)
    assert f"`output`={output}: is there already and has other lines" in line
    other = tmp_path / "other.jsonl"
    line = error_of(predict_file, model, source, other)
    assert "none of its 2 rows has an answer. The first: row 2" in line
    # What was there stays, and nothing is left of it.
    assert not list(tmp_path.glob("*.partial"))
    assert not other.exists()
    assert len(read(output)) == 1


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        ("", {"ID": "x"}),
        ("gold, 0", {"gold": "pos", "ID": "x"}),
        ("*", {"ID": "x", "input_score": "7", "gold": "pos"}),
    ],
)
def test_columns_are_kept(tmp_path, suffix, keep, expected):
    rows = [
        {"ID": "x", "title": "the ferry", "score": "7", "gold": "pos"},
        {"ID": "y", "title": "is good", "score": "", "gold": "neg"},
    ]
    if suffix == "jsonl":
        # Of JSON, columns have no numbers, and values any type.
        keep = keep.replace("0", "ID")
        rows[0] |= {"ID": 5, "score": {"a": [7]}}
        expected = dict(expected, ID=5)
        if "input_score" in expected:
            expected["input_score"] = {"a": [7]}
    source = write(tmp_path / f"in.{suffix}", rows)
    model = tmp_path / "regression"
    settings = {"text_column": "title", "keep_columns": keep}
    line, _ = predict(model, source, tmp_path / "o.jsonl", **settings)
    assert list(line) == ["row", "index", *expected, "text", "score"]
    assert {name: line[name] for name in expected} == expected
    row, _ = predict(model, source, tmp_path / "o.csv", **settings)
    assert list(row) == list(line)
    for name, value in expected.items():
        is_json = isinstance(value, dict)
        found = json.loads(row[name]) if is_json else row[name]
        assert found == (value if is_json else str(value))


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_answers_to_another_input_stay(tmp_path, suffix):
    model, output = tmp_path / "choice", tmp_path / f"out.{suffix}"
    names = {"choice_columns": "choices", "start_column": "start"}
    settings = PredictSettings(text_column="text", **names)
    rows = rows_of("choice", TEXTS[:6])
    source = write(tmp_path / "in.jsonl", rows)
    predict_file(model, source, output, settings)
    first = output.read_bytes()
    # The same again, and with rows behind.
    predict_file(model, source, output, settings)
    assert output.read_bytes() == first
    more = write(tmp_path / "more.jsonl", [*rows, rows[0]])
    predict_file(model, more, output, settings)
    before = output.read_bytes()
    for others in (rows, [rows[1], *rows[1:], rows[0]]):
        other = write(tmp_path / "other.jsonl", others)
        line = error_of(predict_file, model, other, output, settings)
        assert line.startswith(f"`output`={output}: is there already and has")
    line = error_of(predict_file, model, "-", output, settings)
    assert "standard input" in line
    assert output.read_bytes() == before
    assert not list(tmp_path.glob("*.partial"))
    # What is no file of answers at all.
    for text in (b"text,label\na,b\n", b'{"row": 1}\n', b"[]\n", b"\xff"):
        output.write_bytes(text)
        error_of(predict_file, model, source, output, settings)
        assert output.read_bytes() == text


def kill_at(monkeypatch, chunk, error=KeyboardInterrupt):
    answers, calls = module._answers, []

    def killed(*arguments, **named):
        calls.append(0)
        if len(calls) == chunk:
            raise error
        return answers(*arguments, **named)

    monkeypatch.setattr(module, "_answers", killed)


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv", "parquet"])
def test_a_killed_run_is_resumed(suffix, tmp_path, monkeypatch, capsys):
    rows = rows_of("regression", [*TEXTS[:20], "", *TEXTS[20:]])
    source = write(tmp_path / "in.csv", rows)
    model = tmp_path / "regression"
    whole, output = (tmp_path / f"{n}.{suffix}" for n in ("whole", "out"))
    predict_file(model, source, whole)
    with monkeypatch.context() as patch:
        kill_at(patch, 3)
        with pytest.raises(KeyboardInterrupt, match="16 rows are done"):
            predict_file(model, source, output)
    assert not output.exists()
    partial = tmp_path / f"out.{suffix}.partial"
    # Killed in the middle of a line.
    with (partial / "output").open("ab") as file:
        file.write(b'{"row": 1')
    asked, answer = [], LoadedModel._answer
    monkeypatch.setattr(
        LoadedModel,
        "_answer",
        lambda self, rows: asked.extend(rows) or answer(self, rows),
    )
    predict_file(model, source, output)
    assert "resumes after 16 rows" in capsys.readouterr().err
    assert len(asked) == len(TEXTS) - 16
    assert output.read_bytes() == whole.read_bytes()
    errors = tmp_path / f"out.{suffix}.errors.jsonl"
    other_errors = tmp_path / f"whole.{suffix}.errors.jsonl"
    assert errors.read_bytes() == other_errors.read_bytes()
    assert not partial.exists()


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    """What was noted before is resumed; without that nothing is left."""
    source = write(tmp_path / "in.csv", rows_of("regression"))
    output, writes = tmp_path / "answers" / "out.jsonl", [0] * 5

    def full(path):
        writes.append(path)
        if len(writes) % 6 == 0:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "sync", full)
    for left in ([], ["out.jsonl.partial"]):
        with pytest.raises(OSError, match=r"No space left.*: '.*/out.jsonl'"):
            predict_file(tmp_path / "regression", source, output)
        assert [path.name for path in output.parent.iterdir()] == left
    predict_file(tmp_path / "regression", source, output)
    assert len(read(output)) == len(TEXTS)


def test_a_partial_output_of_something_else_is_refused(tmp_path, monkeypatch):
    source = write(tmp_path / "in.csv", rows_of("regression"))
    model, output = tmp_path / "regression", tmp_path / "out.jsonl"
    with monkeypatch.context() as patch:
        kill_at(patch, 2, MemoryError)
        with pytest.raises(MemoryError):
            predict_file(model, source, output)
    for what, arguments in (
        ("model", (tmp_path / "encoder", source, output)),
        ("settings", (model, source, output, PredictSettings(batch_size=3))),
        ("input", (model, shutil.copy(source, tmp_path / "b.csv"), output)),
    ):
        line = error_of(predict_file, *arguments)
        assert f"has 8 rows that another {what} answered; delete" in line
    with module._PartialFile(output, False):
        line = error_of(predict_file, model, source, output)
        assert "another run is writing it" in line
    predict_file(model, source, output)
    assert len(read(output)) == len(TEXTS)


def test_what_cannot_be_predicted_is_refused(tmp_path):
    model, good = tmp_path / "regression", tmp_path / "in.csv"
    output = tmp_path / "out.jsonl"
    write(good, rows_of("regression"))
    ragged = [{"text": "a", "x": 1}, {"text": "b", "y": 1}]
    write(tmp_path / "in.jsonl", ragged)
    for name, text in (
        *(("none.csv", "text\n"), ("empty.csv", ""), ("x.dat", "a")),
        *(("file", ""), ("in.txt", "a\n"), ("return.txt", "a\rb\r")),
    ):
        (tmp_path / name).write_text(text, newline="")
    for source, target, settings, what in (
        ("no.csv", output, {}, "no.csv: no such file"),
        (".", output, {}, f"`input`={tmp_path}: is a folder"),
        ("empty.csv", output, {}, "empty.csv: is empty"),
        ("none.csv", output, {}, "has no rows"),
        ("x.dat", output, {}, "neither name nor first line tells the format"),
        (good, "out.xlsx", {}, "`output`=out.xlsx: the name tells the"),
        (good, tmp_path / "file" / "out.csv", {}, "cannot be written there"),
        (good, good, {}, "in.csv: is the input; name another file"),
        (good, output, {"text_column": "txt"}, "has no column 'txt'. Did you"),
        (good, output, {"text_column": "a"}, "Choose one with `text_column`."),
        (good, output, {"text_column": "9", "header": False}, "called 0 to"),
        (good, output, {"keep_columns": "txt"}, "such column. Did you mean"),
        (good, output, {"question_column": "q"}, "`question_column`=q: this m"),
        ("in.txt", output, {"keep_columns": "id"}, "`keep_columns`=id: "),
        ("return.txt", output, {}, "holds a carriage return inside a line"),
        (
            *("in.jsonl", tmp_path / "out.csv", {"keep_columns": "*"}),
            "in.jsonl, row 2: has columns that the first row has not, 'y'",
        ),
    ):
        given = model, tmp_path / source, target, PredictSettings(**settings)
        assert what in error_of(predict_file, *given)
    source, pairs = tmp_path / "in.txt", tmp_path / "classes"
    line = error_of(predict_file, pairs, source, output)
    assert "this model takes text and text_b" in line
    with pytest.raises(UserError, match="batch_size is 0; it takes 1 or more"):
        PredictSettings(batch_size=0)
    # Nothing is left behind.
    assert not list(tmp_path.glob("*.partial"))
    assert not output.exists()


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_tables_and_files_of_tables_have_the_answers_of_one(tmp_path, ending):
    # TSV holds no tabs.
    texts = [" ".join(text.split()) for text in TEXTS]
    rows = [{"id": str(n), "text": text} for n, text in enumerate(texts)]
    model = tmp_path / "several_labels"
    whole = predict(
        model, write(tmp_path / "in.csv", rows), tmp_path / "whole.jsonl"
    )
    assert len(whole) == len(rows)
    write(tmp_path / "part-0.csv", rows[:9])
    write(tmp_path / "part-1.jsonl", rows[9:])
    parts = predict(model, f"{tmp_path}/part-*", tmp_path / "parts.jsonl")
    files = [tmp_path / "part-0.csv"] * 9
    files += [tmp_path / "part-1.jsonl"] * len(rows[9:])
    for line, file in zip(parts, files, strict=True):
        assert line.pop("file") == str(file)
    output = tmp_path / f"out.{ending}"
    in_memory = {"text": texts, "id": np.arange(len(rows)).astype(str)}
    predict_file(model, in_memory, output)
    found = list(read_written(output))
    for line, part, row in zip(whole, parts, found, strict=True):
        assert {**part, "row": line["row"]} == line
        assert (row["text"], row["id"]) == (line["text"], line["id"])
        assert int(row["index"]) == int(row["row"]) == line["index"]
        probability = float(row["probability of b"])
        assert probability == line["probabilities"]["b"]
    # The same again is no other output.
    before = output.read_bytes()
    predict_file(model, in_memory, output)
    assert output.read_bytes() == before
    line = error_of(predict_file, model, {"text": texts[1:]}, output)
    assert "is there already and has other lines than answers to" in line


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_texts_that_a_spreadsheet_would_compute(ending, tmp_path):
    """Numbers of the answers are no texts."""
    texts = ["=1+2", "+1", "-1", "@x", "a=b", "'a"]
    source = write(tmp_path / "in.csv", [{"text": each} for each in texts])
    output, model = tmp_path / f"out.{ending}", tmp_path / "regression"
    settings = PredictSettings(escape_formulas=True)
    predict_file(model, source, output, settings)
    before = output.read_bytes()
    rows = list(read_written(output))
    marked = 0 if ending == "jsonl" else 4
    expected = [f"'{each}" for each in texts[:marked]] + texts[marked:]
    assert [row["text"] for row in rows] == expected
    assert all(np.isfinite(float(row["score"])) for row in rows)
    # The same answers to the same rows.
    predict_file(model, source, output, settings)
    assert output.read_bytes() == before
    if marked:
        line = error_of(predict_file, model, source, output)
        assert "is there already and has other lines than answers" in line


def test_a_row_that_tsv_cannot_hold_is_an_error_line(tmp_path):
    rows = [{"text": "the ferry"}, {"text": "the\tferry"}, {"text": "is good"}]
    source, output = write(tmp_path / "in.csv", rows), tmp_path / "out.tsv"
    predict_file(tmp_path / "regression", source, output)
    assert [row["text"] for row in read_written(output)] == [
        *("the ferry", "is good"),
    ]
    (error,) = read(tmp_path / "out.tsv.errors.jsonl")
    assert (error["row"], error["index"]) == (3, 1)
    assert error["error"].startswith("'text' holds a tab or a line end, which")
