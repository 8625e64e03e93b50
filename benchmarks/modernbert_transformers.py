"""The peer of benchmarks/modernbert.py, in an environment of its own.

Takes a kind of step (inference, training) and a length as a line on standard
input, runs one step and prints its CPU seconds as JSON; inference writes its
last layer to transformers.npy of the folder too. FOLDER has config.json and
model.safetensors of a ModernBertModel and LENGTH.npz for each length. Nothing
of bert_tf is imported.

    python benchmarks/modernbert_transformers.py FOLDER DTYPE
"""

import functools
import json
import pathlib
import sys
import time

import numpy as np
import torch
import transformers


def main():
    """Answers until standard input ends."""
    folder, half = pathlib.Path(sys.argv[1]), sys.argv[2] != "float32"
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    read = functools.partial(
        transformers.ModernBertModel.from_pretrained,
        folder,
        attn_implementation="sdpa",
    )
    trained, still = read().train(), read().eval()
    # Inference with weights of half the size, as on our side.
    still = still.bfloat16() if half else still
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-5)

    @torch.inference_mode()
    def inference(inputs):
        found = still(**inputs).last_hidden_state
        np.save(folder / "transformers.npy", found.float().numpy())

    def training(inputs):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            outputs = trained(**inputs)
            loss = outputs.last_hidden_state.float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    kinds = {"inference": inference, "training": training}
    versions = f"torch {torch.__version__}, "
    versions += f"transformers {transformers.__version__}"
    print(json.dumps(versions), flush=True)
    for line in sys.stdin:
        kind, length = line.split()
        arrays = np.load(folder / f"{length}.npz")
        inputs = {
            "input_ids": torch.from_numpy(arrays["input_ids"].astype("int64")),
            "attention_mask": torch.from_numpy(arrays["input_mask"]),
        }
        begin = time.process_time()
        kinds[kind](inputs)
        print(json.dumps({"seconds": time.process_time() - begin}), flush=True)


if __name__ == "__main__":
    main()
