import dataclasses
import pathlib
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import tensorflow as tf
from packed_batches import alone
from records_corpus import (
    TOKENS,
    VOCABULARY,
    Batch,
    documents,
    joined,
    parsed,
    sequences_of,
    take,
)

from benchmarks import reference_records as reference
from bert_tf.errors import UserError
from bert_tf.features import PRETRAINING_FEATURES
from bert_tf.records import dataset, reading_order
from bert_tf.records.dataset import (
    RecordFolder,
    held_out_batches,
    reading_errors,
    training_batches,
)
from bert_tf.records.record_file import RecordFile
from bert_tf.sharding import WHOLE, Shard

HALVES = Shard(0, 2), Shard(1, 2)
KINDS = {
    "plain": {},
    "static": {"static_masking": True, "dupe_factor": 2},
    "packed": {"packing": True},
    "sentences": {"sequences": "full_sentences"},
    "packed_sentences": {"sequences": "document_sentences", "packing": True},
}


@pytest.fixture(params=KINDS)
def folder(build, request) -> RecordFolder:
    return build(**KINDS[request.param])


def equal(a: list[Batch], b: list[Batch]) -> bool:
    assert [x.keys() for x in a] == [x.keys() for x in b]
    pairs = zip(a, b, strict=True)
    return all((x[name] == y[name]).all() for x, y in pairs for name in x)


def restored(batch: Batch) -> list[tuple[int, ...]]:
    """Every sequence without masks and padding, with segments and label."""
    if "sequence_ids" in batch:
        batch = alone(batch)
    rows = []
    for row in range(len(batch["input_ids"])):
        one = {name: value[row] for name, value in batch.items()}
        ids = one["input_ids"].copy()
        used = one["masked_lm_weights"] == 1
        assert used.any()
        ids[one["masked_lm_positions"][used]] = one["masked_lm_ids"][used]
        size = one["input_mask"].sum()
        assert one["input_mask"][:size].all()
        assert not ids[size:].any()
        assert not one["segment_ids"][size:].any()
        label = int(one["next_sentence_labels"])
        rows.append((*ids[:size], one["segment_ids"].sum(), label))
    return rows


def written(files: Iterable[RecordFile]) -> list[tuple[float, ...]]:
    """The sequences of record files, with segments and label."""
    rows = (row for file in files for row in parsed(file.path))
    return [sequence for row in rows for sequence in sequences_of(row)]


def check_table(batches: tf.data.Dataset, folder: RecordFolder) -> None:
    """Batches of one row have the names, shapes and types of the features."""
    sizes = {
        "B": 1,
        "S": 64,
        "P": folder.max_predictions_per_seq,
        "K": folder.packing and folder.packing.most_sequences,
    }
    assert list(batches.element_spec) == [f.name for f in folder.features]
    for feature in folder.features:
        spec = batches.element_spec[feature.name]
        assert spec.shape.as_list() == [sizes[axis] for axis in feature.axes]
        assert spec.dtype.name == feature.dtype


def test_an_epoch_holds_every_record_once_with_new_masks(folder) -> None:
    """Batches of one row, so that the ends of epochs are visible."""
    count, training = folder.num_records, training_batches(folder, 1, seed=3)
    check_table(training, folder)
    assert training.cardinality() == tf.data.INFINITE_CARDINALITY
    held_out = held_out_batches(folder, 1)
    check_table(held_out, folder)
    assert len(held_out) == folder.num_held_out
    batches = take(training, 2 * count)
    first, second = (
        [row for batch in epoch for row in restored(batch)]
        for epoch in (batches[:count], batches[count:])
    )
    assert first != second
    assert sorted(first) == sorted(second)
    if folder.static:
        return
    in_files = written(folder.training_files)
    assert sorted(first) == sorted(in_files)
    assert first != in_files
    masks: dict[tuple[int, ...], set[bytes]] = {}
    for batch in batches:
        if len(rows := restored(batch)) == 1 and len(rows[0]) > 30:
            drawn = batch["masked_lm_positions"].tobytes()
            masks.setdefault(rows[0], set()).add(drawn)
    # Few of the packed rows hold one sequence.
    assert len(masks) > 20 or folder.packing
    assert np.mean([len(found) for found in masks.values()]) > 1.95


# Static masks are read in the same order.
@pytest.mark.parametrize("folder", ["plain", "packed"], indirect=True)
def test_batch_k_is_the_same_wherever_one_starts(folder, monkeypatch) -> None:
    """Across the ends of files, windows and epochs."""
    monkeypatch.setattr(reading_order, "WINDOW", 16)
    size = 7
    count = 2 * folder.num_records // size + 3
    whole = take(training_batches(folder, size, seed=5), count)
    start = folder.num_records // size - 1
    resumed = take(training_batches(folder, size, 5, start), 4)
    assert equal(resumed, whole[start : start + 4])
    rows = [row for batch in whole for row in restored(batch)]
    packing = folder.packing
    count = packing.sequences if packing else folder.num_records
    assert sorted(rows[:count]) == sorted(rows[count : 2 * count])


def test_seeds_decide_records_order_and_masks(build: Callable) -> None:
    files = [build(**s).training_files[0].path for s in ({}, {"seed": 1})]
    assert files[0].read_bytes() != files[1].read_bytes()
    one, two = (take(training_batches(build(), 8, seed), 1) for seed in (1, 2))
    assert not equal(one, two)
    assert restored(one[0]) != restored(two[0])


@pytest.mark.parametrize("folder", ["plain", "packed"], indirect=True)
def test_held_out_records_come_once_with_the_same_masks(folder, monkeypatch):
    monkeypatch.setattr(dataset, "_HELD_OUT_ROWS", 32)
    assert folder.num_held_out > 32
    count, everything = folder.num_held_out, []
    for batch_size in (7, 1000):
        batches = held_out_batches(folder, batch_size)
        whole = joined(list(batches.as_numpy_iterator()))
        assert len(whole["input_ids"]) == count + -count % batch_size
        padding = {name: values[count:] for name, values in whole.items()}
        assert (padding.pop("next_sentence_labels") == -1).all()
        assert not any(values.any() for values in padding.values())
        everything.append({name: v[:count] for name, v in whole.items()})
    assert equal(everything[:1], everything[1:])
    assert restored(everything[0]) == written(folder.held_out_files)


def test_workers_read_their_own_parts_of_the_same_batches(build, monkeypatch):
    monkeypatch.setattr(reading_order, "WINDOW", 16)
    folder = build()
    total, start = folder.num_records // 16 + 4, 3
    (whole, *own) = (
        take(training_batches(folder, 16, 5, first, 2, shard), total - first)
        for first, shard in ((0, WHOLE), (start, HALVES[0]), (start, HALVES[1]))
    )
    assert equal([joined(p) for p in zip(*own, strict=True)], whole[start:])
    (whole, *own) = (
        list(held_out_batches(folder, 24, shard).as_numpy_iterator())
        for shard in (WHOLE, *HALVES)
    )
    assert equal([joined(p) for p in zip(*own, strict=True)], whole)


@pytest.mark.parametrize("streams", [2, 3, 7])
def test_streams_read_every_record_once_an_epoch(build, monkeypatch, streams):
    monkeypatch.setattr(reading_order, "WINDOW", 16)
    folder = build()
    counts = [file.records for file in folder.training_files]
    for epoch in (0, 1):
        seen = []
        for stream in range(streams):
            shard = Shard(stream, streams)
            part = shard.part(folder.num_records)
            start = epoch * (part.stop - part.start)
            for span in reading_order.spans(folder, 5, shard, start):
                if span.epoch != epoch:
                    break
                seen += [(span.file, n) for n in range(span.begin, span.end)]
        assert sorted(seen) == [
            (file, n) for file, count in enumerate(counts) for n in range(count)
        ]


def test_streams_and_records_that_do_not_fit(build: Callable) -> None:
    folder = build()
    none = dataclasses.replace(folder, training_files=())
    few = folder.num_records + 1
    for records, size, streams, shard, line in (
        (folder, 8, 3, Shard(0, 2), "data_streams=3: is not a multiple of the"),
        (folder, 9, 2, Shard(0, 2), "a batch of 9 sequences is not a multiple"),
        (folder, few, few, Shard(), f"holds {few - 1} training records, fewer"),
        (none, 4, 1, Shard(), "holds no training records"),
    ):
        with pytest.raises(UserError, match=line):
            training_batches(records, size, 5, 0, streams, shard)


@pytest.fixture
def original(tmp_path: pathlib.Path) -> tuple[pathlib.Path, list]:
    """Records as google-research/bert writes them, in two files."""
    lengths = reference.Lengths(max_seq_length=32, max_predictions_per_seq=5)
    ids = reference.Vocabulary(
        VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.mask_id, len(TOKENS)
    )
    made = reference.all_instances(documents(12), ids, lengths, 1, seed=1)
    half = len(made) // 2
    reference.write(str(tmp_path / "a.tfrecord"), made[:half], lengths)
    reference.write(str(tmp_path / "b.tfrecord"), made[half:], lengths)
    return tmp_path, [reference.features(i, lengths) for i in made]


def test_records_of_the_original_are_read(original) -> None:
    path, made = original
    for name in (path, path / "*.tfrecord"):
        folder = RecordFolder.open(name)
        assert folder.static
        assert folder.tokenizer is folder.recipe is None
        sizes = (folder.max_seq_length, folder.max_predictions_per_seq)
        assert sizes == (32, 5)
        assert (folder.num_records, folder.num_held_out) == (len(made), 0)
    (batch,) = take(training_batches(folder, len(made), seed=1), 1)

    def rows(columns: Iterable[dict[str, object]]) -> list[str]:
        return sorted(
            repr([np.ravel(row[f.name]).tolist() for f in PRETRAINING_FEATURES])
            for row in columns
        )

    places = range(len(made))
    read = ({name: v[row] for name, v in batch.items()} for row in places)
    assert rows(read) == rows(made)
    assert list(held_out_batches(folder, 8)) == []


def test_folders_that_cannot_be_opened(original, tmp_path) -> None:
    path, _ = original
    empty = tmp_path / "empty"
    empty.mkdir()
    for name in (empty, tmp_path / "none", tmp_path / "*.nothing"):
        with pytest.raises(UserError, match="no pre-training records there"):
            RecordFolder.open(name)
    other = tf.train.Example()
    other.features.feature["label"].int64_list.value.append(1)
    with tf.io.TFRecordWriter(str(empty / "x.tfrecord")) as writer:
        writer.write(other.SerializeToString())
    with pytest.raises(UserError, match=r"x\.tfrecord: .*lack input_ids"):
        RecordFolder.open(empty)
    whole = (path / "b.tfrecord").read_bytes()
    (path / "b.tfrecord").write_bytes(whole[:-3])
    with pytest.raises(UserError, match=r"b\.tfrecord: truncated in record"):
        RecordFolder.open(path)
    (path / "b.tfrecord").write_bytes(b"")
    assert RecordFolder.open(path).num_records
    lengths = reference.Lengths(max_seq_length=40, max_predictions_per_seq=5)
    ids = reference.Vocabulary(2, 3, 4, len(TOKENS))
    longer = reference.all_instances(documents(3), ids, lengths, 1, seed=1)
    reference.write(str(path / "b.tfrecord"), longer, lengths)
    with pytest.raises(UserError, match=r"b\.tfrecord: .*other lengths"):
        RecordFolder.open(path)


@pytest.fixture
def copied(build: Callable, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of a folder, to be damaged."""
    for file in pathlib.Path(build().path).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_damaged_folders_are_named(copied: pathlib.Path) -> None:
    name = copied / "records-00001-of-00004.tfrecord"
    whole = name.read_bytes()
    name.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=r"records-00001.*: truncated"):
        RecordFolder.open(copied)
    name.unlink()
    with pytest.raises(UserError, match=r"records-00001.*: missing"):
        RecordFolder.open(copied)
    name.write_bytes(whole)
    for file, old, new, message in (
        ("records.json", '"training"', '"trained"', "damaged manifest"),
        ("records.json", 'version": 1', 'version": 9', "format_version is 9"),
        ("vocab.txt", "bal\n", "new\n", "not the vocabulary that"),
    ):
        before = (copied / file).read_text()
        (copied / file).write_text(before.replace(old, new))
        with pytest.raises(UserError, match=message):
            RecordFolder.open(copied)
        (copied / file).write_text(before)


def test_damage_met_while_reading_is_named(copied: pathlib.Path) -> None:
    folder = RecordFolder.open(copied)
    name = folder.training_files[1].path
    data = bytearray(name.read_bytes())
    data[len(data) // 2] ^= 1
    name.write_bytes(data)
    batches = training_batches(folder, 8, seed=1)
    with (
        pytest.raises(UserError, match=r"records-00001.*: record \d+ is dam"),
        reading_errors(folder),
    ):
        take(batches, folder.num_records // 8)
    with (
        pytest.raises(UserError, match="a record file is damaged"),
        reading_errors(),
    ):
        take(batches, folder.num_records // 8)
    with pytest.raises(ZeroDivisionError), reading_errors(folder):
        _ = 1 / 0
