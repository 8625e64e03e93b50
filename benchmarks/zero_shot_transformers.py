"""A file of texts through transformers' zero-shot pipeline.

The peer of benchmarks/zero_shot.py, which starts it with the Python of an
environment made from requirements-peers.txt; nothing of bert_tf is imported.
"""

import argparse
import json
import pathlib

import torch
from transformers import pipeline


def main() -> None:
    """Answers every line."""
    parser = argparse.ArgumentParser()
    for name in ("model", "input", "output", "candidate_labels"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    classify = pipeline("zero-shot-classification", model=given.model)
    texts = pathlib.Path(given.input).read_text("utf-8").splitlines()
    found = classify(
        texts,
        given.candidate_labels.split(","),
        hypothesis_template="This text is about {}.",
        batch_size=given.batch_size,
    )
    with open(given.output, "w", encoding="utf-8") as file:
        for answer in found:
            pairs = zip(answer["labels"], answer["scores"], strict=True)
            file.write(json.dumps({"probabilities": dict(pairs)}) + "\n")


if __name__ == "__main__":
    main()
