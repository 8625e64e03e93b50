"""The data doctor of choices, and heads that other tasks reuse."""

import dataclasses
import json

import pytest

from bert_tf.checkpoints import MULTIPLE_CHOICE, load_checkpoint
from bert_tf.families.model_folder import TASK_FILE, read_config
from bert_tf.families.multiple_choice.files import ChoiceExample, SwagFiles
from bert_tf.families.multiple_choice.task import (
    MultipleChoiceTask,
    UserChoiceTask,
)
from bert_tf.families.recipe import ChoiceRecipe, UserChoiceRecipe
from bert_tf.finetuning.setup import prepare_training
from tests.finetuning.sentence_runs import tokenizer
from tests.user_errors import error_of


def example(number, label, count=4, **changes):
    choices = tuple(f"film {place} {number}" for place in range(count))
    found = ChoiceExample(
        f"context {number}", "the", choices, label, "", number + 2, "f.csv"
    )
    return found._replace(**changes)


def test_the_doctor():
    splits = {
        "train": [
            example(0, 0),
            example(1, 0, count=2),
            example(0, 2, row=9),
            example(3, 0, choices=("good", "bad ", "bad", "so")),
            example(4, 0, context="caf\u00e9 \u2603"),
        ],
        "dev": [
            example(0, 1, row=30, choices=example(0, 1).choices[::-1]),
            example(7, 1, context="context 3"),
        ],
    }
    task = MultipleChoiceTask(name="swag", data=SwagFiles())
    recipe = ChoiceRecipe(max_seq_length=8)
    examined = task.examine(recipe, tokenizer(), splits)
    numbers = examined.numbers
    train = numbers["splits"]["train"]
    assert (train["rows"], train["inputs"]) == (5, 18)
    assert train["choices"] == {"2": 1, "4": 4}
    assert train["right"] == {"0": 4, "1": 0, "2": 1, "3": 0}
    assert train["right_if_even"]["0"] == pytest.approx(4 / 4 + 1 / 2)
    assert train["same_choice_twice"] == 1
    assert numbers["repeated"] == {"rows": 1, "share": 0.2, "first": [2, 9]}
    shared = {"rows": 1, "share": 0.5, "first": [2, 30], "contexts": 2}
    assert numbers["in_train"]["dev"] == shared
    text = "\n".join(examined.lines)
    assert text.startswith("data of swag:\n  train: 5 rows (f.csv)\n")
    for part in (
        "2 in 1 row, 4 in 4 rows",
        "0 4 (80.0 %), 1 0 (0.0 %), 2 1 (20.0 %)",
        "one choice twice: 1 row",
        "1 row, 20.0 % (rows 2 and 9)",
        "1 row, 50.0 % (row 2 of train, row 30 of dev)",
        "dev with a context of train: 2 rows",
        "at position 0 far more often",
        "dev scores will be inflated: 1 of its rows",
        "many words are unknown",
        f"cut at 8 tokens: {train['tokens']['cut']} choices, ",
        "lose their end; max_seq_length=",
    ):
        assert part in text


def test_models_with_another_beginning_are_refused(tmp_path):
    recipe = UserChoiceRecipe(
        context_column="q", choice_columns="a", start_column="s"
    )
    task = UserChoiceTask(name="choice")
    config = task.resolve(recipe).configure(recipe, [])
    assert (config.has_start, config.num_segments) == (True, 2)
    other = task.resolve(recipe.override(["start_column="]))
    (tmp_path / TASK_FILE).write_text(json.dumps(dataclasses.asdict(config)))
    line = error_of(read_config, tmp_path, other)
    assert line.startswith(f"{tmp_path}: was fine-tuned with has_start True")


def test_another_task_starts_from_the_head(finish_case, tmp_path):
    """It scores any choices, so that it depends on no labels."""
    run = finish_case("choices")
    initial = load_checkpoint(run.folder)
    assert MULTIPLE_CHOICE in initial.heads
    task = UserChoiceTask(name="quiz").resolve(run.recipe)
    recipe = run.recipe.override([f"init_from={run.folder}"])
    found = prepare_training(task, recipe, initial, tokenizer(), tmp_path)
    assert found.fresh == ()
