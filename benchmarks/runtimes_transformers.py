"""The peer of benchmarks/runtimes.py, in an environment of its own.

Takes the name of a runtime as a line on standard input, computes the batch in
FOLDER/batch.npz so many times with the classifier in FOLDER/theirs, writes
FOLDER/logits.npy and prints the seconds as JSON. Nothing of bert_tf is
imported.

    python benchmarks/runtimes_transformers.py FOLDER THREADS STEPS
"""

import importlib.util
import json
import pathlib
import sys
import time

import numpy as np
import torch
import torch._inductor.config
import transformers

NAMES = {
    "input_ids": "input_ids",
    "input_mask": "attention_mask",
    "segment_ids": "token_type_ids",
}


def main():
    """Answers until standard input ends."""
    folder, steps = pathlib.Path(sys.argv[1]), int(sys.argv[3])
    torch.set_num_threads(int(sys.argv[2]))
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kind = transformers.BertForSequenceClassification
    whole = kind.from_pretrained(folder / "theirs").eval()
    half = kind.from_pretrained(folder / "theirs").eval().bfloat16()
    torch._inductor.config.freezing = True
    compiled = torch.compile(half)

    def batch():
        arrays = np.load(folder / "batch.npz")
        return {
            NAMES[name]: torch.from_numpy(arrays[name].astype(np.int64))
            for name in NAMES
        }

    def by(model):
        @torch.no_grad()
        def run():
            return model(**batch()).logits.float().numpy()

        return run

    kinds = {
        "transformers, float32": by(whole),
        "transformers, bfloat16": by(half),
        "transformers compiled and frozen, bfloat16": by(compiled),
    }
    versions = f"torch {torch.__version__}, "
    versions += f"transformers {transformers.__version__}"
    if importlib.util.find_spec("openvino"):
        import openvino

        example = {
            n: torch.ones((1, 8), dtype=torch.int64) for n in NAMES.values()
        }
        model = openvino.convert_model(whole, example_input=example)
        settings = {"INFERENCE_PRECISION_HINT": "bf16"}
        model = openvino.Core().compile_model(model, "CPU", settings)

        def run():
            arrays = {n: value.numpy() for n, value in batch().items()}
            return model(arrays)[0]

        kinds["OpenVINO's conversion of PyTorch, bfloat16"] = run
        versions += f", openvino {openvino.__version__}"
    said = {"versions": versions, "kinds": list(kinds)}
    print(json.dumps(said), flush=True)
    for line in sys.stdin:
        run = kinds[line.strip()]
        begin = time.monotonic()
        for _ in range(steps):
            found = run()
        seconds = time.monotonic() - begin
        np.save(folder / "logits.npy", found)
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
