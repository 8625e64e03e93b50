"""Pre-training with a teacher, by command: three models, and going on."""

import dataclasses
import json
import pathlib
import signal
import subprocess

import pytest

from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.config import BertConfig
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.text.vocabulary import Vocabulary
from tests import commands
from tests.contracts.task_cases import model_folder
from tests.model_helpers import fill

TABLE = ["teacher", "student", "undistilled"]


def distill(*arguments: object) -> subprocess.CompletedProcess[str]:
    return commands.run("tools.distill", *arguments)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, records, config_file) -> pathlib.Path:
    """A model with both heads, with the vocabulary of the records."""
    folder = tmp_path_factory.mktemp("pretrained")
    config = BertConfig.from_json(config_file)
    config = dataclasses.replace(config, num_hidden_layers=2)
    arrays = fill(BertPretrainer(config), 2, 0.1).to_arrays()
    words = Vocabulary.from_file(records / "vocab.txt")
    save_checkpoint(folder, Checkpoint(config, arrays, words, True))
    return folder


TEXT = (
    *("--set", "num_train_steps=6", "--set", "train_batch_size=8"),
    *("--set", "save_checkpoints_steps=2", "--set", "log_steps=1"),
    *("--set", "eval_batch_size=8"),
)


@pytest.mark.parametrize(
    "packing", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_text_and_going_on_after_a_kill(
    pretrained, make_records, tmp_path, packing
) -> None:
    data = make_records(
        f"packed_{packing}",
        max_seq_length=32,
        max_predictions_per_seq=5,
        packing=packing,
    )
    flags = [
        *(f"--data_dir={data}", f"--teacher={pretrained}", "--layers=1"),
        *("--architecture=distilbert", *TEXT),
        *("--set", "hidden_state_weight=1"),
    ]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = distill(*flags, f"--output_dir={whole}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-6].split()[-3:] == TABLE
    facts = json.loads((whole / "distillation.json").read_text())
    for model in facts["models"].values():
        assert model["scores"]["masked_lm_perplexity"] > 1
    assert load_checkpoint(whole).config.model_type == "distilbert"
    started = commands.Command(
        "tools.distill",
        *(*flags, f"--output_dir={killed}"),
        log=tmp_path / "log",
    )
    while not (killed / "checkpoints" / "step-00000002").exists():
        assert started.poll() is None, (tmp_path / "log").read_text()
    started.send_signal(signal.SIGKILL)
    started.wait()
    done = distill(*flags, f"--output_dir={killed}")
    assert done.returncode == 0, done.stderr
    assert "resuming from step" in done.stdout
    for name in (
        "bert_model.safetensors",
        "undistilled/bert_model.safetensors",
    ):
        assert (whole / name).read_bytes() == (killed / name).read_bytes()


def test_mistakes_of_text(pretrained, records, tmp_path) -> None:
    flags = [f"--data_dir={records}", f"--output_dir={tmp_path}/out", *TEXT]
    teacher = f"--teacher={pretrained}"

    def line(*more: str) -> str:
        done = distill(*flags, *more)
        assert done.returncode == 1
        *notes, last = done.stderr.splitlines()
        assert all("random_next_prob" in note for note in notes)
        assert not (tmp_path / "out").exists()
        return last

    assert line() == "error: --teacher: name the model to learn from."
    assert "give the student: --size, --layers" in line(teacher)
    assert "no layer of the teacher, whose layers are 0 to 1." in line(
        teacher, "--layers=0,7"
    )
    assert "is the student already; leave out --size" in line(
        teacher, "--layers=0", f"--init_from={pretrained}"
    )
    # Another vocabulary, and no head of words.
    other = model_folder(tmp_path / "other")
    assert "another vocabulary than that of --data_dir=" in line(
        f"--teacher={other}", f"--init_from={pretrained}"
    )
    whole = load_checkpoint(pretrained)
    body = {n: a for n, a in whole.arrays.items() if "cls/" not in n}
    save_checkpoint(
        tmp_path / "body",
        Checkpoint(whole.config, body, whole.vocabulary, True),
    )
    assert "body: has no masked LM head" in line(
        f"--teacher={tmp_path}/body", f"--init_from={pretrained}"
    )


def test_a_student_that_has_not_learnt_makes_way(
    pretrained, records, tmp_path
) -> None:
    """A mistake that is found late does not hold the folder."""
    flags = [
        *(f"--data_dir={records}", f"--output_dir={tmp_path}/out", *TEXT),
        *(f"--teacher={pretrained}", "--undistilled=false"),
    ]
    done = distill(
        *(*flags, "--size=2/128/2", "--architecture=electra"),
        *("--set", "objective=replaced_tokens"),
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "predicts no words; choose masked_lm" in last
    done = distill(*flags, "--layers=0")
    assert done.returncode == 0, done.stderr
    assert load_checkpoint(tmp_path / "out").config.model_type == "bert"
