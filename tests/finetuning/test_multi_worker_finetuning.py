"""Two workers fine-tune as one process does."""

import numpy as np
import pytest

from tests import commands
from tests.finetuning.sentence_runs import model_folder, texts
from tests.run_folders import answer_lines, history, weights
from tests.workers import Workers

# The head has dropout of its own, whose masks differ from device to device.
TASK_FILE = """
import dataclasses

from bert_tf.finetuning import SentenceTask
from bert_tf.families.task_model import TaskModel
from bert_tf.models import bert_classifier
from tasks.sst2 import TASK as SST2


class WithoutDropout(SentenceTask):
    def build(self, encoder, config, unpadded=True):
        network = bert_classifier(
            encoder, config.num_outputs, dropout=0.0, unpadded=unpadded
        )
        return TaskModel(network)


fields = {f.name: getattr(SST2, f.name) for f in dataclasses.fields(SST2)}
TASK = WithoutDropout(**fields)
"""


def write_rows(path, examples, labelled=True):
    lines = ["sentence\tlabel" if labelled else "index\tsentence"]
    for example in examples:
        label = int(example.label == "positive")
        row = [example.text_a, label]
        if not labelled:
            row = [example.identifier, example.text_a]
        lines.append("\t".join(map(str, row)))
    path.write_text("\n".join(lines) + "\n")


def test_two_workers_train_evaluate_and_predict_as_one(tmp_path):
    start = model_folder(
        tmp_path / "start",
        num_hidden_layers=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    (tmp_path / "task.py").write_text(TASK_FILE)
    rows = tmp_path / "SST-2"
    rows.mkdir()
    write_rows(rows / "train.tsv", texts(16, 1))
    write_rows(rows / "dev.tsv", texts(13, 2))
    write_rows(rows / "test.tsv", texts(7, 3), labelled=False)
    arguments = [
        "tools.run_finetuning",
        f"--task={tmp_path / 'task.py'}",
        f"--data_dir={tmp_path}",
        f"--init_from={start}",
        "--mode=train,eval,predict",
        *("--max_seq_length=32", "--train_batch_size=8"),
        *("--eval_batch_size=4", "--learning_rate=1e-3"),
        *("--num_train_epochs=1", "--seeds=2"),
    ]
    done = commands.run(*arguments, f"--output_dir={tmp_path / 'one'}")
    assert done.returncode == 0, done.stderr
    flags = [f"--output_dir={tmp_path / 'two'}", "--strategy=multi_worker"]
    two = Workers(2, [*arguments, *flags], tmp_path / "log")
    two.start_all()
    assert set(two.wait(500).values()) == {0}, two.printed(0)
    for part in ("seed_1", "seed_2"):
        rows = zip(
            history(tmp_path / "two" / part),
            history(tmp_path / "one" / part),
            strict=True,
        )
        for mine, other in rows:
            assert mine == pytest.approx(other, rel=1e-3)
    theirs = weights(tmp_path / "one")
    for name, array in weights(tmp_path / "two").items():
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=1e-5)
    mine, other = (answer_lines(tmp_path / name) for name in ("two", "one"))
    assert [r["prediction"] for r in mine] == [r["prediction"] for r in other]
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert names == {path.name for path in (tmp_path / "two").iterdir()}
    for name in ("SST-2.tsv", "predictions_dev.tsv"):
        first, second = (
            (tmp_path / part / name).read_text() for part in ("one", "two")
        )
        assert first == second
