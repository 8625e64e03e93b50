"""Training on packed rows beside padded ones, of the same sequences.

python -m benchmarks.packing --input='corpus/*.txt' --vocab_file=vocab.txt

Makes both kinds of records, then trains the same model on each, in turns, with
as many sequences in a step: with padding and without, which for packed rows is
attention that computes scores between sequences, or does not. Prints
sequences/s (medians of the turns) and the share of places that hold tokens;
beside them, as the check that all learn the same, held-out losses after the
same number of steps.
"""

import argparse
import dataclasses
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterator

import keras
import tensorflow as tf

from benchmarks import comparison
from bert_tf.config import BertConfig
from bert_tf.corpora.sources import parse_inputs
from bert_tf.pretraining.objective import PretrainingObjective
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.records.build import create_records
from bert_tf.records.dataset import (
    RecordFolder,
    held_out_batches,
    training_batches,
)
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.training.setup import make_step
from bert_tf.training.step import Batch, EvaluationStep, TrainingStep


@dataclasses.dataclass
class Side:
    """A model, its records, and how fast it was trained."""

    name: str
    folder: RecordFolder
    rows: int
    batches: Iterator[Batch]
    model: BertPretrainer
    train: TrainingStep
    speeds: list[float] = dataclasses.field(default_factory=list)
    filled: float = 0.0

    def turn(self, steps: int) -> None:
        """Trains for some steps."""
        tokens = sequences = 0.0
        started = time.perf_counter()
        for _ in range(steps):
            batch = next(self.batches)
            result = self.train(batch)
            tokens += float(result.tokens)
            sequences += float(result.metrics["next_sentence_accuracy"][1])
        seconds = time.perf_counter() - started
        self.speeds.append(sequences / seconds)
        self.filled = tokens / steps / self.rows / self.folder.max_seq_length

    def held_out(self) -> dict[str, float]:
        """Mean losses over the held-out records."""
        objective = PretrainingObjective()
        step = EvaluationStep(
            self.model, objective, tf.distribute.get_strategy()
        )
        sums = [
            tf.nest.map_structure(float, step(batch)[:2])
            for batch in held_out_batches(self.folder, self.rows)
        ]
        losses, weights = tf.nest.map_structure(lambda *v: sum(v), *sums)
        return objective.normalise(losses, weights)


def make_side(
    name: str,
    folder: RecordFolder,
    unpadded: bool,
    options: argparse.Namespace,
    steps: int,
) -> Side:
    """A new model, the same for all sides, and its batches."""
    keras.utils.set_random_seed(1)
    rows = max(round(options.batch / folder.mean_sequences), 1)
    config = BertConfig.from_size(options.size, len(folder.vocabulary))
    model = BertPretrainer(config, dtype=options.precision, unpadded=unpadded)
    recipe = PretrainingRecipe(
        precision=options.precision,
        learning_rate=options.learning_rate,
        num_train_steps=steps,
    )
    strategy = tf.distribute.get_strategy()
    train = make_step(recipe, model, PretrainingObjective(), strategy, steps)
    batches = training_batches(folder, rows, 1)
    train.expect(batches.element_spec)
    return Side(name, folder, rows, iter(batches), model, train)


def main() -> None:
    """Makes the records, trains both in turns and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--batch", type=int, default=32, help="sequences")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="of a turn")
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    options = parser.parse_args()
    steps = options.turns * options.steps + 1
    sides = []
    with tempfile.TemporaryDirectory() as base:
        for name, packing in (("padded", False), ("packed", True)):
            recipe = RecordsRecipe(
                max_seq_length=options.length,
                max_predictions_per_seq=round(0.15 * options.length),
                packing=packing,
            )
            path = pathlib.Path(base, name)
            inputs = parse_inputs(options.input, recipe)
            print(create_records(inputs, options.vocab_file, path, recipe))
            folder = RecordFolder.open(path)
            sides += [
                make_side(f"{name}, {how}", folder, unpadded, options, steps)
                for how, unpadded in (("all places", False), ("tokens", True))
            ]
        for side in sides:
            # The first step traces the graph.
            side.turn(1)
            side.speeds.clear()
        for _ in range(options.turns):
            for side in sides:
                side.turn(options.steps)
        comparison.show_machine("benchmarks.packing", "tensorflow", "keras")
        print("| rows | filled | rows a step | sequences/s | held-out losses |")
        print("|---|---|---|---|---|")
        for side in sides:
            losses = {n: float(v) for n, v in side.held_out().items()}
            print(
                f"| {side.name} | {side.filled:.1%} | {side.rows} | "
                f"{statistics.median(side.speeds):.2f} | "
                + ", ".join(f"{n} {v:.4f}" for n, v in losses.items())
                + " |"
            )
        first, *others = sides
        for side in others:
            ratios = [
                b / a for a, b in zip(first.speeds, side.speeds, strict=True)
            ]
            print(
                f"{side.name} over {first.name}: "
                f"{statistics.median(ratios):.2f} "
                f"({min(ratios):.2f} to {max(ratios):.2f})"
            )


if __name__ == "__main__":
    main()
