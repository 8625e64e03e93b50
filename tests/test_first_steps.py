"""The first steps of docs/index.md run as printed, and are as short as that."""

import csv
import json
import pathlib
import re

import pytest

import bert_tf
from tests import commands
from tests.documents import blocks
from tests.documents import commands as commands_of
from tests.model_helpers import fill, small_config

# Lines each of them takes; more would be worse than the best peer.
ASK, FILE, FIT, METRIC, QUESTIONS = 2, 1, 2, 5, 1
TEXT = "a moving film so dull and empty . when does the ferry leave at seven ?"


@pytest.fixture
def start(tmp_path, monkeypatch) -> pathlib.Path:
    """The folder of a user who ran the demo, with files of their own."""
    monkeypatch.chdir(tmp_path)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *set(TEXT.split())]
    config = small_config(vocab_size=len(tokens), max_position_embeddings=512)
    bert_tf.save_checkpoint(
        tmp_path / "demo_output" / "model",
        bert_tf.Checkpoint(
            config,
            fill(bert_tf.BertPretrainer(config)).to_arrays(),
            bert_tf.Vocabulary(tokens),
            lower_case=True,
        ),
    )
    with open("new.csv", "w", newline="") as file:
        csv.writer(file).writerows([["text"], ["A moving film"], ["So dull"]])
    with open("faq.csv", "w", newline="") as file:
        context = "The ferry leaves at seven."
        rows = [["When does the ferry leave?", context, "at seven"]] * 32
        csv.writer(file).writerows([["question", "context", "answer"], *rows])
    return tmp_path


def count(lines: str) -> int:
    return len([line for line in lines.splitlines() if line.strip()])


# Keras 3.15 says so of every data set that is fitted with its defaults.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_every_first_step(start, capsys):
    finetune, ask, fit, metric = blocks("docs/index.md", "python")
    file, questions = map(commands_of, blocks("docs/index.md", "sh"))
    names: dict = {}

    exec(finetune, names)
    assert count(ask) <= ASK
    capsys.readouterr()
    exec(ask, names)
    answers = eval(capsys.readouterr().out)
    assert [sorted(one["probabilities"]) for one in answers] == [
        ["bad", "good"]
    ] * 2

    assert len(file) <= FILE
    command(file[0], start)
    written = (start / "answers.jsonl").read_text().splitlines()
    # As the command, which takes the fastest runtime that is installed.
    asked = bert_tf.load(start / "out" / "films", runtime="auto")(
        ["A moving film", "So dull"]
    )
    for line, answer in zip(written, asked, strict=True):
        assert json.loads(line)["probabilities"] == answer["probabilities"]

    assert count(fit) <= FIT
    exec(fit, names)
    assert len(names["model"].history.history["loss"]) == 1

    made = metric[: metric.index("run =")]
    assert count(made) <= METRIC
    exec(metric, names)
    assert 0 <= names["run"].scores["dev"]["cost"] <= 1000
    assert names["run"].model("So dull.")["label"] in ("bad", "good")

    assert len(questions) <= QUESTIONS
    command(questions[0], start)
    found = bert_tf.load("out/faq")(question="When?", context="At seven.")
    assert found["answer"] in "At seven."


def command(line: str, folder: pathlib.Path) -> None:
    """Runs a line as a shell in that folder would."""
    line = re.sub(
        r"=(?=out/|demo_output/|\w+\.(csv|jsonl))", f"={folder}/", line
    )
    done = commands.run_line(line)
    assert done.returncode == 0, done.stdout + done.stderr
