"""Inference of a classifier by every runtime, beside transformers on PyTorch.

    python -m benchmarks.runtimes --peer_python=.venv-peers/bin/python \
        --model=out/sst2 --texts=texts.txt

First the network of a BERT with random weights, of token ids to logits, for
each shape of --shapes: Keras, OpenVINO and ONNX Runtime on our side;
transformers with sdpa, the same compiled and frozen by torch.compile and, if
that environment has openvino, its own conversion of the PyTorch model. Each
round times all of them once, in turn; the figures are medians, with the speed
of matrix products in bfloat16 in the same rounds. Then, with --model, the
answers of a fine-tuned folder to a file of texts by every runtime: labels that
differ from those of Keras in float32, and the largest difference of a
probability.
"""

import functools
import pathlib
import statistics
import tempfile
from collections.abc import Callable

import numpy as np
from absl import flags

from benchmarks import comparison
from benchmarks.steps import products
from bert_tf.checkpoints import Checkpoint, save_checkpoint
from bert_tf.config import BertConfig
from bert_tf.encoders import BertEncoder
from bert_tf.families.text_model import TextModel
from bert_tf.inference.load import load
from bert_tf.models import bert_classifier, model_arrays
from bert_tf.runtimes import onnx_file
from bert_tf.runtimes.tracing import trace
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from tools import command_line

_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "Python of the peers' environment; none without it."
)
_SIZE = flags.DEFINE_string("size", "base", "Size of the random BERT.")
_SHAPES = flags.DEFINE_list(
    "shapes", ["1x128", "8x128", "1x512"], "Rows x tokens of each batch."
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds, of which the median.")
_STEPS = flags.DEFINE_integer("steps", 3, "Batches timed in each round.")
_MODEL = flags.DEFINE_string("model", None, "A fine-tuned classifier.")
_TEXTS = flags.DEFINE_string("texts", None, "File with a text a line.")

PEER = pathlib.Path(__file__).with_name("runtimes_transformers.py")
_OURS = {
    "keras, float32": {},
    "keras, bfloat16": {"precision": "mixed_bfloat16"},
    "openvino, float32": {"runtime": "openvino"},
    "openvino, bfloat16": {
        "runtime": "openvino",
        "precision": "mixed_bfloat16",
    },
    "onnx, float32": {"runtime": "onnx"},
}


def write_folders(folder: pathlib.Path) -> BertConfig:
    """Writes a random classifier for both sides."""
    tokens = [*SPECIAL_TOKENS.present, *(f"t{n}" for n in range(30522 - 5))]
    config = BertConfig.from_size(_SIZE.value, len(tokens))
    model = bert_classifier(BertEncoder(config), 2)
    checkpoint = Checkpoint(
        config, model_arrays(model), Vocabulary(tokens), labels=["no", "yes"]
    )
    save_checkpoint(folder / "ours", checkpoint)
    save_checkpoint(folder / "theirs", checkpoint, "hugging_face")
    return config


def graph_of(served: TextModel, batch: dict) -> Callable[[], np.ndarray]:
    """A function that computes the logits of a batch."""
    import tensorflow as tf

    def forward(inputs: dict) -> tf.Tensor:
        return tf.cast(served.forward(inputs), tf.float32)

    # A concrete function, since TensorFlow warns of many traces.
    graph = tf.function(forward, autograph=False)
    concrete = graph.get_concrete_function(batch)

    def run() -> np.ndarray:
        # Holds what the graph calls.
        assert served.model is not None
        return concrete(batch).numpy()

    return run


def measure(shape: str, folder: pathlib.Path, peer: comparison.Peer | None):
    """Prints a table of a shape."""
    import tensorflow as tf

    rows, length = map(int, shape.split("x"))
    random = np.random.default_rng(0)
    arrays = {
        "input_ids": random.integers(5, 30522, (rows, length)),
        "input_mask": np.ones((rows, length)),
        "segment_ids": np.zeros((rows, length)),
    }
    arrays = {name: value.astype(np.int32) for name, value in arrays.items()}
    batch = {name: tf.constant(value) for name, value in arrays.items()}
    functions: dict[str, Callable[[], np.ndarray]] = {}
    for name, settings in _OURS.items():
        served = load(folder / "ours", **settings).served
        functions[name] = graph_of(served, batch)
    path = folder / "int8.onnx"
    if not path.exists():
        served = load(folder / "ours").served
        graph = trace(served.row_outputs, (None, None), "benchmark")
        onnx_file.write_model(path, graph, "benchmark", int8=True)
    small = onnx_file.Runner(path)
    functions["onnx, int8"] = lambda: small(arrays)["logits"]
    wanted = functions["keras, float32"]()
    apart = {n: np.abs(f() - wanted).max() for n, f in functions.items()}

    def steps(function: Callable) -> None:
        for _ in range(_STEPS.value):
            function()

    works = {n: functools.partial(steps, f) for n, f in functions.items()}
    if peer is not None:
        np.savez(folder / "batch.npz", **arrays)
        for name in peer.said["kinds"]:
            works[name] = functools.partial(peer.ask, name)
            peer.ask(name)
            logits = np.load(folder / "logits.npy")
            apart[name] = np.abs(logits - wanted).max()
    config = BertConfig.from_size(_SIZE.value, 30522)
    product, operations = products(config, rows * length, "bfloat16")
    works["products"] = functools.partial(steps, lambda: product().numpy())
    for work in works.values():
        work()
    times = comparison.seconds_in_turns(works, _ROUNDS.value)
    medians = {n: statistics.median(t) / _STEPS.value for n, t in times.items()}
    speed = operations / medians.pop("products") / 1e9
    best = medians["openvino, bfloat16"]
    print(f"\n{_SIZE.value}, {shape}; products at {speed:.0f} GFLOP/s")
    print("| | ms | of openvino, bfloat16 | largest difference |")
    print("|---|---|---|---|")
    for name, seconds in medians.items():
        print(
            f"| {name} | {1e3 * seconds:.1f} | {seconds / best:.2f} | "
            f"{apart[name]:.1e} |",
            flush=True,
        )


def compare_answers() -> None:
    """Prints how the answers of a fine-tuned model differ."""
    lines = pathlib.Path(_TEXTS.value).read_text("utf-8").splitlines()
    texts = [line for line in lines if line.strip()]
    labels, chances = {}, {}
    for name, settings in _OURS.items():
        answers = load(_MODEL.value, **settings)(texts)
        labels[name] = [answer["label"] for answer in answers]
        chances[name] = np.array(
            [list(answer["probabilities"].values()) for answer in answers]
        )
    first = next(iter(_OURS))
    print(f"\n{_MODEL.value}, {len(texts)} texts")
    print("| | other labels | largest difference of a probability |")
    print("|---|---|---|")
    for name in _OURS:
        pairs = zip(labels[name], labels[first], strict=True)
        print(
            f"| {name} | {sum(a != b for a, b in pairs)} | "
            f"{np.abs(chances[name] - chances[first]).max():.1e} |"
        )


def main() -> None:
    """Prints the machine and the tables."""
    packages = ("tensorflow", "keras", "openvino", "onnxruntime")
    comparison.show_machine("benchmarks.runtimes", *packages)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_folders(folder)
        peer = None
        if _PEER_PYTHON.value:
            threads = str(comparison.threads())
            peer = comparison.Peer(
                *(_PEER_PYTHON.value, str(PEER), str(folder)),
                *(threads, str(_STEPS.value)),
            )
            print("peer:", peer.said["versions"])
        for shape in _SHAPES.value:
            measure(shape, folder, peer)
        if peer is not None:
            peer.close()
    if _MODEL.value:
        compare_answers()


if __name__ == "__main__":
    command_line.run(main)
