"""Tiny files of choices that can be learnt, for tests of whole runs."""

import json
import pathlib
from typing import Any

import numpy as np

from bert_tf.finetuning.recipe import UserChoiceRecipe
from tests.finetuning.sentence_runs import BAD, FILLER, GOOD

COLUMNS = {
    "context_column": "text",
    "start_column": "start",
    "choice_columns": "options",
    "label_column": "answer",
}


def rows(count: int, seed: int, most: int = 5) -> list[dict[str, Any]]:
    """Rows of 2 to `most` choices; the right one alone has good words."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        number = int(random.integers(2, most + 1))
        label = int(random.integers(number))
        options = []
        for place in range(number):
            words = list(random.choice(FILLER, random.integers(2, 9)))
            words[::2] = random.choice(
                GOOD if place == label else BAD, len(words[::2])
            )
            options.append(" ".join(words))
        found.append(
            {
                "text": " ".join(random.choice(FILLER, random.integers(2, 8))),
                "start": "it was" if random.random() < 0.5 else "",
                "options": options,
                "answer": label,
            }
        )
    return found


def written(path: pathlib.Path, found: list[dict[str, Any]]) -> str:
    """A file of JSON lines."""
    text = "".join(json.dumps(row) + "\n" for row in found)
    path.write_text(text, encoding="utf-8")
    return str(path)


def small_recipe(folder: pathlib.Path, **changes: Any) -> UserChoiceRecipe:
    """A recipe on 64 training, 14 dev and 8 test rows."""
    test = [{**row, "answer": None} for row in rows(8, 5)]
    for row in test:
        del row["answer"]
    values = {
        **COLUMNS,
        "task": "choice",
        "train_file": written(folder / "train.jsonl", rows(64, 1)),
        "dev_file": written(folder / "dev.jsonl", rows(14, 3)),
        "test_file": written(folder / "test.jsonl", test),
        "max_seq_length": 32,
        "train_batch_size": 8,
        "eval_batch_size": 4,
        "learning_rate": 1e-2,
        "num_train_epochs": 2.5,
        "log_steps": 3,
        "save_checkpoints_steps": 4,
        **changes,
    }
    return UserChoiceRecipe(**values)
