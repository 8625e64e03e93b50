"""Speed of ModernBERT on this machine, against transformers with sdpa.

    python -m benchmarks.modernbert --peer_python=.venv-peers/bin/python

Both sides hold the same random weights, written as a folder of transformers,
and compute rows without padding, each on one core. Figures are medians, over
the rounds, of the CPU time of a step: on a shared machine the time by the
clock depends on the neighbours. The sides take turns. A training step is
forward, a scalar loss, gradients and AdamW, whose update is compiled by XLA on
our side. In bfloat16 weights are held so for inference; training keeps them in
float32. The last lines are the time of one local and one global layer of ours,
by the length of a row.
"""

import functools
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# As the commands have it.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
import tensorflow as tf
from absl import app, flags

from benchmarks import comparison
from benchmarks.steps import inference, training
from bert_tf.architectures.modernbert import ModernBertConfig
from bert_tf.checkpoints import Checkpoint, hugging_face
from bert_tf.encoders.modernbert import ModernBertEncoder
from bert_tf.layers import attention_bias

_SIZE = flags.DEFINE_string("size", "base", "Size of the encoder.")
_LENGTHS = flags.DEFINE_list("lengths", ["128", "512", "2048"], "Tokens a row.")
_TOKENS = flags.DEFINE_integer("tokens", 1024, "Tokens a batch, or one row.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Rounds, of which the median.")
_KINDS = flags.DEFINE_list("kinds", ["inference", "training"], "Of steps.")
_DTYPES = flags.DEFINE_list("dtypes", ["float32", "bfloat16"], "Of products.")
_GROWTH = flags.DEFINE_list(
    "growth", ["512", "1024", "2048", "4096", "8192"], "Lengths of one layer."
)
_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "Python of the peer's environment.", required=True
)

VOCAB = 50368
PEER = pathlib.Path(__file__).with_name("modernbert_transformers.py")


def batch_of(length: int) -> dict[str, np.ndarray]:
    """Random tokens in full rows."""
    rows = max(_TOKENS.value // length, 1)
    ids = np.random.default_rng(length).integers(0, VOCAB, (rows, length))
    return {
        "input_ids": ids.astype("int32"),
        "input_mask": np.ones_like(ids, "int32"),
        "segment_ids": np.zeros_like(ids, "int32"),
    }


def loss_of(encoder: ModernBertEncoder, inputs: dict) -> tf.Tensor:
    hidden = encoder(inputs, training=True)["sequence_output"]
    return tf.reduce_mean(tf.square(tf.cast(hidden, tf.float32)))


def steps_of(
    config: ModernBertConfig, arrays: dict[str, np.ndarray], dtype: str
) -> dict[str, Callable[[dict], Callable]]:
    """The kinds of steps: each a function from a batch to what is timed."""
    mixed = dtype if dtype == "float32" else f"mixed_{dtype}"
    still, trained = (
        ModernBertEncoder(config, dtype=name) for name in (dtype, mixed)
    )
    for encoder in (still, trained):
        encoder.load_arrays(arrays)
        # The peer has none.
        encoder.pooler.trainable = False
    return {
        "inference": functools.partial(inference, still),
        "training": functools.partial(training, trained, loss=loss_of),
    }


def cpu_seconds(step: Callable[[], tf.Tensor | None]) -> float:
    """The CPU time of a step of this process."""
    started = time.process_time()
    result = step()
    if result is not None:
        result.numpy()
    return time.process_time() - started


def peer_seconds(peer: comparison.Peer, line: str) -> float:
    """The CPU time of a step of the peer."""
    return peer.ask(line)["seconds"]


def turns(works: dict) -> dict:
    """The seconds of each work in each round, after one that is not timed."""
    for work in works.values():
        work()
    return comparison.seconds_in_turns(works, _ROUNDS.value)


def measure(dtype: str, folder: pathlib.Path) -> None:
    """Prints a line for each kind of step and length."""
    config = ModernBertConfig.from_size(_SIZE.value, VOCAB)
    arrays = ModernBertEncoder(config).to_arrays()
    body = {
        name: array
        for name, array in arrays.items()
        if not name.startswith("bert/pooler/")
    }
    hugging_face.write(folder, Checkpoint(config, body, source="benchmark"))
    batches = {int(length): batch_of(int(length)) for length in _LENGTHS.value}
    for length, batch in batches.items():
        np.savez(folder / f"{length}.npz", **batch)
    peer = comparison.Peer(_PEER_PYTHON.value, str(PEER), str(folder), dtype)
    print("peer:", peer.said)
    steps = steps_of(config, arrays, dtype)
    for kind in _KINDS.value:
        for length, batch in batches.items():
            inputs = {k: tf.constant(v) for k, v in batch.items()}
            step = steps[kind](inputs=inputs)
            works = {
                "bert_tf": functools.partial(cpu_seconds, step),
                "transformers": functools.partial(
                    peer_seconds, peer, f"{kind} {length}"
                ),
            }
            found = step()
            seconds = turns(works)
            apart = ""
            if kind == "inference":
                other = np.load(folder / "transformers.npy")
                difference = np.abs(found.numpy().astype("f4") - other).max()
                apart = f"; largest difference {difference:.1e}"
            own, peers = (statistics.median(each) for each in seconds.values())
            ratios = [b / a for a, b in zip(*seconds.values(), strict=True)]
            print(
                f"{_SIZE.value} {len(batch['input_ids'])}x{length} {dtype} "
                f"{kind}: bert_tf {1e3 * own:.0f} ms, transformers "
                f"{1e3 * peers:.0f} ms; bert_tf over transformers "
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to "
                f"{max(ratios):.2f}){apart}",
                flush=True,
            )
    peer.close()


def measure_growth(dtype: str) -> None:
    """Prints the time of a local and of a global layer by length."""
    config = ModernBertConfig.from_size(_SIZE.value, VOCAB)
    encoder = ModernBertEncoder(config, dtype=dtype)
    works = {}
    for kind, block in (
        ("global", encoder.blocks[3]),
        ("local", encoder.blocks[1]),
    ):
        for length in map(int, _GROWTH.value):
            hidden = tf.random.normal((1, length, config.hidden_size))
            bias = attention_bias(tf.ones((1, length), tf.int32))
            step = tf.function(
                lambda hidden, bias, block=block: block(
                    hidden, bias, return_probabilities=False
                )[0],
                autograph=False,
            )
            hidden = tf.cast(hidden, dtype)
            # TensorFlow warns of functions that it traces in calls.
            traced = step.get_concrete_function(hidden, bias)
            step = functools.partial(traced, hidden, bias)
            works[kind, length] = functools.partial(cpu_seconds, step)
    seconds = turns(works)
    for kind in ("local", "global"):
        print(
            f"{_SIZE.value} {dtype} one {kind} layer, ms by length: "
            + ", ".join(
                f"{length} {1e3 * statistics.median(times):.0f}"
                for (each, length), times in seconds.items()
                if each == kind
            ),
            flush=True,
        )


def main(_: list[str]) -> None:
    # Before TensorFlow counts them; inherited by the peer.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    comparison.show_machine("benchmarks.modernbert", "tensorflow", "keras")
    for dtype in _DTYPES.value:
        with tempfile.TemporaryDirectory() as temporary:
            measure(dtype, pathlib.Path(temporary))
        measure_growth(dtype)


if __name__ == "__main__":
    app.run(main)
