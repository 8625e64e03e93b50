"""The pages' commands and programs run as printed, on small models.

Those of pages that are not here run in tests of what they are about; every
command of every page is one that exists, with flags that it has.
"""

import csv
import functools
import json
import pathlib
import re
import shutil
import tomllib

import pytest

import bert_tf
from tests import commands, commands_page
from tests.documents import PAGES, ROOT, blocks, files, text_of
from tests.documents import commands as commands_of
from tests.model_helpers import fill
from tests.records_corpus import text
from tests.small_runs import TOKENS, save_small_model, shorten_runs
from tools import module_of
from tools.shared_flags import task_names

# Pages without a command or a program.
WITHOUT = {
    *("docs/api.md", "docs/design.md", "docs/index.md", "docs/measured.md"),
    *("docs/cpu.md", "docs/few_labels.md", "docs/speed.md"),
    "docs/upstream.md",
}
# Pages with flags of other programs too.
OF_OTHERS = {
    *("docs/beam.md", "docs/commands.md", "docs/cpu.md"),
    *("docs/measured.md", "docs/small_machines.md"),
}
# Graphs of tf.data stay graphs.
pytestmark = pytest.mark.filterwarnings("ignore:Even though the .tf.config")
# Values of the pages, and smaller ones that are enough here.
SMALLER = {
    r"--size=(base|mini|small)\b": "--size=2/8/2",
    r"--size=4/312/12": "--size=1/8/2",
    r"--layers=0,2,4(,7,9,11)?": "--layers=0,2",
    r"max_seq_length=(128|512)": "max_seq_length=48",
    r"max_predictions_per_seq=77": "max_predictions_per_seq=7",
    r"train_batch_size=\d+": "train_batch_size=2",
    r"num_train_steps=\d+": "num_train_steps=2",
    r"num_train_epochs=\d+": "num_train_epochs=1",
    r"seeds=\d+": "seeds=1",
    r"vocab_size=16384": "vocab_size=100",
}


@functools.cache
def all_flags() -> set[str]:
    """The flags in the help of all commands."""
    listed = re.findall(r"^- (`.*?):", commands_page.page(), re.MULTILINE)
    known = set(re.findall(r"`--(?:\[no\])?(\w+)`", " ".join(listed)))
    return known | {f"no{flag}" for flag in known} | {"help"}


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_flag_exists(page):
    found = re.findall(
        r"(?:^ *|`)bert-tf ([a-z][a-z-]*)((?:[^\n`]*\\\n)*[^\n`]*)",
        text_of(page),
        re.MULTILINE,
    )
    for name, arguments in found:
        assert module_of(name), name
        unquoted = re.sub(r"'[^']*('|$)", "", arguments)
        typed = set(re.findall(r" --(\w+)", unquoted))
        assert typed <= all_flags(), (name, arguments)
    named = set(re.findall(r"`--(\w+)", text_of(page)))
    assert page in OF_OTHERS or named <= all_flags()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([\w-]+)|^make ([\w-]+)", text_of(page)):
        assert re.search(rf"^{''.join(target)}:", makefile, re.MULTILINE)


def test_every_page_with_a_command_is_run():
    """A page is named by the test that runs it."""
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "tests").rglob("*.py")
    )
    for page in PAGES:
        has_some = bool(blocks(page, "sh") or blocks(page, "python"))
        assert has_some != (page in WITHOUT), page
        name = page.removeprefix("docs/")
        assert not has_some or f'{name}"' in tests, f"{page} is not tested"


def test_what_can_be_installed():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    page = text_of("docs/install.md")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == sorted(extras)
    (asked,) = re.findall(r"pip install '\.\[(.*?)\]'", page)[:1]
    assert set(asked.split(",")) <= set(extras)


def test_the_menu_has_every_page():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r": (\w+\.md)$", text, re.MULTILINE)
    assert sorted(f"docs/{name}" for name in named) == sorted(PAGES[1:])
    # No page loads anything from elsewhere.
    assert "http" not in text


class Reader:
    """A folder in which pages are followed.

    Attributes:
      folder: the folder, with the model of the demo, examples and a corpus.
    """

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        shutil.copytree(ROOT / "examples", folder / "examples")
        reviews = folder / "examples" / "reviews.csv"
        head, *rows = reviews.read_text(encoding="utf-8").splitlines(True)
        # A tenth of the reviews, of both labels.
        reviews.write_text(head + "".join(rows[::10]), encoding="utf-8")
        (folder / "corpus").mkdir()
        (folder / "corpus" / "a.txt").write_text(text(60, 1))
        (folder / "lines.txt").write_text("a cat.\nso dull.\n")
        self.model("demo_output/model", 1)

    def model(self, name: str, layers: int) -> pathlib.Path:
        """Saves a pre-trained model."""
        return save_small_model(self.folder / name, layers)

    def write(self, page: str) -> None:
        """Writes the files that a page shows."""
        for name, content in files(page).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")

    def run(self, block: str, extra: str = "") -> str:
        """Runs the commands of a block; returns what the last one printed."""
        printed = ""
        for line in commands_of(block):
            if line.startswith("bert-tf ") and " serve " not in line:
                for value, smaller in SMALLER.items():
                    line = re.sub(value, smaller, line)
                done = commands.run_line(f"{line} {extra}", self.folder)
                printed = done.stdout + done.stderr
                assert done.returncode == 0, (line, printed)
        return printed


@pytest.fixture
def reader(tmp_path, monkeypatch, eagerly) -> Reader:
    monkeypatch.chdir(tmp_path)
    shorten_runs(monkeypatch)
    return Reader(tmp_path)


@pytest.mark.witness("README's program and commands run as printed")
def test_the_readme(reader, capsys):
    page, folder = "README.md", reader.folder
    assert len(text_of(page).splitlines()) <= 120
    (program,) = blocks(page, "python")
    _, train, ask = blocks(page, "sh")
    exec(program, {})
    report, *printed = capsys.readouterr().out.splitlines()[-3:]
    expected_report, *shown = blocks(page, "text")[0].splitlines()
    assert report == expected_report
    model = bert_tf.load(folder / "finetuned")
    for line, expected in zip(printed, shown, strict=True):
        text = expected.rpartition(".")[0].rpartition(".")[0] + "."
        answer = model(text)
        probability = round(answer["probability"], 4)
        assert line == f"{text} {answer['label']} {probability}"
    reader.run(train, "--num_train_epochs=1")
    reader.run(ask)
    assert (folder / "out" / "answers.jsonl").read_text().count("\n") == 6
    assert "Dull" in (folder / "out" / "why.html").read_text(encoding="utf-8")


# Keras 3.15 says so of every data set that is fitted with its defaults.
@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_first_steps_in_python(reader, capsys):
    first, later, tables, memory, metric, strings, untrained = blocks(
        "docs/first_steps_python.md", "python"
    )
    names: dict = {}
    exec(first, names)
    answers = eval(capsys.readouterr().out.splitlines()[-1])
    for answer in answers:
        assert sorted(answer["probabilities"]) == ["bad", "good"]
    exec(later, names)
    assert capsys.readouterr().out.splitlines()[0] in ("bad", "good")
    exec(tables, names)
    assert 0 <= float(capsys.readouterr().out.splitlines()[2]) <= 1
    out = reader.folder / "out"
    assert (out / "answers.csv").read_text().startswith("row,index,")
    assert (out.with_name("served") / "reviews" / "1").is_dir()
    assert (out / "reviews_copied" / "task.json").is_file()
    exec(memory, names)
    exec(metric, names)
    assert 0 <= names["run"].scores["dev"]["cost"] <= 1000
    exec(strings, names)
    assert (reader.folder / "films.keras").exists()
    assert len(names["model"].history.history["loss"]) == 2
    exec(untrained, names)
    assert "(4, 16)" in capsys.readouterr().out


def test_first_steps_in_the_shell(reader):
    train, ask, serve, smaller, own, vectors, convert = blocks(
        "docs/first_steps_shell.md", "sh"
    )
    folder = reader.folder
    reader.run(train, "--num_train_epochs=1")
    assert (folder / "out" / "reviews" / "report.html").exists()
    reader.run(ask)
    with open(folder / "examples" / "new_reviews.csv", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    # As the command, which takes the fastest runtime that is installed.
    asked = bert_tf.load(folder / "out" / "reviews", runtime="auto")(texts)
    written = (folder / "answers.jsonl").read_text().splitlines()
    for line, answer in zip(written, asked, strict=True):
        assert json.loads(line)["probabilities"] == answer["probabilities"]
    assert "moving" in (folder / "why.html").read_text(encoding="utf-8")
    reader.run(serve)
    assert (folder / "served" / "reviews" / "1" / "saved_model.pb").exists()
    reader.run(smaller)
    assert (folder / "small" / "model.onnx").exists()
    assert "The capital of France is" in reader.run(own)
    reader.run(vectors)
    assert (folder / "out" / "features.npz").exists()
    reader.run(convert)
    assert (folder / "out" / "converted" / "config.json").exists()


def test_embeddings(reader):
    page, folder = "docs/embeddings.md", reader.folder
    reader.model("hub/all-MiniLM-L6-v2", 1)
    reader.write("docs/tasks.md")
    (folder / "corpus.jsonl").write_text(
        '{"_id": "a", "text": "Still water."}\n{"_id": "b", "text": "Fire."}\n'
    )
    (folder / "queries.tsv").write_text("id\ttext\n1\tsea\n")
    names = {"bert_tf": bert_tf}
    in_memory, in_a_folder, rank, *_ = blocks(page, "python")
    exec(in_memory, names)
    assert names["indices"].shape == (2,)
    embed, *_, static = [
        block for block in blocks(page, "sh") if "MiniLM" in block
    ]
    reader.run(embed)
    results = (folder / "results.jsonl").read_text(encoding="utf-8")
    assert json.loads(results)["results"][0]["id"] in "ab"
    exec(in_a_folder, names)
    train = next(b for b in blocks(page, "sh") if "--task=ranking" in b)
    reader.run(train.replace("MODEL", "demo_output/model"))
    names["documents"] = ["Bees make honey.", "Cows eat grass."]
    exec(rank, names)
    line = static.replace("all-MiniLM", "hub/all-MiniLM").splitlines()[0]
    assert "static" in reader.run(line.rstrip("\\"), "--dimension=4")


def test_tasks_and_data_formats(reader):
    page, folder = "docs/tasks.md", reader.folder
    reader.write(page)
    # dev files have the columns of the training files.
    for train, dev in (
        *(
            ("glue/*/train.tsv", name)
            for name in ("dev.tsv", "dev_matched.tsv")
        ),
        ("glue/MNLI/train.tsv", "dev_mismatched.tsv"),
        ("squad/train-v1.1.json", "dev-v1.1.json"),
        ("squad/train-v2.0.json", "dev-v2.0.json"),
        *(("conll2003/eng.train", name) for name in ("eng.testa", "eng.testb")),
        ("swag/train.csv", "val.csv"),
    ):
        for path in folder.glob(train):
            shutil.copy(path, path.with_name(dev))
    shown = "\n".join(blocks(page, "sh"))
    lines = [line for line in commands_of(shown) if "--data_dir=" not in line]
    assert len(lines) >= 6
    for line in lines:
        assert "  train: " in reader.run(line)
    official = [line for line in commands_of(shown) if line not in lines]
    tasks = {re.search(r"--task=(\w+)", line)[1] for line in lines}
    for task in {*task_names()} - tasks - {"example_user_file"}:
        assert f"`{task}`" in text_of(page), task
        if task == "sick_embedding":
            # No other task reads these files.
            continue
        kind = "squad" if "squad" in task else "glue"
        kind = task.partition("_")[0] if task[:4] in ("swag", "conl") else kind
        (line,) = [each for each in official if f"--data_dir={kind}" in each]
        line = re.sub(r"--task=\w+", f"--task={task}", line)
        assert "  train: " in reader.run(line), task


def test_models_of_other_programs(reader):
    first, pairs = blocks("docs/hub_models.md", "python")
    heads = {
        "films": lambda encoder: bert_tf.bert_classifier(encoder, 2),
        "nli": lambda encoder: bert_tf.bert_classifier(encoder, 2),
        "tagger": lambda encoder: bert_tf.bert_token_classifier(encoder, 3),
    }
    labels = {"films": ("bad", "good"), "nli": ("no", "yes")}
    config = bert_tf.BertConfig.from_size("1/16/2", len(TOKENS))
    for name, head in heads.items():
        model = fill(head(bert_tf.BertEncoder(config)))
        if name == "tagger":
            # The bias of the logits: it finds entities.
            model.weights[-1].assign([-9.0, 9.0, 0.0])
        checkpoint = bert_tf.Checkpoint(
            *(config, bert_tf.model_arrays(model), bert_tf.Vocabulary(TOKENS)),
            lower_case=True,
            labels=labels.get(name, ("O", "B-LOC", "I-LOC")),
        )
        bert_tf.save_checkpoint(
            reader.folder / "hub" / name, checkpoint, to="hugging_face"
        )
    names: dict = {}
    exec(first, names)
    exec(pairs, names)
    (reader.folder / "new.txt").write_text("Ada lives in London.\n")
    reader.run(*blocks("docs/hub_models.md", "sh"))
    assert json.loads((reader.folder / "tags.jsonl").read_text())
    assert (reader.folder / "small" / "model.onnx").exists()


def test_checkpoints_of_other_programs(reader):
    folder = "uncased_L-12_H-768_A-12"
    ours = bert_tf.load_checkpoint(reader.model("ours", 2))
    bert_tf.save_checkpoint(reader.folder / folder, ours, to="google_tf1")
    (convert,) = blocks("docs/checkpoints.md", "sh")
    assert "largest difference" in reader.run(convert)
    assert (reader.folder / "out" / "bert" / "config.json").exists()


def test_rows_without_padding_on_all_devices(reader):
    records, train, *_ = blocks("docs/training.md", "sh")
    shutil.copy("demo_output/model/vocab.txt", "vocab.txt")
    reader.run(records)
    # Two are tested in a process of its own (tests/pretraining/test_run.py).
    reader.run(train, "--num_train_steps=2")
    assert (reader.folder / "run" / "report.html").exists()


def test_distillation(reader):
    """The students of docs/relatives.md."""
    on_task, on_text, tiny, *_ = blocks("docs/relatives.md", "sh")
    folder = reader.folder
    reader.write("docs/tasks.md")
    mrpc = folder / "glue" / "MRPC"
    shutil.copy(mrpc / "train.tsv", mrpc / "dev.tsv")
    reader.model("bert", 3)
    short = "--num_train_epochs=1 --train_batch_size=2"
    reader.run(
        "bert-tf finetune --task=mrpc --data_dir=glue --model=bert "
        f"--output_dir=out/mrpc {short}"
    )
    reader.run(on_task, f"{short} --undistilled=false")
    assert (folder / "out" / "mrpc-small" / "distillation.html").exists()
    reader.run(tiny, short)
    assert (folder / "out" / "tinybert" / "report.html").exists()
    alone = "bert-tf distill --undistilled=false"
    reader.run(on_text.replace("bert-tf distill", alone))
    student = bert_tf.load_checkpoint(folder / "out" / "distilbert")
    assert student.config.model_type == "distilbert"


def test_what_fits_into_memory(reader):
    plan, _ = blocks("docs/memory.md", "sh")
    assert "fit" in reader.run(plan)
