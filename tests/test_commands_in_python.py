"""What the commands do, done in Python: the same files, answers and scores."""

import contextlib
import csv
import dataclasses
import json
import pathlib

import pytest

import bert_tf
from bert_tf.finetuned import FinetuningRun
from bert_tf.finetuning.run import run_finetuning
from bert_tf.inference import export_model, saving
from bert_tf.inference import predict as predict_run
from bert_tf.pretraining import run as pretraining_run
from tests import commands
from tests.finished_runs import NAMES, finished_run
from tests.frames import Frame
from tests.records_corpus import text, write_vocabulary
from tests.small_runs import save_small_model
from tests.user_errors import error_of

# Graphs of tf.data stay graphs.
pytestmark = pytest.mark.filterwarnings("ignore:Even though the .tf.config")


def command(name, *arguments):
    done = commands.run(f"tools.{name}", *arguments)
    assert done.returncode == 0, done.stderr
    return done


def files(folder):
    """The files of a folder, by their paths in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def finished(name, folder):
    """A stored run as `finetune` returns it, and its dev file."""
    run = finished_run(name, folder)
    dev = run.case.train_path(run.files).with_name(run.case.files[1])
    results = json.loads((run.folder / "results.json").read_text())
    values = run.folder, results["dev"], run.folder / "report.html", results
    return FinetuningRun(*values, run.task), run.recipe, dev


def columns_of(path):
    """The columns of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        first, *rows = csv.reader(file)
    return dict(zip(first, map(list, zip(*rows, strict=True)), strict=True))


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """The run of "classes", its recipe and its dev file."""
    return finished("classes", tmp_path_factory.mktemp("classes"))


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_the_mode_eval(name, tmp_path, eagerly, capsys):
    run, recipe, dev = finished(name, tmp_path)
    recipe = dataclasses.replace(recipe, init_from=str(run.folder))
    done = run_finetuning(run.task, recipe, tmp_path / "eval", ["eval"])
    capsys.readouterr()
    before = files(tmp_path)
    assert run.evaluate(dev) == done["eval"]["dev"]
    assert files(tmp_path) == before
    assert capsys.readouterr().out == ""


def test_data_in_memory_are_scored_as_their_file(classes, tmp_path, eagerly):
    run, _, dev = classes
    values = columns_of(dev)
    expected = run.scores["dev"]
    model = bert_tf.load(run.folder)
    assert model.evaluate((values["text"], values["label"])) == expected
    # Half of the labels are another one.
    labels = [*values["label"]]
    labels[::2] = ["up" if each == "down" else "down" for each in labels[::2]]
    table = Frame({"body": values["text"], "mood": labels})
    names = {"text_columns": "body", "label_column": "mood"}
    scores = model.evaluate(table, **names)
    assert scores["accuracy"] == pytest.approx(1 - expected["accuracy"] / 2)
    # Settings of the files of the training are not those of the table.
    recipe = json.loads((run.folder / "recipe.json").read_text())
    recipe |= {"format": "csv", "header": False, "strategy": "mirrored"}
    folder = tmp_path / "other"
    folder.mkdir()
    for path, content in files(run.folder).items():
        (folder / path).write_bytes(content)
    (folder / "recipe.json").write_text(json.dumps(recipe))
    assert bert_tf.load(folder).evaluate(table, **names) == scores


def test_data_that_cannot_be_scored_are_one_line(classes, tmp_path, eagerly):
    run, _, dev = classes
    model = bert_tf.load(run.folder)
    two = {"text": ["a", ""], "label": ["up", "up"]}
    other = {"text": ["a"], "label": ["sideways"]}
    for data, settings, line in (
        ("none.csv", {}, "`data`=none.csv: no such file."),
        (5, {}, "`data` is 5; for this task give (texts, labels), a DataFram"),
        (two, {}, "`data`, row 2: the text in 'text' is empty ('')"),
        (other, {}, "`data`, row 1: unknown label 'sideways'; the labels ar"),
        (dev, {"text_columns": "txt"}, f"{dev}: has no column 'txt'. Did you"),
        (
            dev,
            {"settings": {"bad_row": "skip"}},
            f"the settings of {run.folder}",
        ),
        (
            dev,
            {"bad_row": "skip"},
            f"the settings of {run.folder}/recipe.json: unknown key 'bad_row'. "
            "Did you mean bad_rows?",
        ),
        (dev, {"settings": {"dev_file": "a"}}, "`settings`: dev_file is what"),
    ):
        assert error_of(model.evaluate, data, **settings).startswith(line)
    start = bert_tf.load(save_small_model(tmp_path / "start"))
    line = error_of(start.evaluate, dev)
    assert line.startswith(f"{start.folder}: has no recipe.json of a fine-tu")
    run, _, dev = finished("questions", tmp_path)
    line = error_of(bert_tf.load(run.folder).evaluate, dev)
    assert line.startswith(f"`task`=None: {run.folder} was fine-tuned for squ")


def test_predict_is_the_command(classes, tmp_path, eagerly, capsys):
    run, _, dev = classes
    values = columns_of(dev)
    values["text"][3] = " "
    table = Frame({"id": [*range(len(values["text"]))], **values})
    source = tmp_path / "in.csv"
    with source.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.data)
        writer.writerows(zip(*table.data.values(), strict=True))
    given = f"--model={run.folder}", f"--input={source}", "--runtime=keras"
    for ending in ("jsonl", "csv"):
        target = tmp_path / f"out.{ending}"
        command("predict", *given, f"--output={target}", "--keep_columns=*")
        path = run.predict(source, tmp_path / f"b.{ending}", keep_columns="*")
        assert path.read_bytes() == target.read_bytes()
        assert f"{path}: 13 of 14 rows answered" in capsys.readouterr().err
    text = (tmp_path / "out.jsonl").read_text("utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    errors = (tmp_path / "out.jsonl.errors.jsonl").read_text("utf-8")
    lines.insert(3, json.loads(errors))
    given = {"keep_columns": "*", "runtime": "keras"}
    assert bert_tf.predict(run.folder, source, **given) == lines
    # In memory, rows are counted, and numbers stay numbers.
    lines = [
        line | {"row": number, "id": number}
        for number, line in enumerate(lines)
    ]
    assert run.predict(table, keep_columns="*") == lines
    path = run.predict(table, tmp_path / "c.jsonl", keep_columns="*")
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert written == lines[:3] + lines[4:]
    texts = values["text"][:3]
    for answer, line in zip(run.model(texts), run.predict(texts), strict=True):
        assert line == line | answer
    for text in ("a good film, no doubt.", "good", "is this/that good?"):
        assert run.predict(text) == run.predict([text])[0]


@pytest.mark.parametrize(
    ("name", "missing", "field"),
    [
        ("classes", "text", "text_column"),
        ("choices", "options", "choice_columns"),
        # Their recipes name no columns.
        *(("tags", "", ""), ("questions", "", "")),
    ],
)
def test_a_header_is_checked_before_the_model_is_loaded(
    name, missing, field, tmp_path, monkeypatch
):
    def loads(*_, **__):
        raise NotImplementedError

    monkeypatch.setattr(predict_run, "load", loads)
    run, *_ = finished(name, tmp_path)
    source = tmp_path / "in.csv"
    first = "text" if name == "choices" else "other"
    source.write_text(f"{first},thing\na,b\n")
    given = run.folder, source, tmp_path / "out.csv"
    if missing:
        line = error_of(bert_tf.predict, *given)
        assert line.startswith(f"{source}: has no column {missing!r}. ")
        assert line.endswith(f"Choose one with `{field}`.")
        with pytest.raises(NotImplementedError):
            bert_tf.predict(*given, **{field: "thing"})
    else:
        with pytest.raises(NotImplementedError):
            bert_tf.predict(*given)
    assert not (tmp_path / "out.csv").exists()


def test_what_cannot_be_predicted_is_one_line(classes, tmp_path):
    model = bert_tf.load(classes[0].folder)
    for data, settings, line in (
        ("none.csv", {}, "`input`=none.csv: no such file."),
        ("no folder/none.csv", {}, "`input`=no folder/none.csv: no such"),
        ("folder/none", {}, "`input`=folder/none: no such file."),
        ("a film", {"output": "a.csv"}, "`input`=a film: no such file."),
        (" ", {}, "`input`= : no such file."),
        ([], {}, "`input`: is empty; give at least one text."),
        ([("a", "b")], {}, "`input`: has 2 text(s) a row, and this model tak"),
        (["a", 1], {}, "`input`[1] is 1; give a string or a pair"),
        ({"txt": ["a"]}, {}, "`input`: none of its 1 rows has an answer. The"),
        (["a"], {"output": "a.txt"}, "`output`=a.txt: the name tells the"),
        (["a"], {"settings": {"batch_size": 2}}, "`batch_size`=2: the model "),
        (["a"], {"settings": {"devise": ""}}, "the settings of predict: unkn"),
        (
            ["a"],
            {"outptu": "a.csv"},
            "the settings of predict: unknown key 'outptu'. Did you mean outp",
        ),
        (["a"], {"format": "xls"}, "the settings of predict: format is 'xls'"),
        (
            ["a"],
            {"text_column": "a", "settings": {"text_column": "b"}},
            "`settings`: text_column is what an argument says",
        ),
    ):
        assert error_of(model.predict, data, **settings).startswith(line)


def test_exports_are_those_of_the_command(
    classes, tmp_path, monkeypatch, capsys
):
    """Without the SavedModel itself, and the process that checks it."""

    def without_graphs(served, folder):
        (folder / "saved_model.pb").write_bytes(b"")
        return served.signatures()

    run, *_ = classes
    monkeypatch.setattr(saving, "save", without_graphs)
    for module in (saving, export_model):
        monkeypatch.setattr(module, "FreshProcess", contextlib.nullcontext)
    monkeypatch.setattr(saving, "_check", lambda *_: None)
    for name, settings in (("saved_model", ["--version=3"]), ("onnx", [])):
        ours, theirs = tmp_path / name / "ours", tmp_path / name / "theirs"
        given = f"--model={run.folder}", f"--output_dir={theirs}"
        done = command(
            "export_saved_model", *given, f"--format={name}", *settings
        )
        version = 3 if settings else None
        capsys.readouterr()
        written = run.export(ours, name, version=version)
        assert written == ours / ("3" if settings else "model.onnx")
        assert written.exists()
        said = capsys.readouterr().out.replace("ours", "theirs")
        assert said.partition(" MB")[0] == done.stdout.partition(" MB")[0]
        expected = files(theirs)
        assert files(ours).keys() == expected.keys()
        for path in ("model.onnx", "3/assets.extra/model.json"):
            assert files(ours).get(path) == expected.get(path)
    line = error_of(run.export, ours, "onnx")
    assert line.startswith(f"`path`={ours}: is not empty")
    line = error_of(run.export, tmp_path / "x", "onnx", version=1)
    assert line.startswith("`version`: is for `file_format`=saved_model; lea")
    line = error_of(run.export, tmp_path / "x", presision="float32")
    assert line == (
        f"the recipe of {run.folder}: unknown key 'presision'. Did you mean "
        "precision?"
    )
    line = error_of(run.export, tmp_path / "x", bad_rows="skip")
    assert line.startswith("`bad_rows`: is for `quantize`=int8; leave it out")
    line = error_of(run.export, tmp_path / "x", "tflite")
    assert line.startswith("`file_format`='tflite': takes one of saved_model")


def test_convert_is_the_command(classes, tmp_path):
    run, *_ = classes
    given = f"--input={run.folder}", "--to=bert_tf"
    command("convert_checkpoint", *given, f"--output_dir={tmp_path}/theirs")
    report = run.convert(to="bert_tf", path=tmp_path / "ours")
    assert report.output_dir == tmp_path / "ours"
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")
    line = error_of(run.convert, "bert_tf", tmp_path / "ours")
    assert line.startswith(f"`path`={tmp_path}/ours: is not empty")


def test_records_are_those_of_the_command(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(text(20))
    vocab_file = write_vocabulary(tmp_path / "vocab")
    inputs = f"{tmp_path}/*.txt"
    command(
        "create_pretraining_data",
        *(f"--input={inputs}", f"--vocab_file={vocab_file}", "--workers=1"),
        *(f"--output_dir={tmp_path}/theirs", "--max_seq_length=32"),
        *("--max_predictions_per_seq=5", "--masked_lm_prob=0.2"),
    )
    given = inputs, vocab_file, tmp_path / "ours"
    names = {"max_seq_length": 32, "max_predictions_per_seq": 5, "workers": 1}
    report = bert_tf.create_records(*given, **names, masked_lm_prob=0.2)
    assert report.output_dir == tmp_path / "ours"
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")
    for changes, line in (
        ({"max_seq_length": 3}, "the settings of create_records: max_seq_le"),
        ({"settings": {"max_seq_length": 9}}, "`settings`: max_seq_length is"),
        ({"worker": 1}, "the settings of create_records: unknown key 'worker'"),
        ({"runner": "spark"}, "`runner`='spark': takes one of local, beam."),
        ({"beam_options": "--x"}, "`beam_options`=--x: is for `runner`=beam"),
        ({"runner": "beam"}, "`workers`=1: is for `runner`=local; for beam"),
    ):
        error = error_of(bert_tf.create_records, *given, **names | changes)
        assert error.startswith(line)


def test_pretrain_runs_the_recipe_of_the_command(tmp_path, monkeypatch):
    runs = []
    monkeypatch.setattr(
        pretraining_run, "run_pretraining", lambda *given: runs.append(given)
    )
    command(
        "run_pretraining",
        *(f"--data_dir={tmp_path}", f"--output_dir={tmp_path}/out"),
        *("--size=mini", "--learning_rate=1e-3", "--optimizer=lamb"),
    )
    names = {"size": "mini", "learning_rate": 1e-3}
    given = tmp_path, tmp_path / "out"
    bert_tf.pretrain(*given, **names, settings={"optimizer": "lamb"})
    bert_tf.pretrain(*given, **names, optimizer="lamb")
    (recipe, folder, _), *again = runs
    assert again == 2 * [(recipe, pathlib.Path(folder))]
    line = error_of(bert_tf.pretrain, *given, settings={"sise": "mini"})
    assert line.startswith("the settings of pretrain: unknown key 'sise'. Did")
