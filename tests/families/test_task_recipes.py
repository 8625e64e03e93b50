"""Tasks refuse the settings of other kinds of tasks."""

import pytest

from bert_tf.errors import UserError
from tools.shared_flags import load_task, recipe_of, task_named, task_names


def message_of(call, *arguments):
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assigned(name, *assignments):
    return recipe_of(load_task(name), name, assignments)


TEXTS = {"example_user_file", "sentence"}
TABLES = TEXTS | {"choice", "questions", "ranking", "swag"}


VECTORS = {f"{name}embedding" for name in ("", "qqp_", "sick_", "stsb_")}


@pytest.mark.parametrize(
    ("assignment", "takers"),
    [
        ("threshold=0.3", TEXTS),
        ("label_kind=regression", TEXTS),
        ("header=no", TABLES | VECTORS),
        (
            "train_file=a.csv",
            TABLES | VECTORS | {"squad_v1", "squad_v2", "tagging"},
        ),
        ("matryoshka_dims=8", VECTORS),
        ("label_form=letter", {"choice"}),
        ("max_query_length=5", {"squad_v1", "squad_v2", "questions"}),
        ("answer_start_column=a", {"questions"}),
        ("tag_column=1", {"conll2003", "conll2003_features", "tagging"}),
        ("lstm_units=5", {"conll2003_features"}),
    ],
)
def test_settings_are_refused_where_they_are_of_no_use(assignment, takers):
    name = assignment.partition("=")[0]
    for task in task_names():
        if task not in takers:
            line = message_of(assigned, task, assignment)
            assert line.startswith(
                f"--task={task}, --set: unknown key {name!r}"
            )
            assert "Did you mean" in line or "Valid keys: init_from" in line


def test_a_near_match_is_of_the_tasks_own_settings():
    line = message_of(assigned, "mrpc", "max_length=3")
    assert "Did you mean max_seq_length?" in line
    line = message_of(assigned, "sentence", "label_colum=3")
    assert "Did you mean label_column?" in line
    assert "label_column" not in message_of(assigned, "mrpc", "label_colum=3")


def test_the_name_of_the_task(tmp_path):
    path = tmp_path / "recipe.json"
    path.write_text('{"task": "rte"}')
    assert task_named(["task=cola", "seed=1", "task = qnli"]) == "qnli"
    assert task_named(["task=cola"], str(path)) == "cola"
    assert task_named(["seed=1"], str(path)) == "rte"
    assert message_of(task_named, ["seed=1"]).startswith("--task: give one of")
    path.write_text('{"task": 3}')
    line = message_of(task_named, [], str(path))
    assert line.startswith(f"{path}: task is 3")
