"""Networks and answers by every runtime: sections of benchmarks/cpu_table.py.

The network of a classifier, of token ids to logits, takes batches of any shape,
as the commands trace it. On our side Keras and the runtimes, and our files in
int8; the peers are transformers with sdpa, the same compiled and frozen by
torch.compile, OpenVINO's own conversion of the PyTorch model, and the dynamic
quantization of ONNX Runtime, which is what optimum calls, of our float32 file.
"""

import dataclasses
import functools
import pathlib
import tempfile
import time
from collections.abc import Callable

import numpy as np

from benchmarks.comparison import (
    REFERENCE,
    Peer,
    Section,
    Settings,
    start_peer,
    threads,
)
from benchmarks.steps import measured_with_products
from bert_tf.checkpoints import Checkpoint, save_checkpoint
from bert_tf.config import BertConfig
from bert_tf.encoders import BertEncoder
from bert_tf.features import ENCODER_INPUTS
from bert_tf.inference.load import load
from bert_tf.models import bert_classifier, model_arrays
from bert_tf.runtimes import litert_file, onnx_file
from bert_tf.runtimes.tracing import trace
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary

_PEER = pathlib.Path(__file__).with_name("runtimes_transformers.py")
_TOKENS, _POSITIONS = 30522, 2048
# A round takes about so long.
_ROUND_SECONDS, _MOST_STEPS = 0.4, 20
KERAS = "bert_tf, Keras"
# Settings of `load` by row.
LOADED: dict[str, dict[str, dict[str, str]]] = {
    "float32": {
        KERAS: {},
        "bert_tf, OpenVINO": {"runtime": "openvino"},
        "bert_tf, ONNX Runtime": {"runtime": "onnx"},
        "bert_tf, LiteRT": {"runtime": "litert"},
    },
    "bfloat16": {
        KERAS: {"precision": "mixed_bfloat16"},
        "bert_tf, OpenVINO": {
            "runtime": "openvino",
            "precision": "mixed_bfloat16",
        },
    },
}
_OURS_INT8, _LITERT_INT8 = "bert_tf, ONNX int8", "bert_tf, LiteRT int8"
_QUANTIZED = "ONNX Runtime's quantize_dynamic"

Arrays = dict[str, np.ndarray]
Network = Callable[[Arrays], np.ndarray]


def write_folders(folder: pathlib.Path, size: str) -> None:
    """Writes a random classifier of long rows for both sides."""
    tokens = [*SPECIAL_TOKENS.present, *(f"t{n}" for n in range(_TOKENS - 5))]
    config = dataclasses.replace(
        BertConfig.from_size(size, len(tokens)),
        max_position_embeddings=_POSITIONS,
    )
    model = bert_classifier(BertEncoder(config), 2)
    checkpoint = Checkpoint(
        config, model_arrays(model), Vocabulary(tokens), labels=["no", "yes"]
    )
    save_checkpoint(folder / "ours", checkpoint)
    save_checkpoint(folder / "theirs", checkpoint, "hugging_face")


class Networks:
    """The networks of a folder, each made once.

    Args:
      folder: the classifier.
      scratch: where files are written.

    Attributes:
      config: the config of the encoder.
      longest: the tokens of the longest row.
    """

    def __init__(self, folder: pathlib.Path, scratch: pathlib.Path):
        self._folder, self._scratch = folder, scratch
        served = load(folder).served
        self.config, self.longest = served.config, served.max_seq_length
        self.loaded = functools.cache(self._loaded)
        self.file = functools.cache(self._file)

    def _loaded(self, name: str, precision: str) -> Network:
        import tensorflow as tf

        served = load(self._folder, **LOADED[precision][name]).served

        def forward(inputs: dict) -> tf.Tensor:
            return tf.cast(served.forward(inputs), tf.float32)

        # A concrete function, since TensorFlow warns of many traces.
        concrete = tf.function(forward, autograph=False).get_concrete_function(
            {
                feature.name: tf.TensorSpec((None, None), tf.int32)
                for feature in ENCODER_INPUTS
            }
        )

        def run(arrays: Arrays) -> np.ndarray:
            # Holds what the graph calls.
            assert served.model is not None
            tensors = {n: tf.constant(each) for n, each in arrays.items()}
            return concrete(tensors).numpy()

        return run

    def _file(self, name: str, length: int) -> Network:
        """The network of a file, for rows of that length if it is fixed."""
        from onnxruntime.quantization import QuantType, quantize_dynamic

        module = litert_file if name == _LITERT_INT8 else onnx_file
        served = load(self._folder).served
        shape = (1, length) if module.PADDED else (None, None)
        graph = trace(served.row_outputs, shape, "benchmark")
        path = self._scratch / f"{name} {length} {module.FILE}"
        int8 = name != _QUANTIZED
        module.write_model(path, graph, "benchmark", int8=int8)
        if not int8:
            small = path.with_suffix(".int8.onnx")
            quantize_dynamic(path, small, weight_type=QuantType.QInt8)
            path = small
        runner = module.Runner(path)
        return lambda arrays: runner(arrays)["logits"]


def _random_batch(rows: int, length: int) -> Arrays:
    random = np.random.default_rng(0)
    arrays = {
        "input_ids": random.integers(1000, 30000, (rows, length)),
        "input_mask": np.ones((rows, length)),
        "segment_ids": np.zeros((rows, length)),
    }
    return {name: value.astype(np.int32) for name, value in arrays.items()}


def _measure(
    settings: Settings,
    networks: Networks,
    peer: Peer | None,
    scratch: pathlib.Path,
    case: tuple[str, int, int, str],
) -> dict:
    """The table of a model's shape and precision."""
    model, rows, length, precision = case
    section = Section(
        f"{model}, {rows} x {length}, {precision}", "ms", REFERENCE
    )
    arrays = _random_batch(rows, length)
    np.savez(scratch / "batch.npz", **arrays)
    exact = networks.loaded(KERAS, "float32")(arrays)

    def timed(name: str, run: Callable[[int], np.ndarray | float]) -> Callable:
        """A round of a function that is given how often to compute."""
        run(1)
        begun = time.perf_counter()
        logits = run(1)
        took = time.perf_counter() - begun
        if isinstance(logits, float):
            logits = np.load(scratch / "logits.npy")
        section.cells[name] = {
            "largest difference": f"{np.abs(logits - exact).max():.1e}"
        }
        steps = int(min(max(_ROUND_SECONDS / took, 1), _MOST_STEPS))

        def work() -> float:
            begun = time.perf_counter()
            found = run(steps)
            took = time.perf_counter() - begun
            # The peer's own time leaves out the way to it.
            return (found if isinstance(found, float) else took) / steps

        return work

    def ours(make: Callable[[], Network], name: str) -> Callable:
        network = make()

        def run(steps: int) -> np.ndarray:
            for _ in range(steps - 1):
                network(arrays)
            return network(arrays)

        return timed(name, run)

    def theirs(name: str) -> Callable:
        def run(steps: int) -> float:
            return peer.ask(f"{steps} {name}, {precision}")["seconds"]

        return timed(name, run)

    for name in LOADED[precision]:
        # LiteRT computes rows of the model's longest length.
        if "LiteRT" not in name or length == networks.longest:
            make = functools.partial(networks.loaded, name, precision)
            section.add(name, functools.partial(ours, make, name))
    if precision == "bfloat16" and length < 512:
        for name in (_OURS_INT8, _LITERT_INT8, _QUANTIZED):
            if rows == 1 or name != _LITERT_INT8:
                make = functools.partial(networks.file, name, length)
                section.add(name, functools.partial(ours, make, name))
    if peer is None:
        section.missing["the peers"] = "no environment of peers"
    else:
        for name in peer.said["names"]:
            section.add(name, functools.partial(theirs, name))
        section.missing |= peer.said["missing"]
    return measured_with_products(
        section, settings.rounds, networks.config, rows * length
    )


def rows(settings: Settings) -> list[dict]:
    """Tables of networks by shape."""
    size = settings.size
    both = ("bfloat16", "float32")
    shapes = {
        size: [(1, 128, both), (8, 128, both), (1, _POSITIONS, both[:1])],
        "MiniLM": [(1, 128, both)],
    }
    tables = []
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        write_folders(scratch, size)
        folders = {
            size: (scratch / "ours", scratch / "theirs"),
            "MiniLM": (settings.classifier, settings.converted),
        }
        for model, (ours, theirs) in folders.items():
            networks = Networks(ours, scratch)
            peer = start_peer(settings, _PEER, theirs, scratch, threads())
            for count, length, precisions in shapes[model]:
                for precision in precisions:
                    case = model, count, length, precision
                    tables.append(
                        _measure(settings, networks, peer, scratch, case)
                    )
            if peer is not None:
                peer.close()
    return tables


def answers(settings: Settings) -> list[dict]:
    """How the answers to real texts differ from those of Keras in float32."""
    texts = settings.sentences[:: max(1, len(settings.sentences) // 500)][:500]
    section = Section(
        f"answers by runtime ({len(texts)} SST-2 texts)", "s", KERAS
    )
    labels: list[str] = []
    chances = np.zeros(0)

    def make(name: str, given: dict[str, str]) -> Callable:
        nonlocal labels, chances
        model = load(settings.classifier, **given)
        found = model(texts)
        own = [answer["label"] for answer in found]
        mine = np.array([list(a["probabilities"].values()) for a in found])
        if not labels:
            labels, chances = own, mine
        flips = sum(a != b for a, b in zip(own, labels, strict=True))
        section.cells[name] = {
            "other labels": str(flips),
            "largest difference": f"{np.abs(mine - chances).max():.1e}",
        }
        return functools.partial(model, texts)

    rows = {
        f"{name}, {precision}": given
        for precision, loaded in LOADED.items()
        for name, given in loaded.items()
    }
    for name, path in settings.int8.items():
        rows[f"bert_tf, {name}, int8"] = {"runtime": str(path)}
    for name, given in rows.items():
        section.add(name, functools.partial(make, name, given))
    section.reference = f"{KERAS}, float32"
    return [section.measured(settings.rounds, float)]
