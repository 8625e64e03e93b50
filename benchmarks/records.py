"""Speed and memory of pre-training records, beside the plain algorithm.

python -m benchmarks.records --input='corpus/*.txt' --vocab_file=vocab.txt

Three parts:
1. records/s on one core from tokenised documents to a TFRecord file, without
   masks (dupe factor 1) and with static masks (dupe factor 10), against
   `reference_records` (lists, token by token truncation, tf.train.Example), in
   turns, medians. Beside each speed: number of records, share of random next
   sentences, mean length and masks a record of both, which must agree.
2. create_pretraining_data end to end: MB/s and peak resident memory of the
   largest process.
3. sequences/s that the reader gives to a training loop.
"""

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from benchmarks import reference_records as reference
from bert_tf.corpora.sources import files_of
from bert_tf.corpora.streams import Position
from bert_tf.files import expand_inputs
from bert_tf.records.corpus import read_blocks
from bert_tf.records.dataset import RecordFolder, training_batches
from bert_tf.records.instances import make_instances
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.record_file import write_records
from bert_tf.records.shards import plain_records, static_records
from bert_tf.records.token_blocks import Documents
from bert_tf.records.tokenized_corpus import tokenized_blocks
from bert_tf.text.tokenizer import BertTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True)
class Sample:
    """What was written, and how fast."""

    seconds: float
    records: int
    random_next: float
    length: float
    masks: float


def tokenized(
    inputs: list[pathlib.Path], tokenizer: BertTokenizer
) -> Documents:
    """The first block of a corpus, tokenised."""
    recipe = RecordsRecipe()
    files = files_of(inputs, recipe)
    blocks = read_blocks(files, Position(), 0, recipe)
    block, ids, lengths = next(tokenized_blocks(blocks, tokenizer, 1))
    return Documents(
        ids,
        np.concatenate([[0], np.cumsum(lengths)]),
        np.append(block.document_starts, len(lengths)),
    ).without_empty()


def as_lists(documents: Documents) -> list[list[list[int]]]:
    """The same documents as the plain algorithm wants them."""
    ids = documents.ids.tolist()
    starts = documents.sentence_starts.tolist()
    sentences = [ids[a:b] for a, b in zip(starts, starts[1:], strict=False)]
    ends = documents.document_starts.tolist()
    return [sentences[a:b] for a, b in zip(ends, ends[1:], strict=False)]


def score(path: str, seconds: float) -> Sample:
    """Reads what was written."""
    records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
    random_next = length = masks = 0.0
    for record in records:
        features = tf.train.Example.FromString(record).features.feature
        random_next += features["next_sentence_labels"].int64_list.value[0]
        mask = features["input_mask"].int64_list.value
        length += sum(mask) or len(features["input_ids"].int64_list.value)
        masks += sum(features["masked_lm_weights"].float_list.value)
    n = len(records)
    return Sample(seconds, n, random_next / n, length / n, masks / n)


def ours(
    documents: Documents, tokenizer: BertTokenizer, passes: int, path: str
) -> None:
    """Instances and records as the shard workers make them."""
    recipe = RecordsRecipe(static_masking=passes > 1, dupe_factor=passes)
    made = make_instances(documents, len(documents), recipe, "0")
    vocabulary = tokenizer.vocabulary
    if recipe.static_masking:
        records = static_records(documents.ids, made, recipe, vocabulary, "0")
    else:
        records = plain_records(documents.ids, made, vocabulary)
    write_records(path, records)


def theirs(
    documents: list[list[list[int]]],
    tokenizer: BertTokenizer,
    passes: int,
    path: str,
) -> None:
    """Instances and records the plain way; always with masks."""
    vocabulary = tokenizer.vocabulary
    ids = reference.Vocabulary(
        vocabulary.cls_id,
        vocabulary.sep_id,
        vocabulary.mask_id,
        len(vocabulary),
    )
    lengths = reference.Lengths()
    made = reference.all_instances(documents, ids, lengths, passes, seed=0)
    reference.write(path, made, lengths)


def timed(work: Callable[[str], None], path: str) -> Sample:
    """Runs the work once."""
    started = time.perf_counter()
    work(path)
    return score(path, time.perf_counter() - started)


def compare_builders(
    documents: Documents, tokenizer: BertTokenizer, repeats: int, folder: str
) -> None:
    """Part 1: both builders in turns, on one core."""
    lists = as_lists(documents)
    for passes in (1, 10):
        samples: dict[str, list[Sample]] = {"ours": [], "plain": []}
        works = {
            "ours": functools.partial(ours, documents, tokenizer, passes),
            "plain": functools.partial(theirs, lists, tokenizer, passes),
        }
        for _ in range(repeats):
            for name, work in works.items():
                samples[name].append(timed(work, f"{folder}/{name}"))
        speeds = {}
        for name, found in samples.items():
            speeds[name] = statistics.median(
                s.records / s.seconds for s in found
            )
            last = found[-1]
            print(
                f"dupe factor {passes:2}, {name:5}: {speeds[name]:9,.0f} "
                f"records/s; {last.records:,} records, "
                f"{last.random_next:.1%} random next, {last.length:.1f} "
                f"tokens, {last.masks:.2f} masks each"
            )
        print(f"  ratio {speeds['ours'] / speeds['plain']:.1f}")


def whole_tool(arguments: argparse.Namespace, folder: str) -> None:
    """Part 2: the command, and the largest process it had."""
    started = time.perf_counter()
    subprocess.run(
        [
            sys.executable,
            "-m",
            "tools.create_pretraining_data",
            f"--input={arguments.input}",
            f"--vocab_file={arguments.vocab_file}",
            f"--output_dir={folder}/records",
        ],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    seconds = time.perf_counter() - started
    report = json.loads(
        pathlib.Path(folder, "records", "records.json").read_text()
    )
    size = sum(file["size"] for file in report["inputs"]) / 1e6
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
    print(
        f"create_pretraining_data: {size:.1f} MB in {seconds:.1f} s with the "
        f"start of Python, {size / seconds:.2f} MB/s; largest process "
        f"{peak:,.0f} MB"
    )


def read(folder: str, batch_size: int, batches: int, repeats: int) -> None:
    """Part 3: batches as a training loop takes them."""
    records = RecordFolder.open(f"{folder}/records")
    speeds = []
    for seed in range(repeats):
        iterator = iter(training_batches(records, batch_size, seed))
        next(iterator)
        started = time.perf_counter()
        for _ in range(batches):
            next(iterator)
        speeds.append(batches * batch_size / (time.perf_counter() - started))
    print(
        f"reading with new masks: {statistics.median(speeds):,.0f} sequences/s "
        f"in batches of {batch_size}"
    )


def main() -> None:
    """Runs the three parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    tokenizer = BertTokenizer(arguments.vocab_file)
    inputs = expand_inputs(arguments.input)
    with tempfile.TemporaryDirectory() as folder:
        whole_tool(arguments, folder)
        read(folder, 64, 500, arguments.repeats)
        documents = tokenized(inputs, tokenizer)
        # The plain algorithm needs minutes for more.
        documents = documents.take(np.arange(min(len(documents), 100)))
        compare_builders(documents, tokenizer, arguments.repeats, folder)


if __name__ == "__main__":
    main()
