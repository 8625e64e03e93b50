"""What the wheel installs, used from an empty folder as a user would.

`make test-wheel` installs it into .venv-wheel, with what it requires and the
extra `serve` alone.
"""

import json
import os
import pathlib
import socket
import subprocess
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv-wheel" / "bin"
WORDS = (
    "the film was good and warm",
    "a dull film with a bad plot",
    "the plot was good but the actors were dull",
)
TRAPS = ("tools", "tasks", "experiments", "queue", "tokenizers", "bert_tf")
# Folders of the checkout, and what they are called in bert_tf.
INSIDE = {
    "tools": "tools",
    "tasks": "tasks",
    "experiments": "paper_experiments",
    "examples": "examples",
}
pytestmark = pytest.mark.wheel


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """Where the commands run: nothing of the checkout, and traps."""
    folder = tmp_path_factory.mktemp("user")
    # The commands and their workers must not take these for their own.
    for name in TRAPS:
        (folder / f"{name}.py").write_text("raise SystemExit('a trap')\n")
    return folder


def environment() -> dict[str, str]:
    """A user's: PATH and HOME, nothing that the tests have set."""
    return {name: os.environ[name] for name in ("PATH", "HOME")}


def bert_tf(folder, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "bert-tf", *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )


def done(folder, *words: str) -> str:
    """What a command prints that ends well."""
    process = bert_tf(folder, *words)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def model(folder) -> pathlib.Path:
    """A pre-trained model, from a text file on by the commands alone."""
    documents = ["\n".join(WORDS[n % 3 :] + WORDS) for n in range(60)]
    (folder / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    done(
        *(folder, "train-vocab", "--input=corpus.txt", "--vocab_size=60"),
        *("--output=vocab.txt", "--workers=2"),
    )
    printed = done(
        *(folder, "create-pretraining-data", "--input=corpus.txt"),
        *("--vocab_file=vocab.txt", "--output_dir=records", "--workers=2"),
        *("--max_seq_length=32", "--held_out=0.2"),
    )
    assert "\nnext: bert-tf pretrain --data_dir=" in printed
    process = bert_tf(
        *(folder, "pretrain", "--data_dir=records", "--output_dir=model"),
        *("--size=tiny", "--num_train_steps=3", "--train_batch_size=4"),
    )
    assert process.returncode == 0, process.stderr
    # The extra `report` is not there: said, and the run is done.
    assert 'pip install "bert_tf[report]"' in process.stderr
    return folder / "model"


def test_it_installs_bert_tf_alone():
    code = (
        "import importlib.metadata as m; "
        "print(*(str(f) for f in m.files('bert_tf')), sep='\\n')"
    )
    printed = subprocess.run(
        [BIN / "python", "-P", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    files = set(printed.stdout.split())
    tops = {file.split("/")[0].partition("-")[0] for file in files}
    # bin/bert-tf is above the libraries.
    assert tops == {"..", "bert_tf"}
    tracked = subprocess.run(
        ["git", "ls-files", "bert_tf", *INSIDE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    wanted = set()
    for name in tracked:
        top, _, rest = name.partition("/")
        wanted.add(f"bert_tf/{INSIDE[top]}/{rest}" if top in INSIDE else name)
    installed = {n for n in files if n.startswith("bert_tf/")}
    assert {n for n in installed if not n.endswith(".pyc")} == wanted


def test_what_it_requires_is_there():
    subprocess.run([BIN / "python", "-m", "pip", "check"], check=True)


def test_help_names_the_commands_as_they_are_called(folder):
    listing = done(folder, "--help")
    assert "\n  finetune  " in listing
    printed = done(folder, "finetune", "--help")
    assert "\nbert-tf finetune --task=mrpc" in printed
    assert "tools." not in printed
    assert done(folder, "run-finetuning", "--help") == printed
    assert done(folder, "run_finetuning", "--help") == printed
    assert done(folder, "--version").startswith("bert-tf 0.")


def test_from_a_csv_file_to_served_answers(folder, model):
    rows = [f"{n} {WORDS[n % 2]},{('good', 'bad')[n % 2]}" for n in range(40)]
    (folder / "reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    printed = done(
        *(folder, "finetune", "--task=sentence", "--output_dir=reviews"),
        *("--init_from=model", "--mode=train,eval"),
        *("--train_file=reviews.csv", "--text_columns=text"),
        *("--label_column=label", "--num_train_epochs=1"),
        *("--max_seq_length=16", "--train_batch_size=4"),
    )
    assert "accuracy" in printed
    done(folder, "export", "--model=reviews", "--output_dir=served/reviews")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [
            *(BIN / "bert-tf", "serve", "--model_name=reviews", "--port=0"),
            *(f"--rest_api_port={port}", "--model_base_path=served/reviews"),
        ],
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "ready\n" in iter(server.stderr.readline, "")
        url = f"http://127.0.0.1:{port}"
        request = urllib.request.Request(
            f"{url}/v1/models/reviews:predict",
            json.dumps({"instances": [WORDS[0]]}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            (row,) = json.load(answer)["predictions"]
        assert sum(row["probabilities"]) == pytest.approx(1)
        for file in ("", "page.js", "page.css"):
            with urllib.request.urlopen(f"{url}/{file}", timeout=60) as page:
                assert page.status == 200
    finally:
        server.terminate()
        server.communicate()
    assert server.returncode == 0


def test_an_own_task_file_with_helpers(folder):
    (folder / "labels_of_mine.py").write_text('LABELS = ("1", "0")\n')
    (folder / "mine.py").write_text(
        "import dataclasses\n"
        "from bert_tf.tasks.mrpc import TASK as MRPC\n"
        "from labels_of_mine import LABELS\n"
        'TASK = dataclasses.replace(MRPC, name="mine", labels=LABELS)\n'
    )
    (folder / "dev.tsv").write_text(
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        "1\t1\t2\tA .\tB .\n0\t3\t4\tC .\tD .\n"
    )
    (folder / "predictions.tsv").write_text("index\tprediction\n0\t1\n1\t1\n")
    files = ("--references=dev.tsv", "--predictions=predictions.tsv")
    for task, f1 in (("mrpc", 2 / 3), ("mine.py", 0)):
        scores = json.loads(done(folder, "score", f"--task={task}", *files))
        assert scores == pytest.approx({"f1": f1, "accuracy": 0.5})
    # That task is made of another one.
    words = ("--task=conll2003_features", "--references=x", "--predictions=y")
    assert (
        bert_tf(folder, "score", *words).stderr == "error: x: no such file.\n"
    )


def test_a_mistake_names_the_command_as_it_is_called(folder):
    process = bert_tf(folder, "finetunes")
    assert (process.returncode, process.stdout) == (1, "")
    (line,) = process.stderr.splitlines()
    assert line.startswith("error: finetunes: ")
    assert " finetune? " in line
    (folder / "nothing").mkdir()
    process = bert_tf(
        folder, "pretrain", "--data_dir=nothing", "--output_dir=out"
    )
    assert process.returncode == 1
    assert "bert-tf create-pretraining-data" in process.stderr
    assert "tools." not in process.stderr
