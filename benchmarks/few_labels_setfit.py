"""SetFit and logistic regression on few rows: the peers of few_labels.py.

    .venv-setfit/bin/python -m benchmarks.few_labels_setfit MODEL < jobs.jsonl

A line of the input is a job: its folder with train.jsonl and test.jsonl (texts
and label of each row) and features.npz (the vectors of both), method, seed, and
answers, the file for the predictions on the test rows by name. SetFit is that
of the package at its defaults, with 20 pairs a row (Tunstall et al. 2022,
section 4.1); it reads a pair as one text with [SEP] between.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments
from sklearn.linear_model import LogisticRegression

PAIRS = 20


def read(path: pathlib.Path) -> tuple[list[str], list[str]]:
    """The texts and labels of a file of JSON lines."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [" [SEP] ".join(r["texts"]) for r in rows], [
        r["label"] for r in rows
    ]


def by_setfit(
    model_folder: str, folder: pathlib.Path, seed: int
) -> dict[str, list[str]]:
    """SetFit's predictions of the test rows."""
    texts, names = read(folder / "train.jsonl")
    labels = sorted(set(names))
    data = Dataset.from_dict(
        {"text": texts, "label": [labels.index(name) for name in names]}
    )
    model = SetFitModel.from_pretrained(model_folder, device="cpu")
    with tempfile.TemporaryDirectory() as place:
        arguments = TrainingArguments(
            output_dir=place,
            num_iterations=PAIRS,
            seed=seed,
            report_to="none",
            show_progress_bar=False,
            save_strategy="no",
        )
        Trainer(model, args=arguments, train_dataset=data).train()
    found = model.predict(read(folder / "test.jsonl")[0], use_labels=False)
    return {"SetFit": [labels[int(number)] for number in found]}


def by_logistic_regression(folder: pathlib.Path) -> dict[str, list[str]]:
    """Predictions of scikit-learn's defaults on vectors, by their kind."""
    features = np.load(folder / "features.npz")
    _, labels = read(folder / "train.jsonl")
    found = {}
    for kind in sorted({name.partition("/")[0] for name in features}):
        model = LogisticRegression(max_iter=2000)
        model.fit(features[f"{kind}/train"], labels)
        answers = model.predict(features[f"{kind}/test"]).tolist()
        found[f"logistic, {kind}"] = answers
    return found


def main() -> None:
    """Answers each job."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        job = json.loads(line)
        folder = pathlib.Path(job["folder"])
        if job["method"] == "setfit":
            found = by_setfit(sys.argv[1], folder, job["seed"])
        else:
            found = by_logistic_regression(folder)
        pathlib.Path(job["answers"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
