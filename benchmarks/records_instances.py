"""Instances and records without tokenising: a part of `records`."""

import dataclasses
import functools
import pathlib
import statistics
import time
from collections.abc import Callable

import tensorflow as tf

from benchmarks import reference_records as reference
from bert_tf.corpora.sources import files_of
from bert_tf.corpora.streams import Position
from bert_tf.records.corpus import read_blocks
from bert_tf.records.examples import plain_records, static_records
from bert_tf.records.instances import make_instances
from bert_tf.records.plan import RecordsTask
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.record_file import count_records, write_records
from bert_tf.records.token_blocks import Documents
from bert_tf.records.tokenized_corpus import tokenize_block
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPiece

_RECORDS_READ = 20_000


@dataclasses.dataclass(frozen=True)
class Sample:
    """What was written, and how fast."""

    seconds: float
    records: int
    random_next: float
    length: float
    masks: float

    def __str__(self) -> str:
        return (
            f"{self.records:,} records, {self.random_next:.1%} random next, "
            f"{self.length:.1f} tokens, {self.masks:.2f} masks each"
        )


def tokenized(inputs: list[pathlib.Path], vocabulary: Vocabulary) -> Documents:
    """The first block of a corpus, tokenised."""
    recipe = RecordsRecipe()
    tokenizer = WordPiece(vocabulary, TokenizerConfig.of())
    task = RecordsTask.of(recipe, tokenizer, files_of(inputs, recipe))
    block = next(read_blocks(task.files, Position(), 0, recipe))
    return tokenize_block(block, tokenizer.worker(), task)[0]


def as_lists(documents: Documents) -> list[list[list[int]]]:
    """The same documents as the plain algorithm wants them."""
    ids = documents.ids.tolist()
    starts = documents.sentence_starts.tolist()
    sentences = [ids[a:b] for a, b in zip(starts, starts[1:], strict=False)]
    ends = documents.document_starts.tolist()
    return [sentences[a:b] for a, b in zip(ends, ends[1:], strict=False)]


def like(paths: list[str], seconds: float = 0.0) -> Sample:
    """Counts what was written, and reads the first of each shuffled file."""
    records = [
        record
        for path in paths
        for record in tf.data.TFRecordDataset(path)
        .take(_RECORDS_READ // len(paths))
        .as_numpy_iterator()
    ]
    random_next = length = masks = 0.0
    for record in records:
        features = tf.train.Example.FromString(record).features.feature
        random_next += features["next_sentence_labels"].int64_list.value[0]
        mask = features["input_mask"].int64_list.value
        length += sum(mask) or len(features["input_ids"].int64_list.value)
        masks += sum(features["masked_lm_weights"].float_list.value)
    n = len(records)
    count = sum(map(count_records, paths))
    return Sample(seconds, count, random_next / n, length / n, masks / n)


def ours(
    documents: Documents, vocabulary: Vocabulary, passes: int, path: str
) -> None:
    """Instances and records as the shard workers make them."""
    recipe = RecordsRecipe(static_masking=passes > 1, dupe_factor=passes)
    packing = vocabulary.packing
    made = make_instances(documents, len(documents), recipe, packing, "0")
    if recipe.static_masking:
        records = static_records(made, recipe, vocabulary, "0")
    else:
        records = plain_records(made)
    write_records(path, records)


def theirs(
    documents: list[list[list[int]]],
    vocabulary: Vocabulary,
    passes: int,
    path: str,
) -> None:
    """Instances and records the plain way; always with masks."""
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
    return like([path], time.perf_counter() - started)


def compare_builders(
    documents: Documents, vocabulary: Vocabulary, repeats: int, folder: str
) -> None:
    """Both builders in turns, on one core."""
    lists = as_lists(documents)
    for passes in (1, 10):
        samples: dict[str, list[Sample]] = {"ours": [], "plain": []}
        works = {
            "ours": functools.partial(ours, documents, vocabulary, passes),
            "plain": functools.partial(theirs, lists, vocabulary, passes),
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
                f"instances, dupe factor {passes:2}, {name:5}: "
                f"{speeds[name]:9,.0f} records/s; {last}"
            )
        print(f"  ratio {speeds['ours'] / speeds['plain']:.1f}")
