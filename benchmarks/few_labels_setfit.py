"""SetFit and logistic regression on few rows: the peers of few_labels.py.

    .venv-setfit/bin/python -m benchmarks.few_labels_setfit MODEL < jobs.jsonl

A line of the input is a job: train and test (JSON lines with texts and
label), features (a .npz of the vectors of both), seed, whether to run setfit,
and answers, the file of the predictions on the test rows by method and of
SetFit's seconds. SetFit is that of the package at its defaults, with 20 pairs a
row (Tunstall et al. 2022, section 4.1); it reads a pair as one text with [SEP]
between.
"""

import json
import sys
import tempfile
import time

import numpy as np
import torch
from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments
from sklearn.linear_model import LogisticRegression

PAIRS = 20


def read(path: str) -> tuple[list[str], list[str]]:
    """The texts and labels of a file of JSON lines."""
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [" [SEP] ".join(r["texts"]) for r in rows], [
        r["label"] for r in rows
    ]


def by_setfit(model_folder: str, job: dict) -> list[str]:
    """SetFit's predictions of the test rows."""
    texts, names = read(job["train"])
    labels = sorted(set(names))
    data = Dataset.from_dict(
        {"text": texts, "label": [labels.index(name) for name in names]}
    )
    model = SetFitModel.from_pretrained(model_folder, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_iterations=PAIRS,
            seed=job["seed"],
            report_to="none",
            show_progress_bar=False,
            save_strategy="no",
        )
        Trainer(model, args=arguments, train_dataset=data).train()
    found = model.predict(read(job["test"])[0], use_labels=False)
    return [labels[int(number)] for number in found]


def by_logistic_regression(features: dict, labels: list[str]) -> dict:
    """Predictions of scikit-learn's defaults on vectors, by their kind."""
    found = {}
    for kind in sorted({name.partition("/")[0] for name in features}):
        model = LogisticRegression(max_iter=2000)
        model.fit(features[f"{kind}/train"], labels)
        found[kind] = model.predict(features[f"{kind}/test"]).tolist()
    return found


def main() -> None:
    """Answers each job."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        job = json.loads(line)
        features = dict(np.load(job["features"]))
        answers = by_logistic_regression(features, read(job["train"])[1])
        started = time.perf_counter()
        if job["setfit"]:
            answers["setfit"] = by_setfit(sys.argv[1], job)
        seconds = time.perf_counter() - started
        with open(job["answers"], "w", encoding="utf-8") as file:
            json.dump({"answers": answers, "seconds": seconds}, file)


if __name__ == "__main__":
    main()
