"""Heads are placed by the names of their labels."""

import dataclasses

import numpy as np
import pytest

from bert_tf.checkpoints import Checkpoint, place_labels
from bert_tf.checkpoints.checkpoint import MULTI_LABEL, SINGLE_LABEL
from tests.hugging_face_models import random_arrays, tiny_config

TAGS = ("O", "B-MISC", "I-MISC", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC")
HEAD = "classifier"
WEIGHTS = ("output_weights", "output_bias")


def checkpoint_of(labels, rows: int, model_type: str = "bert") -> Checkpoint:
    config = tiny_config()
    if model_type != "bert":
        config = type(config).from_dict(
            config.to_dict() | {"model_type": model_type}, "test"
        )
    arrays = random_arrays(config, ("pooler", HEAD), labels=rows)
    return Checkpoint(config, arrays, labels=labels, source="model")


@pytest.mark.parametrize(
    ("names", "rows", "labels", "order", "line"),
    [
        (("b", "a", "c"), 3, ("a", "b", "c"), [1, 0, 2], ""),
        (TAGS, 8, tuple(sorted(TAGS)), np.argsort(TAGS), ""),
        (("b", "a"), 2, ("b", "a"), [0, 1], ""),
        (None, 2, ("neg", "pos"), [0, 1], "has no names of labels, so it take"),
        # The data's own names are LABEL_0 and so on, sorted as text.
        (
            None,
            11,
            tuple(sorted(f"LABEL_{i}" for i in range(11))),
            [0, 1, 10, *range(2, 10)],
            "",
        ),
        (None, 3, ("2", "0", "1"), [2, 0, 1], "LABEL_2 is '2', LABEL_0 is '0'"),
        (("LABEL_0", "LABEL_1"), 2, ("x", "y"), [0, 1], "LABEL_0 is 'x'"),
        # A number, whatever its one output is called.
        (None, 1, (), [0], ""),
        (("score",), 1, (), [0], ""),
        # Names of another head of the model.
        (("x", "y", "z"), 2, ("a", "b"), [0, 1], "takes those given"),
    ],
)
def test_rows_follow_their_names(names, rows, labels, order, line, capsys):
    checkpoint = checkpoint_of(names, rows)
    placed = place_labels(checkpoint, HEAD, labels)
    for name, array in checkpoint.arrays.items():
        expected = array[order] if name in WEIGHTS else array
        np.testing.assert_array_equal(placed.arrays[name], expected)
    assert placed.labels == (labels or None)
    told = capsys.readouterr().err
    assert line in told
    assert told.count("\n") == bool(line)


@pytest.mark.parametrize(
    ("names", "rows", "labels", "line"),
    [
        (
            ("a", "b"),
            2,
            ("a", "c"),
            "its classifier is for other labels (only in the model: 'b'; only "
            "in the data: 'c'); a new head starts from random weights.",
        ),
        (("a", "b", "c"), 3, ("a", "b"), "(only in the model: 'c')"),
        (("a", "b"), 2, ("a", "b", "c"), "(only in the data: 'c')"),
        (("a", "B"), 2, ("a", "b"), "model: 'B'; only in the data: 'b'"),
        (("O", "B-PER"), 2, ("O", "B_PER"), "'B-PER'; only in the data: 'B_P"),
        (None, 3, ("a", "b"), "'LABEL_0', 'LABEL_1', 'LABEL_2'; only in the"),
        (("a", "b"), 2, (), "(2 outputs, where a number takes 1)"),
    ],
)
def test_other_names_are_another_head(names, rows, labels, line, capsys):
    assert place_labels(checkpoint_of(names, rows), HEAD, labels) is None
    told = capsys.readouterr().err
    assert line in told
    assert told.startswith("model: its classifier is for other labels")
    assert told.count("\n") == 1


def test_a_head_with_a_layer_of_its_own_keeps_it():
    """An ELECTRA's classifier: only what scores the labels is permuted."""
    checkpoint = checkpoint_of(("b", "a"), 2, "electra")
    placed = place_labels(checkpoint, HEAD, ("a", "b"))
    changed = {
        name
        for name, array in checkpoint.arrays.items()
        if not np.array_equal(array, placed.arrays[name])
    }
    assert changed == set(WEIGHTS)


def test_another_kind_of_outputs_is_stated(capsys):
    checkpoint = dataclasses.replace(
        checkpoint_of(("a", "b"), 2), problem_type=MULTI_LABEL
    )
    for kind in (MULTI_LABEL, SINGLE_LABEL):
        placed = place_labels(checkpoint, HEAD, ("a", "b"), kind)
        assert placed.problem_type == kind
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("model: its classifier ")
    assert f"{MULTI_LABEL} and is used as {SINGLE_LABEL}" in line
