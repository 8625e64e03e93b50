"""Projects pre-training on many accelerators from the parts of a step.

    python -m benchmarks.scaling --records=DIR

The parts follow from the model or are measured here: the floating-point
operations of a sequence, the bytes of the gradients that are added up over the
accelerators, and the sequences a second that one processor core reads and
masks. What they take on accelerators follows from the flags, whose defaults are
assumptions about machines with eight H200: nothing of the table was run on one.
The loop adds gradients up after the backward pass, so that time is not hidden
behind the computation, and is not here; input is.
"""

import time

from absl import app, flags

from benchmarks import comparison
from bert_tf.config import BertConfig
from bert_tf.records.dataset import RecordFolder, training_batches

_SIZE = flags.DEFINE_string("size", "base", "Size of the model.")
_VOCABULARY = flags.DEFINE_integer("vocab_size", 30522, "Tokens.")
_RECORDS = flags.DEFINE_string(
    "records", None, "Folder of records without masks.", required=True
)
_BATCH = flags.DEFINE_integer("batch", 64, "Sequences on each accelerator.")
_PEAK = flags.DEFINE_float("peak_tflops", 989.0, "Of one, dense bfloat16.")
_UTILISATION = flags.DEFINE_float(
    "utilisation", 0.4, "Share of the peak that a step on one reaches."
)
_INSIDE = flags.DEFINE_float(
    "inside_gb_per_s", 400.0, "Between the accelerators of a machine, each way."
)
_BETWEEN = flags.DEFINE_float(
    "between_gb_per_s", 50.0, "Between two machines, each way."
)
_OF_A_MACHINE = flags.DEFINE_integer("accelerators_of_a_machine", 8, "")
_CORES = flags.DEFINE_integer(
    "cores", 8, "Processor cores that read records for each accelerator."
)
_COUNTS = flags.DEFINE_list("accelerators", ["1", "8", "64"], "How many.")
_SECONDS = 10.0


def training_flops(config: BertConfig, length: int, predictions: int) -> float:
    """Operations of the training of one sequence.

    6 L (4 H^2 + 2 H F) + 12 L H S for a token, and 6 (H^2 + H V) for a masked
    one: two for each multiplication, forward once and backward twice.
    """
    hidden, layers = config.hidden_size, config.num_hidden_layers
    products = 4 * hidden**2 + 2 * hidden * config.intermediate_size
    token = 6 * layers * products + 12 * layers * hidden * length
    masked = 6 * (hidden**2 + hidden * config.vocab_size)
    return length * token + predictions * masked


def parameters(config: BertConfig) -> int:
    """Weights of the model with both pre-training heads."""
    from bert_tf.pretraining.pretrainer import BertPretrainer

    return BertPretrainer(config).count_params()


def reading_speed(folder: RecordFolder, batch: int) -> float:
    """Sequences a second that one processor core reads and masks."""
    batches = iter(training_batches(folder, batch, seed=1))
    for _ in range(20):
        next(batches)
    started, used = time.monotonic(), time.process_time()
    count = 0
    while time.monotonic() - started < _SECONDS:
        next(batches)
        count += batch
    return count / (time.process_time() - used)


def reduction_seconds(size: float, count: int) -> float:
    """Adding gradients up in rings, inside the machines and between them.

    Args:
      size: bytes of the gradients.
      count: accelerators.
    """
    inside = min(count, _OF_A_MACHINE.value)
    machines = -(-count // _OF_A_MACHINE.value)
    seconds = 2 * (inside - 1) / inside * size / (_INSIDE.value * 1e9)
    passed_on = 2 * (machines - 1) / machines * size
    return seconds + passed_on / (_BETWEEN.value * 1e9)


def main(_: list[str]) -> None:
    """Prints the parts, the assumptions and the table."""
    folder = RecordFolder.open(_RECORDS.value)
    config = BertConfig.from_size(_SIZE.value, _VOCABULARY.value)
    length, predictions = folder.max_seq_length, folder.max_predictions_per_seq
    flops = training_flops(config, length, predictions)
    size = 4.0 * parameters(config)
    read = reading_speed(folder, _BATCH.value)
    speed = _PEAK.value * 1e12 * _UTILISATION.value / flops
    comparison.show_machine("benchmarks.scaling", "tensorflow")
    print(
        f"measured or counted: {flops / 1e9:.1f} GFLOP a sequence of {length} "
        f"tokens, {size / 1e6:.0f} MB of float32 gradients, {read:,.0f} "
        "sequences/s read by a core"
    )
    print(
        f"assumed: {_UTILISATION.value:.0%} of {_PEAK.value:g} TFLOP/s, "
        f"{_INSIDE.value:g} GB/s inside a machine of {_OF_A_MACHINE.value} and "
        f"{_BETWEEN.value:g} GB/s between machines, {_BATCH.value} sequences "
        f"and {_CORES.value} cores an accelerator, nothing overlapped but input"
    )
    print("| accelerators | compute ms | all-reduce ms | input ms |", end="")
    print(" sequences/s | efficiency |\n|---|---|---|---|---|---|")
    compute = _BATCH.value / speed
    reading = _BATCH.value / (read * _CORES.value)
    for count in map(int, _COUNTS.value):
        reducing = reduction_seconds(size, count) if count > 1 else 0.0
        step = max(compute + reducing, reading)
        print(
            f"| {count} | {1e3 * compute:.1f} | {1e3 * reducing:.1f} | "
            f"{1e3 * reading:.1f} | {count * _BATCH.value / step:,.0f} | "
            f"{compute / step:.0%} |"
        )


if __name__ == "__main__":
    app.run(main)
