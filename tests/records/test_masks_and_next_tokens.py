"""The same records read with other masks, or with the next tokens instead."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed_batches import alone
from records_corpus import VOCABULARY, Batch, joined, take

from bert_tf.errors import UserError
from bert_tf.records.dataset import (
    RecordFolder,
    held_out_batches,
    training_batches,
)
from bert_tf.records.masking import most_predictions, predictions_by_length
from bert_tf.records.recipe import RecordsRecipe
from tests.user_errors import error_of

MASKS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


def test_masks_are_those_of_records_made_with_these_settings(build) -> None:
    """Records without masks do not depend on the settings of masks."""
    changes = {"masked_lm_prob": 0.4, "mask_token_rate": 0.5}
    changes |= {"random_token_rate": 0.3}
    made = build(whole_word_mask=True, max_predictions_per_seq=26, **changes)
    read = build(whole_word_mask=True).with_masks(**changes)
    for kind in ("training_files", "held_out_files"):
        files = zip(getattr(read, kind), getattr(made, kind), strict=True)
        for ours, theirs in files:
            assert ours.path.read_bytes() == theirs.path.read_bytes()
    names = ("path", "training_files", "held_out_files")
    places = {name: getattr(made, name) for name in names}
    assert dataclasses.replace(read, **places) == made


@pytest.mark.parametrize(
    "changes",
    [
        {"masked_lm_prob": 0.99},
        {"masked_lm_prob": 0.5, "max_predictions_per_seq": 3},
        {"max_predictions_per_seq": 1},
    ],
    ids=str,
)
def test_packed_rows_lose_no_prediction(build, changes) -> None:
    folder = build(packing=True).with_masks(**changes)
    counts = predictions_by_length(folder.recipe)
    full = changes.get("max_predictions_per_seq", round(64 * 0.99))
    assert counts.max() == full
    (rows,) = take(held_out_batches(folder, folder.num_held_out), 1)
    assert rows["masked_lm_ids"].shape[1] == folder.max_predictions_per_seq
    one = alone(rows)
    lengths = one["input_mask"].sum(axis=1)
    # [CLS] and both [SEP] are no candidates.
    expected = np.minimum(counts[lengths], lengths - 3)
    assert (one["masked_lm_weights"].sum(axis=1) == expected).all()


@given(
    lengths=st.lists(st.integers(5, 60), min_size=1, max_size=30),
    room=st.integers(0, 60),
    prob=st.floats(0, 1, exclude_min=True, exclude_max=True),
    most=st.integers(1, 60),
)
def test_no_row_needs_more_predictions_than_the_bound(
    lengths: list[int], room: int, prob: float, most: int
) -> None:
    width = sum(lengths) + room
    recipe = RecordsRecipe(
        max_seq_length=width,
        max_predictions_per_seq=min(most, width),
        masked_lm_prob=prob,
    )
    needed = predictions_by_length(recipe)[lengths].sum()
    bound = most_predictions(recipe, len(lengths))
    assert needed <= bound <= width
    # At most what rounding may add.
    assert bound <= width * prob + len(lengths) + 1


def test_a_mix_alone_changes_only_what_the_tokens_become(build) -> None:
    folder = build(packing=True)
    assert folder.with_masks() is folder
    mixed = folder.with_masks(mask_token_rate=0.0, random_token_rate=0.0)
    assert mixed.max_predictions_per_seq == folder.max_predictions_per_seq
    assert mixed.packing == folder.packing
    (masked,) = take(training_batches(folder, 8, 5), 1)
    (same,) = take(training_batches(mixed, 8, 5), 1)
    for name in masked.keys() - {"input_ids"}:
        assert (masked[name] == same[name]).all(), name
    used = same["masked_lm_weights"] > 0
    chosen = np.nonzero(used)[0], same["masked_lm_positions"][used]
    assert (masked["input_ids"][chosen] == VOCABULARY.mask_id).any()
    restored = masked["input_ids"].copy()
    restored[chosen] = same["masked_lm_ids"][used]
    assert (restored == same["input_ids"]).all()


def test_masks_that_cannot_be_changed(build) -> None:
    folder, static = build(), build(static_masking=True)
    foreign = dataclasses.replace(static, recipe=None, tokenizer=None)
    for records in (static, foreign):
        line = error_of(records.with_masks, mask_token_rate=1.0)
        assert line.startswith("`mask_token_rate`=1.0: the masks of ")
        assert "make records without static_masking" in line
        line = error_of(records.with_next_tokens)
        assert line.startswith(f"{records.path}: its records hold masked")
        assert records.with_masks() is records
    line = error_of(folder.with_next_tokens().with_masks, masked_lm_prob=0.4)
    assert line.startswith("`masked_lm_prob`=0.4: left-to-right")
    for changes, start in (
        ({"masked_lm_prob": 1.0}, "masked_lm_prob is 1.0; it takes more th"),
        ({"masked_lm_prob": float("nan")}, "masked_lm_prob is nan"),
        ({"max_predictions_per_seq": 65}, "max_predictions_per_seq is 65; it "),
        ({"mask_token_rate": 1.0}, "mask_token_rate is 1.0; it takes 0 to 0.9"),
    ):
        with pytest.raises(UserError, match=f"^{start}"):
            folder.with_masks(**changes)


@pytest.fixture(params=["plain", "packed"])
def next_tokens(build, request) -> RecordFolder:
    changes = {"packing": True} if request.param == "packed" else {}
    return build(**changes).with_next_tokens()


def check_next_tokens(batch: Batch) -> None:
    """Every sequence, on its own, predicts all its tokens but the first."""
    packed = "sequence_ids" in batch
    width = batch["input_ids"].shape[1]
    assert batch["masked_lm_ids"].shape[1] == width - 1
    used = batch["masked_lm_weights"] > 0
    assert not batch["masked_lm_positions"][~used].any()
    assert not batch["masked_lm_ids"][~used].any()
    assert set(np.unique(batch["masked_lm_weights"])) <= {0.0, 1.0}
    one = alone(batch) if packed else batch
    assert (one["masked_lm_ids"] != VOCABULARY.cls_id).all()
    count = 0
    for row, ids in enumerate(one["input_ids"]):
        size = int(one["input_mask"][row].sum())
        if not size:
            continue
        assert ids[0] == VOCABULARY.cls_id
        assert ids[size - 1] == VOCABULARY.sep_id
        places, labels, weights = (one[name][row] for name in MASKS)
        assert weights.tolist() == [1.0] * (size - 1) + [0.0] * (width - size)
        assert places[: size - 1].tolist() == list(range(size - 1))
        assert labels[: size - 1].tolist() == ids[1:size].tolist()
        count += size - 1
    assert count == used.sum()


def test_every_token_predicts_the_next_one_of_its_sequence(next_tokens) -> None:
    check_next_tokens(take(training_batches(next_tokens, 8, seed=2), 1)[0])
    held_out = list(held_out_batches(next_tokens, 7).as_numpy_iterator())
    whole = joined(held_out)
    check_next_tokens(whole)
    padding = whole["next_sentence_labels"][next_tokens.num_held_out :]
    assert (padding == -1).all()
    assert not whole["masked_lm_weights"][next_tokens.num_held_out :].any()
    assert list(held_out[0]) == [f.name for f in next_tokens.features]
    for feature in next_tokens.features:
        assert held_out[0][feature.name].dtype == feature.dtype
