"""A file of texts through a transformers pipeline, sorted by length.

The peer of benchmarks/predict.py, which starts it with the Python of an
environment made from requirements-peers.txt; nothing of bert_tf is imported.
The texts are sorted by their characters, the longest first, since the pipeline
pads each batch to its longest row and sorts nothing itself.

    python benchmarks/predict_transformers.py --model=FOLDER --input=in.jsonl \
        --output=out.jsonl --batch_size=32 --max_seq_length=128 --threads=2 \
        --bfloat16 --compile
"""

import argparse
import json
import pathlib

import torch
import torch._inductor.config
from transformers import pipeline


def main() -> None:
    """Answers every line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--batch_size", type=int, required=True)
    parser.add_argument("--max_seq_length", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    classify = pipeline(
        "text-classification",
        model=given.model,
        top_k=None,
        dtype=torch.bfloat16 if given.bfloat16 else torch.float32,
    )
    if given.compile:
        torch._inductor.config.freezing = True
        # In place, and once for batches of every length.
        classify.model.compile(dynamic=True)
    lines = pathlib.Path(given.input).read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    order = sorted(range(len(texts)), key=lambda n: -len(texts[n]))
    found = classify(
        [texts[number] for number in order],
        batch_size=given.batch_size,
        truncation=True,
        max_length=given.max_seq_length,
    )
    answers: list[dict] = [{} for _ in texts]
    for number, scores in zip(order, found, strict=True):
        answers[number] = {
            "label": max(scores, key=lambda one: one["score"])["label"],
            "probabilities": {one["label"]: one["score"] for one in scores},
        }
    with open(given.output, "w", encoding="utf-8") as file:
        for text, answer in zip(texts, answers, strict=True):
            file.write(json.dumps({"text": text, **answer}) + "\n")


if __name__ == "__main__":
    main()
