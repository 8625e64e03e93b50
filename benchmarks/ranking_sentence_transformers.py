"""Ranking with sentence-transformers, on demand.

The peer of benchmarks/ranking.py, which starts it with the Python of an
environment made from requirements-peers.txt; nothing of bert_tf is imported.
For each line on standard input ("float32" or "bfloat16") it ranks the documents
in that precision, and answers with the seconds that took and the scores.

    python benchmarks/ranking_sentence_transformers.py MODEL TEXTS THREADS
"""

import json
import pathlib
import sys
import time

import torch
from sentence_transformers import CrossEncoder


def main():
    """Answers every line of standard input."""
    folder, path, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    query, *documents = json.loads(pathlib.Path(path).read_text("utf-8"))
    models = {
        name: CrossEncoder(folder, device="cpu").to(getattr(torch, name))
        for name in ("float32", "bfloat16")
    }
    print(json.dumps({"names": list(models)}), flush=True)
    for line in sys.stdin:
        model = models[line.strip()]
        begun = time.perf_counter()
        found = model.rank(query, documents, show_progress_bar=False)
        seconds = time.perf_counter() - begun
        scores = {each["corpus_id"]: float(each["score"]) for each in found}
        in_order = [scores[number] for number in range(len(documents))]
        answer = {"seconds": seconds, "scores": in_order}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
