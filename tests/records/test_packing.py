"""Packed rows: nothing lost, nothing cut, little room left."""

import collections
import dataclasses
import json
import shutil
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from records_corpus import VOCABULARY, parsed, sequences_of

from bert_tf.errors import UserError
from bert_tf.records import masking
from bert_tf.records.dataset import RecordFolder, parse_packed
from bert_tf.records.dynamic_masking import draw_noise, mask_packed_rows
from bert_tf.records.examples import pack_rows
from bert_tf.records.masking import MaskingRule, predictions_by_length
from bert_tf.records.recipe import RecordsRecipe

Batch = dict[str, np.ndarray]
LENGTHS = st.integers(5, 200).flatmap(
    lambda longest: st.tuples(
        st.lists(st.integers(1, longest), max_size=120), st.just(longest)
    )
)


def plain_best_fit(lengths: list[int], row_length: int) -> list[list[int]]:
    """The lengths in each row, one sequence after the other."""
    rows: list[list[int]] = []
    for length in sorted(lengths, reverse=True):
        room = [row_length - sum(row) for row in rows]
        fits = [n for n, left in enumerate(room) if left >= length]
        if not fits:
            rows.append([length])
        else:
            rows[min(fits, key=lambda n: room[n])].append(length)
    return rows


@given(case=LENGTHS, seed=st.integers(0, 9))
def test_rows_are_those_of_plain_best_fit(case, seed) -> None:
    lengths, longest = np.array(case[0], dtype=np.int64), case[1]
    rows = pack_rows(lengths, longest, str(seed))
    assert sorted(rows.sequences.tolist()) == list(range(len(lengths)))
    parts = np.split(rows.sequences, rows.row_starts[1:-1])
    for part in parts if len(rows) else []:
        assert len(part)
        assert (np.diff(part) > 0).all()
        assert lengths[part].sum() <= longest
    # Of rows with equal room either may be taken.
    found = sorted(int(lengths[part].sum()) for part in parts if len(part))
    plain = plain_best_fit(case[0], longest)
    assert found == sorted(map(sum, plain))
    assert rows.largest_sum(lengths) == max(found, default=0)
    assert rows.largest_sum(np.ones_like(lengths)) == max(map(len, parts))


def test_the_order_of_rows_has_no_bias_of_length() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 513, 20_000)
    rows = pack_rows(lengths, 512, "x")
    sizes = np.diff(rows.row_starts)
    place = np.arange(len(rows))
    # 8,000 rows or more: a standard deviation is 0.011.
    assert abs(np.corrcoef(place, sizes)[0, 1]) < 0.05
    same, other = (pack_rows(lengths, 512, seed) for seed in "xy")
    assert (same.sequences == rows.sequences).all()
    assert (other.sequences != rows.sequences).any()


def test_every_sequence_of_the_unpacked_records_is_there(build) -> None:
    folders = build(packing=True), build()
    files = [each.training_files + each.held_out_files for each in folders]
    for pair in zip(*files, strict=True):
        found = []
        for file in pair:
            rows = parsed(file.path)
            assert max(len(row["input_ids"]) for row in rows) <= 64
            found.append([s for row in rows for s in sequences_of(row)])
        assert found[0] != found[1]
        assert collections.Counter(found[0]) == collections.Counter(found[1])


def test_the_report_and_the_manifest_say_how_full_they_are(workshop) -> None:
    report = str(workshop.build(packing=True, max_seq_length=64))
    folder = RecordFolder.open(workshop.folder / "out")
    packing = folder.packing
    rows, held_out = (
        [row for file in files for row in parsed(file.path)]
        for files in (folder.training_files, folder.held_out_files)
    )
    counts = [len(row["sequence_lengths"]) for row in rows + held_out]
    assert packing.most_sequences == max(counts)
    assert packing.sequences == sum(counts[: len(rows)])
    assert packing.held_out_sequences == sum(counts[len(rows) :])
    tokens = sum(len(row["input_ids"]) for row in rows)
    assert packing.filled == pytest.approx(tokens / len(rows) / 64)
    assert packing.filled > 0.9
    predictions = predictions_by_length(folder.recipe)
    assert packing.most_predictions == max(
        predictions[row["sequence_lengths"]].sum() for row in rows + held_out
    )
    training = f"{packing.sequences:,} training sequences in {len(rows):,}"
    assert training in report
    assert f"packed records are filled {packing.filled:.1%}, with" in report


def check_places(batch: Batch) -> None:
    """Each of the features that say where the sequences are."""
    segments = batch["segment_ids"].any()
    for row in range(len(batch["input_ids"])):
        ids = batch["sequence_ids"][row]
        count = int(batch["input_mask"][row].sum())
        assert (batch["input_mask"][row] == (np.arange(len(ids)) < count)).all()
        assert (ids[:count] > 0).all()
        assert not ids[count:].any()
        assert set(np.diff(ids[:count])) <= {0, 1}
        sequences = ids.max()
        labels = batch["next_sentence_labels"][row]
        # Whole sentences have no labels.
        assert (labels[:sequences] >= 0).all() == bool(segments)
        assert (labels[sequences:] == -1).all()
        starts = batch["cls_positions"][row]
        assert not starts[sequences:].any()
        for number in range(sequences):
            places = np.flatnonzero(ids == number + 1)
            assert places[0] == starts[number]
            position_ids = batch["position_ids"][row, places]
            assert (position_ids == np.arange(len(places))).all()
            assert batch["input_ids"][row, places[0]] == VOCABULARY.cls_id
            assert batch["input_ids"][row, places[-1]] == VOCABULARY.sep_id
        for name in ("input_ids", "segment_ids", "position_ids"):
            assert not batch[name][row, count:].any()


@pytest.fixture(
    scope="module",
    params=[
        {},
        {"whole_word_mask": True},
        {"sequences": "document_sentences", "masked_ngram_length": 3},
    ],
    ids=["tokens", "words", "ngrams"],
)
def draw(
    build: Callable, request: pytest.FixtureRequest
) -> tuple[RecordFolder, Callable[[list[int], int], tuple[Batch, Batch]]]:
    """Makes a batch of some records of a folder, masked, and its noise."""
    folder = build(packing=True, **request.param)
    rule = MaskingRule.from_recipe(folder.recipe, folder.vocabulary)
    most = folder.max_predictions_per_seq
    row_rule = dataclasses.replace(rule, max_predictions_per_seq=most)
    paths = [str(file.path) for file in folder.training_files]
    records = np.array(list(tf.data.TFRecordDataset(paths).as_numpy_iterator()))

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string),
            tf.TensorSpec([2], tf.int64),
        ]
    )
    def parse(records: tf.Tensor, seed: tf.Tensor) -> tuple[dict, dict]:
        width = folder.max_seq_length
        noise = draw_noise(tf.size(records), width, seed, row_rule)
        rows = parse_packed(records, folder)
        return mask_packed_rows(rows, noise, rule), noise._asdict() | {
            "input_ids": rows["input_ids"]
        }

    def draw(numbers: list[int], seed: int) -> tuple[Batch, Batch]:
        chosen = records[np.array(numbers) % len(records)]
        made = parse(tf.constant(chosen), tf.constant([seed, 0], tf.int64))
        return tf.nest.map_structure(lambda value: value.numpy(), made)

    return folder, draw


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    numbers=st.lists(st.integers(0, 10_000), min_size=1, max_size=12),
)
def test_every_sequence_is_masked_as_if_it_were_alone(draw, seed, numbers):
    """The masks are those of the rule in NumPy, with the same noise."""
    folder, draw_batch = draw
    batch, drawn = draw_batch(numbers, seed)
    check_places(batch)
    rule = MaskingRule.from_recipe(folder.recipe, folder.vocabulary)
    shape = batch["masked_lm_ids"].shape
    chosen = np.full(shape, folder.max_seq_length)
    for row, ids in enumerate(drawn["input_ids"]):
        places: list[int] = []
        for number in range(1, batch["sequence_ids"][row].max() + 1):
            (here,) = np.nonzero(batch["sequence_ids"][row] == number)
            order = drawn["order"][row, here]
            one = masking.choose_tokens(
                *(ids[None, here], np.array([len(here)])),
                *(order[None], drawn["ngram"][None, row, here], rule),
            )
            places += (one[one < len(here)] + here[0]).tolist()
        chosen[row, : len(places)] = places
    expected = masking.replace_tokens(
        drawn["input_ids"], chosen, drawn["action"], drawn["random_ids"], rule
    )
    for name, values in expected.items():
        assert (batch[name] == values).all(), name


def test_folders_of_before_are_read_as_they_were(build, tmp_path) -> None:
    """Neither their recipe nor their manifest speaks of packing."""
    now = build()
    shutil.copytree(now.path, tmp_path, dirs_exist_ok=True)
    for name in ("records.json", "recipe.json"):
        values = json.loads((tmp_path / name).read_text())
        del values["packing"]
        (tmp_path / name).write_text(json.dumps(values))
    before = RecordFolder.open(tmp_path)
    names = {file.path.name for file in before.training_files}
    assert names == {file.path.name for file in now.training_files}
    same = {"path", "training_files", "held_out_files", "vocabulary"}
    for field in RecordFolder.__dataclass_fields__.keys() - same:
        assert getattr(before, field) == getattr(now, field)


def test_a_manifest_that_does_not_fit_the_recipe(build, tmp_path) -> None:
    with pytest.raises(UserError, match="^`packing`=True and .* one sequ"):
        RecordsRecipe(packing=True, static_masking=True)
    shutil.copytree(build(packing=True).path, tmp_path, dirs_exist_ok=True)
    manifest = tmp_path / "records.json"
    values = json.loads(manifest.read_text())
    del values["packing"]["filled"]
    manifest.write_text(json.dumps(values))
    with pytest.raises(UserError, match="records.json: damaged manifest"):
        RecordFolder.open(tmp_path)
    del values["packing"]
    manifest.write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"records.json: .* packing is True;"):
        RecordFolder.open(tmp_path)
