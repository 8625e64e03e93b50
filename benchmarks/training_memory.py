"""Memory of training a classifier, beside transformers, and a step's time.

    python -m benchmarks.training_memory --peer_python=.venv-peers/bin/python

Each trial is a process of its own, in turns: two steps of AdamW on the same
full rows, dropout 0.1, of a new model of a standard size. The peak is the
largest resident memory of the process, libraries included. In mixed_bfloat16
transformers computes under torch.autocast; both keep float32 weights.
"""

import json
import pathlib
import statistics
import subprocess

from absl import app, flags

from benchmarks import comparison
from bert_tf.config import BertConfig
from bert_tf.memory.measurement import measure
from bert_tf.memory.prediction import Workload, estimated_bytes

_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "Python of the peers' environment.", required=True
)
_SIZE = flags.DEFINE_string("size", "base", "Of `bert-tf pretrain`.")
_ROWS = flags.DEFINE_integer("rows", 8, "Rows of a step.")
_LENGTH = flags.DEFINE_integer("length", 512, "Tokens of a row.")
_PRECISION = flags.DEFINE_enum(
    "precision", "mixed_bfloat16", ["float32", "mixed_bfloat16"], "Of products."
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Trials of each, in turns.")
_VOCAB_SIZE = 30_522
PEER = pathlib.Path(__file__).with_name("training_memory_transformers.py")


def main(_) -> None:
    """Runs the trials and prints medians."""
    comparison.show_heading("benchmarks.training_memory", _PEER_PYTHON.value)
    config = BertConfig.from_size(_SIZE.value, _VOCAB_SIZE)
    rows, length, precision = _ROWS.value, _LENGTH.value, _PRECISION.value
    plain = Workload(config, length, rows, 0, precision)
    again = Workload(config, length, rows, 0, precision, rematerialize=True)
    asked = {
        "rows": rows,
        "length": length,
        "precision": precision,
        "config": {
            name: getattr(config, name)
            for name in (
                "vocab_size",
                "hidden_size",
                "num_hidden_layers",
                "num_attention_heads",
                "intermediate_size",
            )
        },
    }

    def ours(work: Workload) -> tuple[float, float, int]:
        found = measure(work, float("inf"))
        assert found is not None
        return found.peak_bytes, found.step_seconds, work.num_parameters

    def theirs() -> tuple[float, float, int]:
        done = subprocess.run(
            [_PEER_PYTHON.value, PEER, json.dumps(asked)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return tuple(json.loads(done.stdout.splitlines()[-1]))

    works = {
        "bert_tf": lambda: ours(plain),
        "bert_tf, rematerialize": lambda: ours(again),
        "transformers": theirs,
    }
    found = {name: [] for name in works}
    for _ in range(_ROUNDS.value):
        for name, work in works.items():
            found[name].append(work())
    print("| | parameters | peak, GB | step, s |")
    print("|---|---|---|---|")
    for name, trials in found.items():
        peak, step, parameters = (
            statistics.median(values) for values in zip(*trials, strict=True)
        )
        print(f"| {name} | {parameters:,} | {peak / 1e9:.2f} | {step:.2f} |")
    for name, work in {"bert_tf": plain, "rematerialize": again}.items():
        print(f"predicted, {name}: {estimated_bytes(work, True) / 1e9:.2f} GB")
    for name in list(works)[:2]:
        ratios = [
            own[0] / other[0]
            for own, other in zip(
                found[name], found["transformers"], strict=True
            )
        ]
        print(
            f"{name} over transformers, memory: "
            f"{statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    app.run(main)
