"""Sentence vectors beside Hugging Face transformers, on this machine.

    python -m benchmarks.extraction --peer_python=.venv-peers/bin/python \
        --model=FOLDER --input='corpus/*.txt'

The same texts go through the same weights: `bert_tf.embed`'s Embedder (mean
over the tokens, batches by length), transformers (batches in the order of the
texts, padded to their longest row, as its users write it) and
sentence-transformers (which sorts by length itself). All are loaded and warm,
take turns, and count from strings to vectors in NumPy; the median of the
rounds counts. Beside the speed stands the largest difference of a number and
the smallest cosine to the peer's vectors. sentence-transformers may normalise
its vectors, as the model's folder says; then ours are normalised for the
comparison too.

The peers need the environment of requirements-peers.txt.
"""

import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
from absl import flags

from benchmarks import comparison
from bert_tf.files import expand_inputs, write_text
from tools import command_line

_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "Python with sentence-transformers."
)
_MODEL = flags.DEFINE_string("model", None, "Hugging Face model folder.")
_INPUT = flags.DEFINE_string("input", None, "Text files, a text a line.")
_TEXTS = flags.DEFINE_integer("texts", 2000, "Texts to take.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 32, "Of all sides.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds to take the median of.")
_PRECISION = flags.DEFINE_enum(
    "precision", "float32", ["float32", "bfloat16"], "Of all sides."
)

_PEER = "benchmarks/extraction_transformers.py"
_OURS = "bert_tf"
_PEERS = ("transformers", "sentence-transformers")


def texts_of_files() -> list[str]:
    """Lines with text, spread evenly over the files."""
    lines = [
        line.strip()
        for file in expand_inputs(_INPUT.value)
        for line in file.read_text(encoding="utf-8").split("\n")
        if line.strip()
    ]
    step = max(1, len(lines) // _TEXTS.value)
    return lines[::step][: _TEXTS.value]


class Peers:
    """The process of the peers."""

    def __init__(self, texts: list[str], folder: str) -> None:
        self.folder = folder
        path = pathlib.Path(folder, "texts.txt")
        write_text(path, "".join(f"{text}\n" for text in texts))
        command = [
            _PEER_PYTHON.value,
            _PEER,
            f"--model={_MODEL.value}",
            f"--texts={path}",
            f"--output={folder}/vectors",
            f"--batch_size={_BATCH_SIZE.value}",
            f"--threads={comparison.threads()}",
        ]
        if _PRECISION.value == "bfloat16":
            command.append("--bfloat16")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self, name: str) -> float:
        """Has one of them compute all vectors; how long it took."""
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def vectors(self, name: str) -> np.ndarray:
        """The vectors that one of them computed last, float32 [N, H]."""
        return np.load(f"{self.folder}/vectors-{name}.npy")

    def close(self) -> None:
        """Ends the process."""
        self.process.stdin.close()
        self.process.wait()


def compare(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """The largest difference and the smallest cosine."""
    norms = np.linalg.norm(theirs, axis=1)
    own = np.linalg.norm(ours, axis=1)
    cosines = (ours * theirs).sum(axis=1) / (norms * own)
    if np.abs(norms - 1).max() < 1e-2:
        ours = ours / own[:, None]
    return float(np.abs(ours - theirs).max()), float(cosines.min())


def main() -> None:
    """Prints the machine, the speeds and the differences."""
    from bert_tf.inference.embed import Embedder

    texts = texts_of_files()
    precision = {"bfloat16": "mixed_bfloat16"}.get(
        _PRECISION.value, _PRECISION.value
    )
    embedder = Embedder(
        _MODEL.value, batch_size=_BATCH_SIZE.value, precision=precision
    )
    embedder(texts[: 4 * _BATCH_SIZE.value])
    seconds: dict[str, list[float]] = {name: [] for name in (_OURS, *_PEERS)}
    with tempfile.TemporaryDirectory() as folder:
        peers = Peers(texts, folder)
        for _ in range(_ROUNDS.value):
            begun = time.perf_counter()
            ours = embedder(texts)
            seconds[_OURS].append(time.perf_counter() - begun)
            for name in _PEERS:
                seconds[name].append(peers.seconds(name))
        theirs = {name: peers.vectors(name) for name in _PEERS}
        peers.close()
    comparison.show_machine("benchmarks.extraction", "tensorflow", "keras")
    print(
        f"{len(texts)} texts of {np.mean(list(map(len, texts))):.0f} "
        f"characters on average, {_PRECISION.value}"
    )
    print(
        "| | texts/s | bert_tf is faster | largest difference | least cosine |"
        "\n|---|---|---|---|---|"
    )
    medians = {n: statistics.median(times) for n, times in seconds.items()}
    print(f"| {_OURS} | {len(texts) / medians[_OURS]:.0f} | | | |")
    for name in _PEERS:
        difference, cosine = compare(ours, theirs[name])
        print(
            f"| {name} | {len(texts) / medians[name]:.0f} | "
            f"{medians[name] / medians[_OURS]:.2f}x | {difference:.1e} | "
            f"{cosine:.7f} |"
        )


if __name__ == "__main__":
    command_line.require("peer_python", "model", "input")
    command_line.run(main)
