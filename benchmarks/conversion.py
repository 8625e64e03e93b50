"""Time and memory of converting a checkpoint on this machine.

    python -m benchmarks.conversion

Makes a pre-trainer of random weights in a temporary folder, converts it to
each layout and back to ours, each in a process of its own, as a user would,
and checks that what comes back is the same to the bit. Seconds are those of
the whole command, start-up and proof included, by the clock and of the
processors; memory is the most that the process held, TensorFlow included, as
the command prints it.
"""

import pathlib
import re
import sys
import tempfile

import numpy as np
from absl import app, flags

from benchmarks import comparison
from benchmarks.measured_run import run
from benchmarks.steps import VOCAB
from bert_tf.checkpoints import (
    MASKED_LM,
    NEXT_SENTENCE,
    POOLER,
    Checkpoint,
    head_shapes,
    load_checkpoint,
    save_checkpoint,
)
from bert_tf.checkpoints.folder import WRITTEN
from bert_tf.checkpoints.layout import encoder_shapes
from bert_tf.config import BertConfig
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary

_MODEL_SIZE = flags.DEFINE_string("model_size", "base", "Size of the model.")
_PROOF = (
    "sequence_output",
    "pooled_output",
    "masked_lm_logits",
    "next_sentence_logits",
)


def random_checkpoint(config: BertConfig) -> Checkpoint:
    """Distinct values, of the size that a trained model has."""
    shapes = encoder_shapes(config)
    for head in (POOLER, MASKED_LM, NEXT_SENTENCE):
        shapes |= head_shapes(config)[head]
    random = np.random.default_rng(0)
    arrays = {}
    for name, shape in shapes.items():
        values = random.standard_normal(shape, dtype=np.float32)
        values *= np.float32(0.05)
        arrays[name] = values + np.float32(name.endswith("gamma"))
    rest = range(config.vocab_size - len(SPECIAL_TOKENS))
    tokens = [*SPECIAL_TOKENS, *(f"token{i}" for i in rest)]
    return Checkpoint(config, arrays, Vocabulary(tokens), True)


def convert(
    what: str, size: int, source: pathlib.Path, to: str, target: pathlib.Path
) -> None:
    """Runs the command and prints what it took, and its proof."""
    command = [
        *(sys.executable, "-m", "tools.convert_checkpoint"),
        *(f"--input={source}", f"--to={to}", f"--output_dir={target}"),
    ]
    done = run(command)
    rows = [line.split() for line in done.output.splitlines()]
    differences = [float(row[1]) for row in rows if row and row[0] in _PROOF]
    assert len(differences) == len(_PROOF)
    (megabytes,) = map(float, re.findall(r"at most (\d+) MB", done.output))
    print(
        f"{what}: {done.seconds:.1f} s ({done.cpu_seconds:.1f} s of "
        f"processors), {megabytes:.0f} MB at most, "
        f"{megabytes * 1e6 / size:.2f} of the checkpoint's size, largest "
        f"difference {max(differences):.1e}",
        flush=True,
    )


def same(left: pathlib.Path, right: pathlib.Path) -> bool:
    """Whether two folders hold the same model to the bit."""
    first, second = load_checkpoint(left), load_checkpoint(right)
    return (
        first.config == second.config
        and first.arrays.keys() == second.arrays.keys()
        and all(
            np.array_equal(first.arrays[name], second.arrays[name])
            for name in first.arrays
        )
    )


def main(_: list[str]) -> None:
    comparison.show_machine("benchmarks.conversion", "tensorflow", "keras")
    config = BertConfig.from_size(_MODEL_SIZE.value, VOCAB)
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        source = root / "source"
        save_checkpoint(source, random_checkpoint(config))
        size = (source / "bert_model.safetensors").stat().st_size
        print(f"{_MODEL_SIZE.value} pre-trainer, {size / 1e6:.0f} MB")
        for to in WRITTEN:
            convert(f"bert_tf to {to}", size, source, to, root / to)
            back = root / f"{to}_back"
            convert(f"{to} to bert_tf", size, root / to, "bert_tf", back)
            print(f"  back to the bit: {same(source, back)}")


if __name__ == "__main__":
    app.run(main)
