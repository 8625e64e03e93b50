"""Sentence vectors with Hugging Face transformers, on demand.

The peer of benchmarks/extraction.py, which starts it with the Python of an
environment made from requirements-peers.txt; nothing of bert_tf is imported.
It loads the model once, and for each line on standard input ("transformers" or
"sentence-transformers") computes the vectors of all texts and answers with the
seconds that took.

transformers: batches in the order of the texts, each padded to its longest,
mean over the tokens of the mask, as the models' own pages say.
sentence-transformers: `SentenceTransformer.encode`, which sorts by length.

    python benchmarks/extraction_transformers.py --model=FOLDER \
        --texts=lines.txt --output=vectors --batch_size=32
"""

import argparse
import pathlib
import sys
import time

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer


class Transformers:
    """transformers alone."""

    def __init__(self, model: str, batch_size: int, bfloat16: bool) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.model = AutoModel.from_pretrained(model).eval()
        if bfloat16:
            self.model = self.model.to(torch.bfloat16)
        self.batch_size = batch_size

    def __call__(self, texts: list[str]) -> np.ndarray:
        """The vectors of texts, float32 [N, H]."""
        found = []
        for start in range(0, len(texts), self.batch_size):
            batch = self.tokenizer(
                texts[start : start + self.batch_size],
                padding=True,
                truncation=True,
                return_tensors="pt",
            )
            with torch.inference_mode():
                hidden = self.model(**batch).last_hidden_state.float()
            mask = batch["attention_mask"][:, :, None].float()
            found.append(((hidden * mask).sum(1) / mask.sum(1)).numpy())
        return np.concatenate(found)


class SentenceTransformers:
    """sentence-transformers on top of it."""

    def __init__(self, model: str, batch_size: int, bfloat16: bool) -> None:
        self.model = SentenceTransformer(model, device="cpu")
        if bfloat16:
            self.model = self.model.to(torch.bfloat16)
        self.batch_size = batch_size

    def __call__(self, texts: list[str]) -> np.ndarray:
        """The vectors of texts, float32 [N, H]."""
        return (
            self.model.encode(
                texts,
                batch_size=self.batch_size,
                show_progress_bar=False,
                convert_to_tensor=True,
            )
            .float()
            .numpy()
        )


def main() -> None:
    """Answers every line of standard input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--batch_size", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--bfloat16", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    lines = pathlib.Path(given.texts).read_text(encoding="utf-8").split("\n")
    texts = lines[:-1]
    kinds = {
        "transformers": Transformers,
        "sentence-transformers": SentenceTransformers,
    }
    peers = {
        name: kind(given.model, given.batch_size, given.bfloat16)
        for name, kind in kinds.items()
    }
    for peer in peers.values():
        peer(texts[: 4 * given.batch_size])
    for line in sys.stdin:
        name = line.strip()
        begun = time.perf_counter()
        vectors = peers[name](texts)
        seconds = time.perf_counter() - begun
        np.save(f"{given.output}-{name}.npy", vectors)
        print(seconds, flush=True)


if __name__ == "__main__":
    main()
