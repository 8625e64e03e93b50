"""A family's arrays become ours, or an error lists the differences."""

import ml_dtypes
import numpy as np
import pytest

from bert_tf.checkpoints.layout import encoder_shapes, head_shapes
from bert_tf.checkpoints.stored import Stored, read_stored
from bert_tf.config import BertConfig
from bert_tf.lazy_arrays import LazyArrays
from tests.user_errors import error_of

CONFIG = BertConfig.from_size("1/4/2", 7)
KERNEL = "bert/encoder/layer_0/intermediate/dense/kernel"
QUERY = "bert/encoder/layer_0/attention/self/query/kernel"


def table():
    """Names in capitals; one kernel transposed, another split into heads."""
    shapes = encoder_shapes(CONFIG)
    for head in head_shapes(CONFIG).values():
        shapes |= head
    stored = {
        name: Stored(name.upper(), shape) for name, shape in shapes.items()
    }
    stored[KERNEL] = Stored(KERNEL.upper(), (16, 4), transposed=True)
    stored[QUERY] = Stored(QUERY.upper(), (4, 2, 2))
    stored["output_weights"] = Stored("OUTPUT_WEIGHTS", (4, None), True)
    return stored


def found(*heads, labels=3, dtype=np.float32):
    """The family's arrays of the encoder and some heads, distinct values."""
    random = np.random.default_rng(1)
    names = [*encoder_shapes(CONFIG)]
    for head in heads:
        names += head_shapes(CONFIG)[head]
    return {
        table()[name].name: random.normal(
            size=[labels if n is None else n for n in table()[name].shape]
        ).astype(dtype)
        for name in names
    }


def read(arrays, ignored=()):
    shapes = {name: array.shape for name, array in arrays.items()}
    lazy = LazyArrays(shapes, arrays.__getitem__)
    return read_stored(CONFIG, table(), lazy, ignored, "here")


def refused(arrays, ignored=()):
    line = error_of(read, arrays, ignored)
    assert line.startswith("here: ")
    return line


def test_arrays_are_turned_and_reshaped():
    theirs = found("pooler", "classifier")
    ours, left_out = read(theirs)
    assert left_out == ()
    assert set(ours) == {
        *encoder_shapes(CONFIG),
        *head_shapes(CONFIG)["pooler"],
        "output_weights",
        "output_bias",
    }
    np.testing.assert_array_equal(ours[KERNEL], theirs[KERNEL.upper()].T)
    np.testing.assert_array_equal(
        ours[QUERY], theirs[QUERY.upper()].reshape(4, 4)
    )
    np.testing.assert_array_equal(
        ours["output_weights"], theirs["OUTPUT_WEIGHTS"].T
    )
    for name, array in ours.items():
        assert array.shape == ours.shapes[name]
    assert ours.shapes["output_weights"] == (3, 4)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_other_floating_point_numbers(dtype):
    ours, _ = read(found(dtype=dtype))
    assert ours[QUERY].dtype == np.float32
    np.testing.assert_array_equal(
        ours[QUERY],
        found(dtype=dtype)[QUERY.upper()].astype(np.float32).reshape(4, 4),
    )


@pytest.mark.parametrize(
    ("heads", "changes", "parts"),
    [
        (
            ("masked_lm",),
            {"CLS/PREDICTIONS/OUTPUT_BIAS": None},
            ["missing: CLS/PREDICTIONS/OUTPUT_BIAS [7]"],
        ),
        (
            ("pooler",),
            {KERNEL.upper(): None},
            [f"the configuration; missing: {KERNEL.upper()} [16, 4]."],
        ),
        (
            ("next_sentence", "classifier"),
            {
                "BERT/EMBEDDINGS/WORD_EMBEDDINGS": np.ones((9, 4)),
                "CLS/SEQ_RELATIONSHIP/OUTPUT_WEIGHTS": np.ones((4, 2)),
                "OUTPUT_WEIGHTS": np.ones((5, 3)),
            },
            [
                "BERT/EMBEDDINGS/WORD_EMBEDDINGS is [9, 4] where the "
                "configuration says [7, 4]",
                "CLS/SEQ_RELATIONSHIP/OUTPUT_WEIGHTS is [4, 2] where the "
                "configuration says [2, 4]",
                "OUTPUT_WEIGHTS is [5, 3] where the configuration says [4, la",
            ],
        ),
        (
            ("pooler", "classifier"),
            {"OUTPUT_BIAS": np.ones(2, np.float32)},
            ["OUTPUT_WEIGHTS [4, 3]", "OUTPUT_BIAS [2]"],
        ),
        # All sides at once.
        (
            ("pooler",),
            {
                "OTHER": np.ones(4),
                "BERT/POOLER/DENSE/BIAS": None,
                "BERT/POOLER/DENSE/KERNEL": np.ones((4, 5)),
            },
            [
                "missing: BERT/POOLER/DENSE/BIAS [4]; unexpected: OTHER [4]",
                "KERNEL is [4, 5] where the configuration says [4, 4]",
            ],
        ),
        # A long list is truncated.
        (
            (),
            dict.fromkeys(stored.name for stored in table().values()),
            [f"and {len(encoder_shapes(CONFIG)) - 8} more"],
        ),
    ],
)
def test_arrays_that_do_not_fit(heads, changes, parts):
    theirs = found(*heads) | changes
    line = refused({k: v for k, v in theirs.items() if v is not None})
    for part in parts:
        assert part in line


def test_unexpected_arrays():
    theirs = found() | {"EXTRA/A": np.ones((2, 3)), "EXTRA/B": np.ones(())}
    assert "unexpected: EXTRA/A [2, 3], EXTRA/B []" in refused(theirs)
    ours, left_out = read(theirs, ("EXTRA/.*",))
    assert left_out == ("EXTRA/A", "EXTRA/B")
    assert not any("EXTRA" in name for name in ours)
    # The whole name must be on the list, not its beginning.
    assert "unexpected: EXTRA/B []" in refused(theirs, ("EXTRA/A", "EXTRA"))
    # What is needed cannot be left out.
    ours, left_out = read(found(), (".*",))
    assert left_out == ()
    assert set(ours) == set(encoder_shapes(CONFIG))


def test_heads_on_the_pooler_need_it():
    for head in ("next_sentence", "classifier", "multiple_choice"):
        assert "missing: BERT/POOLER/DENSE/BIAS [4]" in refused(found(head))
    read(found("masked_lm", "span", "token_classifier"))
