"""The peer of benchmarks/encoder.py, in an environment of its own.

Takes a kind of step (inference, training, pretraining) as a line on standard
input, runs so many of them and prints their seconds as JSON; inference writes
its last layer to transformers.npy of the folder too. FOLDER has config.json and
model.safetensors of a BertForPreTraining and batch.npz. Nothing of bert_tf is
imported.

    python benchmarks/encoder_transformers.py FOLDER STEPS DTYPE
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
    folder, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    half = sys.argv[3] != "float32"
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    trained = transformers.BertForPreTraining.from_pretrained(folder).train()
    still = transformers.BertModel.from_pretrained(folder).eval()
    # Inference with weights of half the size, as on our side.
    still = still.bfloat16() if half else still
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-5)
    arrays = np.load(folder / "batch.npz")
    batch = {n: torch.from_numpy(a.astype(np.int64)) for n, a in arrays.items()}
    inputs = {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["input_mask"],
        "token_type_ids": batch["segment_ids"],
    }
    labels = torch.full_like(batch["input_ids"], -100)
    labels.scatter_(1, batch["masked_lm_positions"], batch["masked_lm_ids"])

    @torch.inference_mode()
    def inference():
        found = still(**inputs).last_hidden_state
        return found.float().numpy()

    def train(loss_of):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def encoder_loss():
        outputs = trained.bert(**inputs)
        parts = outputs.last_hidden_state, outputs.pooler_output
        return sum(part.float().square().mean() for part in parts)

    def pretraining_loss():
        next_sentence = batch["next_sentence_labels"][:, 0]
        return trained(
            **inputs, labels=labels, next_sentence_label=next_sentence
        ).loss

    kinds = {
        "inference": inference,
        "training": lambda: train(encoder_loss),
        "pretraining": lambda: train(pretraining_loss),
    }
    versions = f"torch {torch.__version__}, "
    versions += f"transformers {transformers.__version__}"
    print(json.dumps(versions), flush=True)
    for line in sys.stdin:
        kind = line.strip()
        begin = time.monotonic()
        for _ in range(steps):
            found = kinds[kind]()
        seconds = time.monotonic() - begin
        if kind == "inference":
            np.save(folder / "transformers.npy", found)
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
