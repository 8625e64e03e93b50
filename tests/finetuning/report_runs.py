"""Finished runs of every task family, without any training."""

import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.families.config import TaskConfig
from bert_tf.families.multiple_choice.config import MultipleChoiceConfig
from bert_tf.families.question_answering.config import QuestionAnsweringConfig
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.text_classification.config import TextClassificationConfig
from bert_tf.families.token_classification.config import (
    TokenClassificationConfig,
)
from bert_tf.finetuning import report_files
from bert_tf.finetuning.evaluation import FinishedRun
from bert_tf.finetuning.run import summary


class Run(NamedTuple):
    """A finished run, and the type of its family's config."""

    finished: FinishedRun
    config_type: type[TaskConfig]


WORDS = (
    "the company said its profit rose after shares fell on market fears while "
    "analysts had expected a smaller loss than last year's quarter and police "
    "found two men near river bank who told reporters that nothing was taken "
    "film story is warm funny but slow with strong actors lost in dull plot"
).split()


DOCTOR = {"lines": ["data of it:", "  train: 3 rows", "    unknown: 1 %"]}


def line(row: int, random: np.random.Generator, **answer: Any) -> dict:
    """A row of a pair of texts, and what was answered."""

    def text(length: int) -> str:
        return " ".join(random.choice(WORDS, length)) + "."

    texts = {"text_a": text(6 + row % 23), "text_b": text(5 + row % 17)}
    return {"identifier": str(row), "row": row + 2, **texts, **answer}


def floats(shares: np.ndarray) -> list[float]:
    """As a model in float32 has them."""
    return shares.astype(np.float32).astype(float).tolist()


def class_lines(
    labels: Sequence[str], count: int, random: np.random.Generator
) -> list[dict[str, Any]]:
    """Rows of a decent, overconfident classifier of pairs."""
    lines = []
    for row in range(count):
        truth = min(int(random.exponential(len(labels) / 3)), len(labels) - 1)
        logits = random.normal(0, 1.6, len(labels))
        logits[truth] += 2.2
        # Neighbours are taken for each other more often.
        logits[(truth + 1) % len(labels)] += 0.8
        exponentials = np.exp(1.3 * (logits - logits.max()))
        shares = exponentials / exponentials.sum()
        answer = {"label": labels[truth]}
        answer["prediction"] = labels[int(shares.argmax())]
        lines.append(line(row, random, **answer, probabilities=floats(shares)))
    return lines


def multi_label_lines(
    labels: Sequence[str], count: int, random: np.random.Generator
) -> list[dict[str, Any]]:
    lines = []
    for row in range(count):
        holds = random.random(len(labels)) < np.linspace(0.5, 0.03, len(labels))
        logits = random.normal(-2.2, 1.3, len(labels)) + 4.0 * holds
        shares = 1 / (1 + np.exp(-logits))
        pairs = list(zip(labels, holds, shares, strict=True))
        answer = {
            "label": [label for label, true, _ in pairs if true],
            "prediction": [x for x, _, share in pairs if share >= 0.5],
            "probabilities": floats(shares),
        }
        lines.append(line(row, random, **answer) | {"text_b": None})
    return lines


def history_rows(
    metric: str, best: float, random: np.random.Generator
) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = []
    for step in range(5, 345, 5):
        loss = 0.12 + 0.6 * np.exp(-step / 110) + random.normal(0, 0.03)
        rows.append({"step": step, "loss": float(loss), "learning_rate": 2e-5})
        if step % 85 == 0:
            score = best - 0.12 * np.exp(-step / 80)
            held_out = 0.42 + 0.2 * np.exp(-step / 60) + 0.0003 * step
            rows.append(
                {
                    "step": step,
                    "eval_loss": float(held_out),
                    f"eval_{metric}": float(score),
                }
            )
    return rows


def results_of(
    task: str, labels: Sequence[str], scores: Mapping[str, float]
) -> dict[str, Any]:
    main = next(iter(scores))
    return {
        "task": task,
        "model": "hf://sentence-transformers/all-MiniLM-L6-v2",
        "main_metric": main,
        "labels": list(labels),
        "dev": {"dev": dict(scores)},
        "majority": {"dev": {name: 0.61 for name in scores}},
        "paper": {main: {"bert_base": 0.889, "bert_large": 0.893}},
        "doctor": DOCTOR,
        "finished": "2026-03-04T05:06:07+00:00",
        "examples": {"train": 3668, "dev": 408},
        "num_parameters": 22_713_216,
        "num_train_steps": 345,
        "best_step": 255,
        "stopped_early": False,
        "train_seconds": 184.6,
        "examples_per_second": 59.6,
        "eval_examples_per_second": 311.2,
    }


def finished(
    results: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]],
    num_seeds: int = 1,
    config_type: type[TaskConfig] = TextClassificationConfig,
) -> Run:
    """A run with these answers, and several trainings where asked for."""
    random = np.random.default_rng(7)
    results = dict(results)
    metric = results["main_metric"]
    best = results["dev"]["dev"][metric]
    histories = {}
    if num_seeds > 1:
        results["seeds"] = []
        for number in range(num_seeds):
            lost = 0.0084 * number
            scores = {k: v - lost for k, v in results["dev"]["dev"].items()}
            if number == num_seeds - 1:
                scores = dict(results["majority"]["dev"])
            results["seeds"].append(
                {
                    "seed": 12345 + number,
                    "folder": f"seed_{number + 1}",
                    "dev": scores,
                    "degenerate": number == num_seeds - 1,
                    "best": number == 0,
                }
            )
            histories[str(12345 + number)] = history_rows(
                metric, scores[metric], random
            )
        results["summary"] = summary([x["dev"] for x in results["seeds"]])
    else:
        histories[""] = history_rows(metric, best, random)
    recipe = FinetuningRecipe(task=results["task"], learning_rate=2e-5)
    results["recipe"] = recipe.to_dict()
    return Run(FinishedRun(results, histories, lines), config_type)


def write_report(run: Run, folder: pathlib.Path) -> pathlib.Path:
    """The report of a run."""
    return report_files.write_report(
        folder, run.finished, run.config_type, FinetuningRecipe, {}
    )


def classes_run(labels: Sequence[str], num_seeds: int = 1) -> Run:
    random = np.random.default_rng(3)
    lines = class_lines(labels, 408, random)
    right = sum(x["label"] == x["prediction"] for x in lines) / len(lines)
    scores = {"f1": right + 0.03, "accuracy": right}
    return finished(results_of("MRPC", labels, scores), lines, num_seeds)


def regression_run(count: int = 1500) -> Run:
    random = np.random.default_rng(5)
    truth = np.round(random.uniform(0, 5, count), 2)
    guess = 0.85 * truth + 0.6 + random.normal(0, 0.45, count)
    pairs = enumerate(zip(truth.tolist(), floats(guess), strict=True))
    lines = [
        line(row, random, label=label, prediction=value, value=value)
        for row, (label, value) in pairs
    ]
    scores = {"pearson": float(np.corrcoef(truth, guess)[0, 1])}
    results = results_of("STS-B", [], scores)
    results["majority"] = {"dev": {"pearson": 0.0}}
    return finished(results, lines)


def multi_label_run() -> Run:
    labels = ["joy", "anger", "fear", "surprise", "disgust", "pride"]
    lines = multi_label_lines(labels, 300, np.random.default_rng(9))
    results = results_of("sentence", labels, {"micro_f1": 0.73})
    results["paper"] = {}
    results["threshold"] = 0.5
    return finished(results, lines)


CONTEXT = "In May 1901 Ada Lovell sailed from Hull to Oslo on the Fram."


def question(
    number: int,
    asked: str,
    answers: Sequence[str],
    n_best: list[list],
    null_odds: float,
    scores: tuple[float, float],
    context: str = CONTEXT,
) -> dict[str, Any]:
    """A question whose prediction is the first of the n-best answers."""
    prediction = n_best[0][0]
    start = context.index(prediction) if prediction else -1
    return {
        "identifier": f"q{number}",
        "title": "Fram",
        "question": asked,
        "context": context,
        "answers": [{"text": a, "start": context.index(a)} for a in answers],
        "prediction": prediction,
        "start": start,
        "end": start + len(prediction) if prediction else -1,
        "null_odds": null_odds,
        "exact": scores[0],
        "f1": scores[1],
        "n_best": n_best,
    }


LOVELL = [["Lovell sailed", 0.5], ["Lovell", 0.25]]
COST = [["1901", 0.625], ["", 0.25]]
# The scores that the official rules give, by hand.
QUESTIONS = [
    question(
        0,
        "Who sailed to Oslo?",
        ["Ada Lovell", "Lovell"],
        LOVELL,
        -3.5,
        (0, 2 / 3),
    ),
    question(
        1,
        "From what port, and when?",
        ["Hull"],
        [["Hull", 0.875]],
        -6.0,
        (1, 1),
    ),
    question(2, "What did it cost?", [], COST, -1.0, (0.0, 0.0)),
    question(3, "Name its cook!", [], [["", 0.75]], 4.0, (1, 1), "word " * 101),
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


def run_of(
    config_type: type[TaskConfig],
    lines: Sequence[Mapping[str, Any]],
    score: str,
    labels: Sequence[str] = (),
    **changes: Any,
) -> Run:
    """A run whose dev lines are these."""
    results = results_of("it", labels, {score: 0.5})
    return finished(results | changes, lines, config_type=config_type)


def question_run(
    lines: Sequence[Mapping[str, Any]] = QUESTIONS, threshold: float = -0.5
) -> Run:
    """SQuAD 2.0: two questions with an answer, two without."""
    return run_of(
        QuestionAnsweringConfig, lines, "best_f1", threshold=threshold
    )


def plain_question_run() -> Run:
    """SQuAD 1.1: no null odds, and no baseline."""
    lines = [line | {"null_odds": None} for line in QUESTIONS[:2]]
    return run_of(
        QuestionAnsweringConfig, lines, "f1", majority={"dev": {"f1": None}}
    )


def choice_run(lines: Sequence[Mapping[str, Any]] = CHOICES) -> Run:
    """Two rows of two choices and two of four."""
    return run_of(MultipleChoiceConfig, lines, "accuracy")


def tag_run(lines: Sequence[Mapping[str, Any]] = TAGS) -> Run:
    """Three sentences."""
    return run_of(
        TokenClassificationConfig, lines, "f1", ["O", "B-LOC", "I-LOC"]
    )


MAKERS: dict[str, Callable[[], Run]] = {
    "two": lambda: classes_run(["0", "1"], 5),
    "three": lambda: classes_run(["contradiction", "entailment", "neutral"]),
    "twenty": lambda: classes_run([f"topic {n}" for n in range(20)]),
    "regression": regression_run,
    "multi_label": multi_label_run,
    "questions": question_run,
    "plain_questions": plain_question_run,
    "choices": choice_run,
    "tags": tag_run,
}


if __name__ == "__main__":
    for path in map(pathlib.Path, sys.argv[1:]):
        write_report(MAKERS[path.name](), path)
