"""The peer of benchmarks/steps.py, in an environment of its own.

Takes a kind of step (plain or compiled) as a line on standard input, takes one
and prints its seconds as JSON, after a first line with the loss of each kind
before any step. FOLDER has config.json and model.safetensors of a
BertForPreTraining and batch.npz. Nothing of bert_tf is imported.

    python benchmarks/steps_transformers.py FOLDER THREADS
"""

import json
import pathlib
import sys
import time

import numpy as np
import torch
import transformers


def main():
    """Answers until standard input ends."""
    folder = pathlib.Path(sys.argv[1])
    torch.set_num_threads(int(sys.argv[2]))
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = transformers.BertForPreTraining.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    arrays = np.load(folder / "batch.npz")
    batch = {n: torch.from_numpy(a.astype(np.int64)) for n, a in arrays.items()}
    labels = torch.full_like(batch["input_ids"], -100)
    labels.scatter_(1, batch["masked_lm_positions"], batch["masked_lm_ids"])
    inputs = {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["input_mask"],
        "token_type_ids": batch["segment_ids"],
        "labels": labels,
        "next_sentence_label": batch["next_sentence_labels"],
    }

    def loss_of(computed):
        with torch.autocast("cpu", torch.bfloat16):
            return computed(**inputs).loss

    with torch.no_grad():
        loss = float(loss_of(model.eval()))
    model.train()
    kinds = {"plain": model, "compiled": torch.compile(model)}
    said = [{"kind": kind, "loss": loss} for kind in kinds]
    print(json.dumps(said), flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        try:
            loss_of(kinds[line.strip()]).backward()
        except Exception as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            print(json.dumps({"error": said}), flush=True)
            continue
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.perf_counter() - begin
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
