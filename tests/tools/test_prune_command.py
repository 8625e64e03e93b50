"""The command that prunes: a table, a folder, one line for each mistake."""

import json
import pathlib
import subprocess

import pytest

import bert_tf
from bert_tf.checkpoints import load_checkpoint
from bert_tf.encoders import BertEncoder
from bert_tf.families.model_folder import save_model
from bert_tf.text.tokenizer import BertTokenizer
from tests import commands
from tests.contracts.task_cases import CASES, model_folder
from tests.model_helpers import fill


def prune(*arguments: object) -> subprocess.CompletedProcess[str]:
    return commands.run("tools.prune", *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """What a fine-tuning on MRPC leaves, not trained; its data have moved."""
    place = tmp_path_factory.mktemp("prune")
    start = model_folder(place / "start")
    task, recipe = CASES["pairs"].make(place / "files", start)
    config = task.configure(recipe, task.load("train", recipe))
    model = fill(task.build(BertEncoder.from_checkpoint(start), config), 5)
    tokenizer = BertTokenizer.from_checkpoint(start)
    save_model(place / "model", model, tokenizer, config)
    recipe.save(place / "model" / "recipe.json")
    (place / "files").rename(place / "moved")
    return place / "model"


@pytest.mark.filterwarnings("ignore:Even though")
def test_a_smaller_model_and_a_table(folder, tmp_path, eagerly) -> None:
    half = tmp_path / "new" / "half"
    done = prune(
        *(f"--model={folder}", f"--output_dir={half}", "--keep_heads=0.5"),
        *("--keep_columns=0.25", f"--data_dir={folder.parent / 'moved'}"),
        *("--num_rows=5", "--set", "precision=mixed_bfloat16"),
    )
    assert done.returncode == 0, done.stderr
    cells = [line.rsplit(maxsplit=2) for line in done.stdout.splitlines()]
    assert cells[0] == ["mrpc, dev", "before", "after"]
    assert [name for name, *_ in cells[1:]] == [
        *("f1", "accuracy", "rows/s", "parameters", "MB on disk")
    ]
    facts = json.loads((half / "pruning.json").read_text(encoding="utf-8"))
    for row, place in ((1, "before"), (2, "after")):
        assert cells[1][row] == f"{100 * facts[place]['scores']['f1']:.2f}"
        assert cells[4][row] == f"{facts[place]['parameters']:,}"
    recipe = json.loads((half / "recipe.json").read_text(encoding="utf-8"))
    assert recipe["data_dir"] == str(folder.parent / "moved")
    assert recipe["precision"] == "mixed_bfloat16"
    config = load_checkpoint(half).config
    assert (config.num_attention_heads, config.attention_size) == (1, 8)
    assert config.intermediate_size == 8
    answer = bert_tf.load(half)("a good film", "a bad film")
    assert answer != bert_tf.load(folder)("a good film", "a bad film")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        # Where they were when it was trained.
        ([], "/files: no such folder."),
        (["--keep_heads=0.1"], "error: --keep_heads=0.1: leaves none of 2; "),
        (["--keep_heads=2"], "error: keep_heads is 2.0; it takes more than 0"),
        (["--set", "threshold=3"], "--set: unknown key 'threshold'"),
    ],
)
def test_mistakes(folder, tmp_path, flags, message) -> None:
    done = prune(f"--model={folder}", f"--output_dir={tmp_path}/new", *flags)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert message in line
    assert not (tmp_path / "new").exists()


def test_what_is_no_fine_tuned_folder(folder, tmp_path) -> None:
    start = folder.parent / "start"
    done = prune(f"--model={start}", f"--output_dir={tmp_path}/new")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: --model={start}: has no recipe.json")
    assert not (tmp_path / "new").exists()
