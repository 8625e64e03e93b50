"""Run folders of questions, choices and tags, written by hand."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import finetuning_folders

CONTEXT = "In May 1901 Ada Lovell sailed from Hull to Oslo on the Fram."
# The scores that the official rules give, by hand.
QUESTIONS = [
    {
        "identifier": "q0",
        "title": "Fram",
        "question": "Who sailed to Oslo?",
        "context": CONTEXT,
        "answers": [
            {"text": "Ada Lovell", "start": 12},
            {"text": "Lovell", "start": 16},
        ],
        "prediction": "Lovell sailed",
        "start": 16,
        "end": 29,
        "null_odds": -3.5,
        "exact": 0.0,
        "f1": 2 / 3,
        "n_best": [["Lovell sailed", 0.5], ["Lovell", 0.25]],
    },
    {
        "identifier": "q1",
        "title": "Fram",
        "question": "From what port, and when?",
        "context": CONTEXT,
        "answers": [{"text": "Hull", "start": 35}],
        "prediction": "Hull",
        "start": 35,
        "end": 39,
        "null_odds": -6.0,
        "exact": 1.0,
        "f1": 1.0,
        "n_best": [["Hull", 0.875]],
    },
    {
        "identifier": "q2",
        "title": "Fram",
        "question": "What did it cost?",
        "context": CONTEXT,
        "answers": [],
        "prediction": "1901",
        "start": 7,
        "end": 11,
        "null_odds": -1.0,
        "exact": 0.0,
        "f1": 0.0,
        "n_best": [["1901", 0.625], ["", 0.25]],
    },
    {
        "identifier": "q3",
        "title": "Fram",
        "question": "Name its cook!",
        "context": "word " * 101,
        "answers": [],
        "prediction": "",
        "start": -1,
        "end": -1,
        "null_odds": 4.0,
        "exact": 1.0,
        "f1": 1.0,
        "n_best": [["", 0.75]],
    },
]
CHOICES = [
    {
        "identifier": str(number),
        "row": number + 2,
        "context": f"context {number}",
        "start": "She" if number else "",
        "choices": [f"choice {number} {place}" for place in range(count)],
        "label": label,
        "prediction": prediction,
        "probabilities": probabilities,
    }
    for number, (count, label, prediction, probabilities) in enumerate(
        [
            (2, 0, 0, [0.75, 0.25]),
            (4, 3, 1, [0.125, 0.625, 0.125, 0.125]),
            (4, 3, 3, [0.25, 0.25, 0.0, 0.5]),
            (2, 1, 0, [0.875, 0.125]),
        ]
    )
]
TAGS = [
    {
        "row": 1,
        "words": ["Ada", "Lovell", "saw", "Oslo", "."],
        "tags": ["B-PER", "I-PER", "O", "B-LOC", "O"],
        "predictions": ["B-PER", "I-PER", "O", "B-ORG", "O"],
    },
    {
        "row": 7,
        "words": ["New", "York", "calls", "Hull"],
        "tags": ["B-LOC", "I-LOC", "O", "B-LOC"],
        "predictions": ["O", "B-LOC", "B-PER", "O"],
    },
    {"row": 12, "words": ["No"], "tags": ["O"], "predictions": ["O"]},
]
DOCTOR = {"lines": ["data of it:", "  train: 3 rows", "    [UNK]: 1 %"]}


def folder_of(
    folder: pathlib.Path,
    lines: Sequence[Mapping[str, Any]],
    score: str,
    labels: Sequence[str] = (),
    **changes: Any,
) -> pathlib.Path:
    """A run whose dev lines are these."""
    results = finetuning_folders.results_of("it", labels, {score: 0.5})
    results["doctor"] = DOCTOR
    return finetuning_folders.write_run(folder, results | changes, lines)


def question_folder(folder: pathlib.Path, **changes: Any) -> pathlib.Path:
    """SQuAD 2.0: two questions with an answer, two without."""
    changes = {"threshold": -0.5, **changes}
    return folder_of(folder, QUESTIONS, "best_f1", **changes)


def plain_question_folder(folder: pathlib.Path) -> pathlib.Path:
    """SQuAD 1.1: no null odds, and no baseline."""
    lines = [line | {"null_odds": None} for line in QUESTIONS[:2]]
    nothing = {"dev": {"f1": None}}
    return folder_of(folder, lines, "f1", majority=nothing)


def choice_folder(folder: pathlib.Path) -> pathlib.Path:
    """Two rows of two choices and two of four."""
    return folder_of(folder, CHOICES, "accuracy")


def tag_folder(folder: pathlib.Path) -> pathlib.Path:
    """Three sentences."""
    return folder_of(folder, TAGS, "f1", ["O", "B-LOC", "I-LOC"])


def rewritten(path: pathlib.Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Puts other lines into a run's dev_predictions.jsonl."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "dev_predictions.jsonl").write_text(text)
