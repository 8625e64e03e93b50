"""Fine-tuning with a teacher: three models and their page."""

import dataclasses
import json

import pytest

import bert_tf
from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.config import BertConfig
from bert_tf.distillation.run import distill_task
from bert_tf.finetuning import report_files
from bert_tf.teacher_settings import StudentSettings
from bert_tf.text.vocabulary import Vocabulary
from tests import commands
from tests.contracts.task_cases import Finished, model_folder
from tests.finished_runs import finished_run
from tests.model_helpers import fill
from tests.run_folders import history
from tests.user_errors import error_of

DISTILLS = pytest.mark.witness("a student is trained with a teacher")
LAYERS = {"hidden_state_weight": 1.0, "attention_score_weight": 1.0}


def repeated(teacher, **changes):
    """The task of a run, and its recipe for a student of it."""
    values = {
        "init_from": "",
        "teacher": str(teacher.folder),
        # Two steps.
        "num_train_epochs": 0.25,
        "train_batch_size": 8,
        **changes,
    }
    return teacher.task, dataclasses.replace(teacher.recipe, **values)


@pytest.fixture(
    scope="module",
    params=[pytest.param("classes", marks=DISTILLS), "questions"],
)
def teacher(request, tmp_path_factory) -> Finished:
    folder = tmp_path_factory.mktemp("teacher") / request.param
    return finished_run(request.param, folder)


def write_report(folder, *_: object) -> None:
    (folder / "report.html").touch()


def test_a_student_learns_from_a_teacher(
    teacher, tmp_path, monkeypatch, quick
) -> None:
    task, recipe = repeated(teacher, cosine_weight=1.0, **LAYERS)
    student = StudentSettings(layers="0")
    with monkeypatch.context() as patch:
        patch.setattr(report_files, "write_report", write_report)
        done = distill_task(task, recipe, student, tmp_path)
    facts = json.loads((tmp_path / "distillation.json").read_text())
    assert [*facts["models"]] == ["teacher", "student", "undistilled"]
    # A line each for the head, the scores, speed and two sizes.
    scores = facts["models"]["teacher"]["scores"]
    table = done.table().splitlines()
    assert table[0].split()[-3:] == [*facts["models"]]
    assert len(table) == 4 + len(scores)
    assert scores == pytest.approx(teacher.done["eval"]["dev"])
    trained = [row for row in history(tmp_path) if "soft_target_loss" in row]
    assert trained
    terms = ("label", "soft_target", "cosine", "hidden_state")
    terms = (*terms, "attention_score")
    for row in trained:
        parts = [row[f"{term}_loss"] for term in terms]
        assert min(parts) >= 0
        assert sum(parts) == pytest.approx(row["loss"])
    alone = (tmp_path / "undistilled" / "history.jsonl").read_text()
    assert "soft_target" not in alone
    assert load_checkpoint(tmp_path).config.num_hidden_layers == 1
    page = (tmp_path / "distillation.html").read_text(encoding="utf-8")
    assert 'href="undistilled/report.html"' in page


def test_layers_first_and_outputs_then(classes, tmp_path, quick) -> None:
    """As Jiao et al. 2020; and another student is refused."""
    layers, outputs = tmp_path / "layers", tmp_path / "outputs"
    task, recipe = repeated(
        classes,
        label_weight=0.0,
        soft_target_weight=0.0,
        teacher_layers="0,0",
        **LAYERS,
    )
    student = StudentSettings(size="2/8/2")
    done = distill_task(task, recipe, student, layers, undistilled=False)
    assert len(done.table().splitlines()[0].split()) == 4
    facts = json.loads((layers / "distillation.json").read_text())
    assert [*facts["models"]] == ["teacher", "student"]
    changes = {"label_weight": 0.0, "temperature": 1.0}
    task, further = repeated(classes, init_from=str(layers), **changes)
    distill_task(task, further, StudentSettings(), outputs, undistilled=False)
    assert load_checkpoint(outputs).config.hidden_size == 8
    other = StudentSettings(size="1/8/2")
    line = error_of(distill_task, task, recipe, other, layers, False)
    assert "holds another student" in line


def test_teachers_that_do_not_fit(classes, tmp_path, quick) -> None:
    """The command takes the task of the teacher's recipe."""
    start = model_folder(tmp_path / "start")
    values = classes.recipe.to_dict() | {"init_from": ""}
    (tmp_path / "recipe.json").write_text(json.dumps(values))
    done = commands.run(
        *("tools.distill", f"--recipe={tmp_path}/recipe.json", "--layers=0"),
        *(f"--output_dir={tmp_path}/out", f"--teacher={start}"),
    )
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert f"{start}: has no task.json" in line
    words = [f"[unused{n}]" for n in range(5)]
    tokens = Vocabulary([*load_checkpoint(start).vocabulary.tokens, *words])
    config = BertConfig.from_size("1/16/2", len(tokens))
    arrays = fill(bert_tf.BertEncoder(config)).to_arrays()
    save_checkpoint(
        tmp_path / "other", Checkpoint(config, arrays, tokens, True)
    )
    task, recipe = repeated(classes, init_from=str(tmp_path / "other"))
    new = tmp_path / "new"
    line = error_of(distill_task, task, recipe, StudentSettings(), new)
    assert "has another vocabulary than the student's" in line
