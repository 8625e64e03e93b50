"""Fine-tuning with a teacher, by command: three models and their page."""

import functools
import json
import pathlib
import subprocess
from collections.abc import Callable

import pytest

import bert_tf
from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.config import BertConfig
from bert_tf.finetuning.run import run_finetuning
from bert_tf.text.vocabulary import Vocabulary
from tests import commands
from tests.contracts.task_cases import CASES, model_folder
from tests.model_helpers import fill

FAST = ("--set", "num_train_epochs=1", "--set", "save_checkpoints_steps=2")
TABLE = ["teacher", "student", "undistilled"]


def distill(*arguments: object) -> subprocess.CompletedProcess[str]:
    return commands.run("tools.distill", *arguments)


@pytest.fixture(scope="module")
def teacher_of(tmp_path_factory) -> Callable[[str], pathlib.Path]:
    """A fine-tuned model of a family."""
    place = tmp_path_factory.mktemp("teachers")
    start = model_folder(place / "start", num_hidden_layers=3)

    @functools.cache
    def make(name: str) -> pathlib.Path:
        folder = place / name
        task, recipe = CASES[name].make(folder / "files", start)
        run_finetuning(task, recipe, folder / "model", ("train",))
        return folder / "model"

    return make


def of_family(teacher: pathlib.Path, tmp_path: pathlib.Path) -> list[str]:
    """The flags that repeat a teacher's recipe for a student."""
    values = json.loads((teacher / "recipe.json").read_text())
    values["init_from"] = ""
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(values))
    return [f"--recipe={path}", f"--teacher={teacher}"]


@pytest.mark.parametrize(
    "family",
    [
        "classes",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("numbers", "questions")
        ),
    ],
)
def test_a_student_learns_from_a_teacher(teacher_of, family, tmp_path) -> None:
    teacher, out = teacher_of(family), tmp_path / "out"
    done = distill(
        *of_family(teacher, tmp_path),
        *(f"--output_dir={out}", "--layers=0,2", *FAST),
        *("--set", "cosine_weight=1", "--set", "hidden_state_weight=1"),
        *("--set", "attention_score_weight=1"),
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads((out / "distillation.json").read_text())
    assert [*facts["models"]] == TABLE
    # A line each for the head, the scores, speed and two sizes.
    scores = facts["models"]["teacher"]["scores"]
    table = done.stdout.splitlines()[-4 - len(scores) :]
    assert table[0].split()[-3:] == TABLE
    rows = map(json.loads, (out / "history.jsonl").read_text().splitlines())
    trained = [row for row in rows if "soft_target_loss" in row]
    assert trained
    terms = ("label", "soft_target", "cosine", "hidden_state")
    terms = (*terms, "attention_score")
    for row in trained:
        parts = [row[f"{term}_loss"] for term in terms]
        assert min(parts) >= 0
        assert sum(parts) == pytest.approx(row["loss"])
    alone = (out / "undistilled" / "history.jsonl").read_text()
    assert "soft_target" not in alone
    own = json.loads((teacher / "results.json").read_text())
    (dev, *_) = own["dev"].values()
    assert scores == pytest.approx(dev)
    assert load_checkpoint(out).config.num_hidden_layers == 2
    page = (out / "distillation.html").read_text(encoding="utf-8")
    assert 'href="undistilled/report.html"' in page


@pytest.mark.slow
def test_weights_that_only_look_at_layers(teacher_of, tmp_path) -> None:
    """Jiao et al. 2020 learn layers first, and outputs then."""
    flags = of_family(teacher_of("classes"), tmp_path)
    layers, outputs = tmp_path / "layers", tmp_path / "outputs"
    done = distill(
        *(*flags, f"--output_dir={layers}", "--size=2/8/2", "--noundistilled"),
        *("--set", "label_weight=0", "--set", "soft_target_weight=0"),
        *(
            "--set",
            "hidden_state_weight=1",
            "--set",
            "attention_score_weight=1",
        ),
        *("--set", "teacher_layers=1,2", *FAST),
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads((layers / "distillation.json").read_text())
    assert [*facts["models"]] == TABLE[:2]
    done = distill(
        *(*flags, f"--output_dir={outputs}", f"--init_from={layers}"),
        *("--set", "label_weight=0", "--set", "temperature=1", *FAST),
        "--noundistilled",
    )
    assert done.returncode == 0, done.stderr
    assert load_checkpoint(outputs).config.hidden_size == 8


def test_mistakes_of_a_task(teacher_of, tmp_path) -> None:
    teacher = teacher_of("classes")
    flags = of_family(teacher, tmp_path)
    out = f"--output_dir={tmp_path}/out"

    def line(*more: str) -> str:
        done = distill(*flags, out, *more, *FAST)
        assert done.returncode == 1
        return done.stderr.splitlines()[-1]

    start = teacher.parent.parent / "start"
    assert "has no task.json, so it is no fine-tuned model" in line(
        f"--teacher={start}", "--layers=0"
    )
    words = [f"[unused{n}]" for n in range(5)]
    tokens = Vocabulary([*load_checkpoint(start).vocabulary.tokens, *words])
    config = BertConfig.from_size("1/16/2", len(tokens))
    other = Checkpoint(
        config, fill(bert_tf.BertEncoder(config)).to_arrays(), tokens, True
    )
    save_checkpoint(tmp_path / "other", other)
    assert "has another vocabulary than the student's" in line(
        f"--init_from={tmp_path}/other"
    )


def test_another_student_in_the_same_folder(teacher_of, tmp_path) -> None:
    flags = of_family(teacher_of("classes"), tmp_path)
    out = tmp_path / "out"
    begun = ("--noundistilled", f"--output_dir={out}", *FAST)
    assert distill(*flags, *begun, "--layers=0").returncode == 0
    done = distill(*flags, *begun, "--layers=1")
    assert done.returncode == 1
    assert "holds another student" in done.stderr
