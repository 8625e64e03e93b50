"""The peer of benchmarks/runtimes.py, in an environment of its own.

Takes lines "STEPS NAME, PRECISION" on standard input, computes the batch in
SCRATCH/batch.npz so many times with the classifier in FOLDER, writes
SCRATCH/logits.npy and prints the seconds as JSON. Nothing of bert_tf is
imported.

    python benchmarks/runtimes_transformers.py FOLDER SCRATCH THREADS
"""

import functools
import importlib.util
import json
import pathlib
import sys
import time
import warnings

import numpy as np
import torch
import torch._inductor.config
import transformers

NAMES = {
    "input_ids": "input_ids",
    "input_mask": "attention_mask",
    "segment_ids": "token_type_ids",
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
HINTS = {"float32": "f32", "bfloat16": "bf16"}


@functools.cache
def loaded(folder, precision):
    kind = transformers.AutoModelForSequenceClassification
    model = kind.from_pretrained(folder, attn_implementation="sdpa")
    return model.eval().to(DTYPES[precision])


def by(model):
    @torch.no_grad()
    def run(batch):
        return model(**batch).logits.float().numpy()

    return run


@functools.cache
def plain(folder, precision):
    return by(loaded(folder, precision))


@functools.cache
def compiled(folder, precision):
    torch._inductor.config.freezing = True
    # As it is by default, the second shape would be compiled for all.
    return by(torch.compile(loaded(folder, precision), dynamic=False))


@functools.cache
def converted(folder, precision):
    import openvino

    example = {n: torch.ones((1, 8), dtype=torch.int64) for n in NAMES.values()}
    model = openvino.convert_model(
        loaded(folder, "float32"), example_input=example
    )
    settings = {"INFERENCE_PRECISION_HINT": HINTS[precision]}
    model = openvino.Core().compile_model(model, "CPU", settings)

    def run(batch):
        return model({n: value.numpy() for n, value in batch.items()})[0]

    return run


def main():
    """Answers until standard input ends."""
    folder, scratch, threads = sys.argv[1:]
    scratch = pathlib.Path(scratch)
    torch.set_num_threads(int(threads))
    # Of tracing for OpenVINO.
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kinds = {
        "transformers (sdpa)": plain,
        "transformers, compiled and frozen": compiled,
    }
    missing = {}
    name = "OpenVINO's conversion of PyTorch"
    if importlib.util.find_spec("openvino"):
        kinds[name] = converted
    else:
        missing[name] = "no openvino in the environment of the peers"
    print(json.dumps({"names": list(kinds), "missing": missing}), flush=True)
    for line in sys.stdin:
        steps, _, name = line.strip().partition(" ")
        name, _, precision = name.rpartition(", ")
        with np.load(scratch / "batch.npz") as arrays:
            batch = {
                NAMES[key]: torch.from_numpy(arrays[key].astype(np.int64))
                for key in NAMES
            }
        try:
            run = kinds[name](folder, precision)
            begin = time.perf_counter()
            for _ in range(int(steps)):
                found = run(batch)
            seconds = time.perf_counter() - begin
        except Exception as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            print(json.dumps({"error": said}), flush=True)
            continue
        np.save(scratch / "logits.npy", found)
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
