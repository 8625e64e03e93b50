"""The command that explains: a table, a file, one line for each mistake."""

import json

import pytest

from bert_tf.families.model_folder import save_model
from bert_tf.families.task_model import TaskModel
from bert_tf.models import bert_classifier
from tests import commands
from tests.inference import serving_models as models
from tests.model_helpers import fill


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("explain") / "model"
    model = fill(TaskModel(bert_classifier(models.new_encoder(), 2)), 5, 0.5)
    config = models.text_config(labels=("bad", "good"))
    save_model(found, model, models.tokenizer(), config)
    return found


def test_a_table_and_a_file(folder, tmp_path, eagerly):
    output = tmp_path / "x.json"
    done = commands.run(
        "tools.explain",
        *(f"--model={folder}", "--text=the ferry is good", "--target=good"),
        *("--steps=8", f"--output={output}"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("integrated gradients: after 8 steps the w")
    *table, last = done.stdout.splitlines()
    assert last == str(output)
    assert table[0].startswith("good: log odds ")
    assert "8 steps, completeness error " in table[1]
    words = [line.split()[0] for line in table[3:]]
    assert words == ["the", "ferry", "is", "good"]
    values = json.loads(output.read_text(encoding="utf-8"))
    assert values["target"] == "good"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--text=a", "--question=b"], "error: --question: this model"),
        (["--text=a", "--method=x"], "error: --method=x"),
        (["--text=a", "--output=x.pdf"], "error: --output=x.pdf: the name"),
        (["--text=a", "--task=tagging"], "error: --task=tagging: unknown."),
        (["--text=a", "--labels=b,a"], "error: --labels=b,a: "),
        (["--text=a", "--max_seq_length=9"], "error: --max_seq_length=9: "),
        (["--text=a", "--threshold=0.2"], "error: --threshold=0.2: "),
    ],
)
def test_mistakes(folder, flags, message):
    done = commands.run("tools.explain", f"--model={folder}", *flags)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(message)
