"""Sequences a second that a reader gives, and seconds to the first batch.

One side of `records`.

python -m benchmarks.records_reading ours|original FOLDER SEED

"original" is the input pipeline of google-research/bert's run_pretraining.py
(input_fn_builder) in today's names: records parsed one by one, int64 cast to
int32, shuffled in a buffer of 100.
"""

import json
import sys
import time

import tensorflow as tf

from bert_tf.features import PRETRAINING_FEATURES
from bert_tf.records.dataset import RecordFolder, training_batches

BATCH_SIZE, SEQUENCES, WARM_UP = 64, 65_536, 4_096


def original_batches(folder: RecordFolder) -> tf.data.Dataset:
    """The original's batches of records with masks."""
    sizes = {
        "BS": [folder.max_seq_length],
        "BP": [folder.max_predictions_per_seq],
        "B": [1],
    }
    features = {
        feature.name: tf.io.FixedLenFeature(
            sizes[feature.axes],
            tf.float32 if feature.dtype == "float32" else tf.int64,
        )
        for feature in PRETRAINING_FEATURES
    }

    def parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
        example = tf.io.parse_single_example(record, features)
        return {
            name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
            for name, value in example.items()
        }

    paths = tf.constant([str(file.path) for file in folder.training_files])
    files = tf.data.Dataset.from_tensor_slices(paths).repeat()
    records = files.shuffle(len(folder.training_files)).interleave(
        tf.data.TFRecordDataset,
        cycle_length=4,
        num_parallel_calls=4,
        deterministic=False,
    )
    return (
        records.shuffle(100)
        .map(parse, num_parallel_calls=4)
        .batch(BATCH_SIZE, drop_remainder=True)
    )


def main() -> None:
    """Reads, and prints the speed as a line of JSON."""
    side, path, seed = sys.argv[1:]
    started = time.perf_counter()
    folder = RecordFolder.open(path)
    batches = (
        training_batches(folder, BATCH_SIZE, int(seed))
        if side == "ours"
        else original_batches(folder)
    )
    iterator = iter(batches)
    next(iterator)
    first = time.perf_counter() - started
    for _ in range(WARM_UP // BATCH_SIZE):
        next(iterator)
    clock, used = time.perf_counter(), time.process_time()
    for _ in range(SEQUENCES // BATCH_SIZE):
        next(iterator)
    clock, used = time.perf_counter() - clock, time.process_time() - used
    said = {
        "first_batch": first,
        "a_second": SEQUENCES / clock,
        "a_cpu_second": SEQUENCES / used,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
