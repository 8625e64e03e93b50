"""Sentence vectors with Hugging Face transformers, on demand.

The peer of benchmarks/extraction.py, which starts it with the Python of an
environment made from requirements-peers.txt; nothing of bert_tf is imported.
It writes the vectors of all texts by sentence-transformers in float32 as
FOLDER/exact.npy, and for each line on standard input, a name, computes those
in bfloat16, writes them as FOLDER/NAME.npy and answers with the seconds that
took.

transformers: batches in the order of the texts, each padded to its longest,
mean over the tokens of the mask, as the models' own pages say.
sentence-transformers: `SentenceTransformer.encode`, which sorts by length;
also by its backends openvino and onnx, in the precision that these choose,
where optimum is installed.

    python benchmarks/extraction_transformers.py MODEL TEXTS FOLDER THREADS
"""

import json
import pathlib
import sys
import time

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

BATCH_SIZE = 32


def by_transformers(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval().bfloat16()

    def run(texts):
        found = []
        for start in range(0, len(texts), BATCH_SIZE):
            batch = tokenizer(
                texts[start : start + BATCH_SIZE],
                padding=True,
                truncation=True,
                return_tensors="pt",
            )
            with torch.inference_mode():
                hidden = model(**batch).last_hidden_state.float()
            mask = batch["attention_mask"][:, :, None].float()
            found.append(((hidden * mask).sum(1) / mask.sum(1)).numpy())
        return np.concatenate(found)

    return run


def by_sentence_transformers(folder, dtype, backend="torch"):
    model = SentenceTransformer(folder, device="cpu", backend=backend)
    if backend == "torch":
        model = model.to(dtype)

    def run(texts):
        vectors = model.encode(
            texts,
            batch_size=BATCH_SIZE,
            show_progress_bar=False,
            convert_to_tensor=True,
        )
        return vectors.float().numpy()

    return run


def main():
    """Answers every line of standard input."""
    model, path, folder, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    texts = pathlib.Path(path).read_text(encoding="utf-8").split("\n")[:-1]
    peers = {
        "sentence-transformers": by_sentence_transformers(
            model, torch.bfloat16
        ),
        "transformers": by_transformers(model),
    }
    missing = {}
    for backend in ("openvino", "onnx"):
        name = f"sentence-transformers, {backend}"
        try:
            peers[name] = by_sentence_transformers(model, None, backend)
        except Exception as error:  # noqa: BLE001
            # The two need other releases of optimum.
            missing[name] = str(error).strip().splitlines()[0]
    exact = by_sentence_transformers(model, torch.float32)
    np.save(f"{folder}/exact.npy", exact(texts))
    print(json.dumps({"names": list(peers), "missing": missing}), flush=True)
    for line in sys.stdin:
        name = line.strip()
        begun = time.perf_counter()
        vectors = peers[name](texts)
        seconds = time.perf_counter() - begun
        np.save(f"{folder}/{name}.npy", vectors)
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
