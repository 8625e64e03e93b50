"""Files of new texts answered: any kind, any format, resumed, bad rows told."""

import csv
import gzip
import json
import shutil

import pytest

from bert_tf.errors import UserError
from bert_tf.inference import predict as module
from bert_tf.inference.load import LoadedModel
from bert_tf.inference.predict import predict_file
from bert_tf.inference.rows import PredictSettings
from tests.inference import serving_models as models
from tests.inference.test_load import COLUMNS, assert_near, loaded
from tests.user_errors import error_of

TEXTS = [text for text in models.texts(30, 9, 7) if text.strip()]


@pytest.fixture
def kind(monkeypatch):
    """Has `predict_file` find the model of a kind, by its name, in a folder."""

    def find(folder, batch_size, precision, device):
        traced = loaded(folder.name)
        model = LoadedModel(traced.served, folder, batch_size)
        model._function = traced._function
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


def predict(folder, source, output, **settings):
    """The lines that predict_file writes, without what was asked."""
    predict_file(folder, source, output, PredictSettings(**settings))
    return read(output)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_file_is_answered_as_its_rows_are(name, kind, tmp_path):
    rows = rows_of(name)
    source = write(tmp_path / "in.jsonl", rows)
    # Of choices the columns are SWAG's, unless someone says others.
    named = {"text_column": "text", "start_column": "start"}
    named["choice_columns"] = "choices"
    settings = named if name == "choice" else {}
    lines = predict(tmp_path / name, source, tmp_path / "out.jsonl", **settings)
    assert [line["row"] for line in lines] == list(range(1, len(rows) + 1))
    assert [line.pop("index") for line in lines] == list(range(len(rows)))
    asked = {n: [row[n] for row in rows] for n in rows[0]}
    for line, row, answer in zip(
        lines, rows, loaded(name)(**asked), strict=True
    ):
        # What was asked stands beside the answer.
        assert {n: line.pop(n) for n in row} == row
        del line["row"]
        assert_near(line, answer)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "in.jsonl",
        "out.jsonl",
    ]


def test_formats_are_read_and_csv_is_written(kind, tmp_path):
    texts = [" ".join(text.split()) for text in TEXTS]
    rows = [{"a": str(n), "title": t} for n, t in enumerate(texts)]
    answers = loaded("several_labels")(texts)
    model = tmp_path / "several_labels"
    source = write(tmp_path / "in.csv", rows)
    (tmp_path / "in.tsv").write_text(
        "".join(f"{row['a']}\t{row['title']}\n" for row in rows), "utf-8"
    )
    (tmp_path / "in.txt.gz").write_bytes(
        gzip.compress("".join(f"{t}\n" for t in texts).encode())
    )
    for name, settings in (
        ("in.csv", {"text_column": "title"}),
        ("in.tsv", {"text_column": "1", "header": False}),
        ("in.txt.gz", {}),
    ):
        lines = predict(
            model, tmp_path / name, tmp_path / f"{name}.jsonl", **settings
        )
        for line, text, answer in zip(lines, texts, answers, strict=True):
            assert line["text"] == text
            assert line["labels"] == answer["labels"]
            assert_near(line["probabilities"], answer["probabilities"])
    settings = PredictSettings(text_column="title")
    predict_file(model, source, tmp_path / "out.csv", settings)
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    for row, line in zip(table, lines, strict=True):
        assert (row["text"], row["row"]) == (line["text"], str(line["row"] + 1))
        assert json.loads(row["labels"]) == line["labels"]
        found = float(row["probability of b"])
        assert found == pytest.approx(line["probabilities"]["b"], abs=1e-5)


def test_columns_are_those_of_the_training(kind, tmp_path):
    model = tmp_path / "classes"
    model.mkdir()
    facts = {"task": "mood", "text_columns": "head, body"}
    (model / "task.json").write_text(json.dumps(facts))
    (model / "recipe.json").write_text('{"header": true}')
    rows = [{"body": "the ferry", "head": "is good"}]
    lines = predict(
        model, write(tmp_path / "in.csv", rows), tmp_path / "out.jsonl"
    )
    assert_near(
        lines[0]["probabilities"],
        loaded("classes")("is good", "the ferry")["probabilities"],
    )
    # SWAG's own columns, where no recipe says others.
    rows = [
        {
            "sent1": "the",
            "sent2": "is",
            **{f"ending{n}": f"{n}" for n in range(4)},
        }
    ]
    lines = predict(
        tmp_path / "choice",
        write(tmp_path / "swag.csv", rows),
        tmp_path / "swag.jsonl",
    )
    assert lines[0]["start"] == "is"
    assert lines[0]["choices"] == ["0", "1", "2", "3"]
    model = tmp_path / "choice"
    model.mkdir()
    recipe = {"context_column": "a", "start_column": "b", "choice_columns": "c"}
    (model / "recipe.json").write_text(json.dumps(recipe))
    rows = [
        {"a": "the", "b": "is", "c": ["x", "A"]},
        {"a": "a", "b": "", "c": "x"},
    ]
    lines = predict(
        model, write(tmp_path / "in.jsonl", rows), tmp_path / "list.jsonl"
    )
    assert (lines[0]["text"], lines[0]["choices"]) == ("the", ["x", "A"])
    (error,) = read(tmp_path / "list.jsonl.errors.jsonl")
    assert error["row"] == 2
    assert error["error"].startswith("'c' is the one column of choices and has")


def test_bad_rows_are_lines_and_not_the_end(kind, tmp_path, capsys):
    source = tmp_path / "in.csv"
    source.write_bytes(
        b"text,id\nthe ferry,1\nis\n\xff,3\n ,4\n"
        + b"[MASK] is,5\n[MASK]"
        + b" the ferry" * 50
        + b",6\na [MASK],7\n"
    )
    output = tmp_path / "out.jsonl"
    summary = predict_file(tmp_path / "pretrained", source, output)
    assert [line["row"] for line in read(output)] == [6, 8]
    errors = read(tmp_path / "out.jsonl.errors.jsonl")
    assert [error["row"] for error in errors] == [2, 3, 4, 5, 7]
    # Where the row can be read, with its id.
    assert [e.get("id") for e in errors] == ["1", None, None, "4", "6"]
    assert [e["index"] for e in errors] == [0, 1, 2, 3, 5]
    for error, why in zip(
        errors,
        (
            "text holds no [MASK].",
            "has 1 cell and the header 2",
            "0xff) is not UTF-8",
            "the text in 'text' is empty",
            " tokens beside",
        ),
        strict=True,
    ):
        assert why in error["error"]
    assert "2 of 7 rows answered; " in summary
    assert "out.jsonl.errors.jsonl says why the others are not" in summary
    # Another run without such rows takes the file away.
    source.write_text("text,id\n[MASK],1\n")
    output.write_text("")
    predict_file(tmp_path / "pretrained", source, output)
    assert not (tmp_path / "out.jsonl.errors.jsonl").exists()
    source.write_text("text\nthe\nferry\n")
    line = error_of(predict_file, tmp_path / "pretrained", source, output)
    assert f"`output`={output}: is there already and has other lines" in line
    output = tmp_path / "other.jsonl"
    line = error_of(predict_file, tmp_path / "pretrained", source, output)
    assert "none of its 2 rows has an answer. The first: row 2: text" in line
    # What was there stays, and nothing is left of it.
    assert not list(tmp_path.glob("*.partial"))
    assert not output.exists()
    assert len(read(tmp_path / "out.jsonl")) == 1


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        ("", {"ID": "x"}),
        ("gold, 0", {"gold": "pos", "ID": "x"}),
        ("*", {"ID": "x", "input_score": "7", "gold": "pos"}),
    ],
)
def test_columns_are_kept(kind, tmp_path, suffix, keep, expected):
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
    predict_file(model, source, tmp_path / "o.csv", PredictSettings(**settings))
    with (tmp_path / "o.csv").open(newline="", encoding="utf-8") as file:
        row, _ = csv.DictReader(file)
    assert list(row) == list(line)
    for name, value in expected.items():
        found = row[name]
        assert (json.loads(found) if isinstance(value, dict) else found) == (
            value if isinstance(value, dict) else str(value)
        )


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_answers_to_another_input_stay(kind, tmp_path, suffix):
    model, output = tmp_path / "choice", tmp_path / f"out.{suffix}"
    names = {"choice_columns": "choices", "start_column": "start"}
    names |= {"text_column": "text"}
    settings = PredictSettings(**names)
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
    assert "whether it answers standard input cannot be told" in line
    assert output.read_bytes() == before
    assert not list(tmp_path.glob("*.partial"))
    # What is no file of answers at all.
    for text in ("text,label\na,b\n", '{"row": 1}\n', "[]\n", "\xff"):
        output.write_bytes(text.encode("latin-1"))
        error_of(predict_file, model, source, output, settings)
        assert output.read_bytes() == text.encode("latin-1")


def kill_at(monkeypatch, window, error=KeyboardInterrupt):
    answers, calls = module._answers, []

    def killed(*arguments):
        calls.append(0)
        if len(calls) == window:
            raise error
        return answers(*arguments)

    monkeypatch.setattr(module, "_answers", killed)


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_a_killed_run_goes_on(suffix, kind, tmp_path, monkeypatch, capsys):
    rows = rows_of("regression", [*TEXTS[:20], "", *TEXTS[20:]])
    source = write(tmp_path / "in.csv", rows)
    model = tmp_path / "regression"
    whole, output = (tmp_path / f"{n}.{suffix}" for n in ("whole", "out"))
    predict_file(model, source, whole)
    with monkeypatch.context() as patch:
        kill_at(patch, 3)
        with pytest.raises(KeyboardInterrupt, match="16 rows are done; the sa"):
            predict_file(model, source, output)
    assert not output.exists()
    partial = tmp_path / f"out.{suffix}.partial"
    # Killed in the middle of a line.
    with (partial / "output").open("ab") as file:
        file.write(b'{"row": 1')
    asked = []
    answer = LoadedModel._answer
    monkeypatch.setattr(
        LoadedModel,
        "_answer",
        lambda self, rows: asked.extend(rows) or answer(self, rows),
    )
    predict_file(model, source, output)
    assert "resumes behind 16 rows" in capsys.readouterr().err
    assert len(asked) == len(TEXTS) - 16
    assert output.read_bytes() == whole.read_bytes()
    assert (tmp_path / f"out.{suffix}.errors.jsonl").read_bytes() == (
        tmp_path / f"whole.{suffix}.errors.jsonl"
    ).read_bytes()
    assert not partial.exists()


def test_a_full_disk_is_one_line(kind, tmp_path, monkeypatch):
    """What was noted before is resumed; without that nothing is left."""
    source = write(tmp_path / "in.csv", rows_of("regression"))
    output, writes = tmp_path / "answers" / "out.jsonl", []

    def full(path):
        writes.append(path)
        if len(writes) % 6 == 0:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "sync", full)
    writes.extend([0] * 5)
    for left in ([], ["out.jsonl.partial"]):
        with pytest.raises(OSError, match=r"No space left.*: '.*/out.jsonl'"):
            predict_file(tmp_path / "regression", source, output)
        assert [path.name for path in output.parent.iterdir()] == left
    predict_file(tmp_path / "regression", source, output)
    assert len(read(output)) == len(TEXTS)


def test_a_partial_output_of_something_else_is_refused(
    kind, tmp_path, monkeypatch
):
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
    with module._PartialFile(output):
        line = error_of(predict_file, model, source, output)
        assert "another run is writing it" in line
    predict_file(model, source, output)
    assert len(read(output)) == len(TEXTS)


def test_what_cannot_be_predicted_is_refused(kind, tmp_path):
    model, good = tmp_path / "regression", tmp_path / "in.csv"
    output = tmp_path / "out.jsonl"
    write(good, rows_of("regression"))
    for name, text in (
        ("none.csv", "text\n"),
        ("empty.csv", ""),
        ("x.dat", "a"),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "file").write_text("")
    cases = [
        (tmp_path / "no.csv", output, {}, "no.csv: no such file"),
        (tmp_path, output, {}, f"`input`={tmp_path}: is a folder"),
        (tmp_path / "empty.csv", output, {}, "empty.csv: is empty"),
        (tmp_path / "none.csv", output, {}, "has no rows"),
        (tmp_path / "x.dat", output, {}, "the name does not tell the format"),
        (good, "out.parquet", {}, "`output`=out.parquet: the name tells the"),
        (good, tmp_path / "file" / "out.csv", {}, "cannot be written there"),
        (good, good, {}, "in.csv: is the input; name another file"),
        (good, output, {"text_column": "txt"}, "has no column 'txt'. Did you"),
        (good, output, {"text_column": "a"}, "Choose one with `text_column`."),
        (good, output, {"text_column": "9", "header": False}, "called 0 to"),
        (
            good,
            output,
            {"keep_columns": "txt"},
            f"`keep_columns`=txt: {good} has no such column. Did you mean",
        ),
        (
            good,
            output,
            {"question_column": "q"},
            "`question_column`=q: this model, of text regression, takes text.",
        ),
    ]
    for source, target, settings, what in cases:
        line = error_of(
            predict_file, model, source, target, PredictSettings(**settings)
        )
        assert what in line
    with pytest.raises(UserError, match="batch_size is 0; it takes 1 or more"):
        PredictSettings(batch_size=0)
    (tmp_path / "in.txt").write_text("a\n")
    line = error_of(
        predict_file, tmp_path / "classes", tmp_path / "in.txt", output
    )
    assert "has one text a line, and this model takes text and text_b" in line
    line = error_of(
        predict_file,
        model,
        tmp_path / "in.txt",
        output,
        PredictSettings(keep_columns="id"),
    )
    assert line.startswith("`keep_columns`=id: ")
    (tmp_path / "in.txt").write_text("a\rb\r")
    line = error_of(predict_file, model, tmp_path / "in.txt", output)
    assert "holds a carriage return inside a line" in line
    ragged = [{"text": "a", "x": 1}, {"text": "b", "y": 1}]
    write(tmp_path / "in.jsonl", ragged)
    line = error_of(
        predict_file,
        model,
        tmp_path / "in.jsonl",
        tmp_path / "out.csv",
        PredictSettings(keep_columns="*"),
    )
    assert (
        "in.jsonl, row 2: has columns that the first row has not, 'y'" in line
    )
    # Nothing is left behind.
    assert not list(tmp_path.glob("*.partial"))
    assert not output.exists()
