"""Attention whose gradient computes the probabilities again."""

import numpy as np
import pytest
import tensorflow as tf
from model_helpers import numpy

from bert_tf.layers import attention
from bert_tf.layers.attention import AttentionMask, attention_bias

SCALE = 1.25


def inputs(
    queries: int = 9, size: int = 64, packed: bool = False, causal: bool = False
) -> dict[str, np.ndarray]:
    """Two rows of four heads and nine tokens, the second with padding."""
    random = np.random.default_rng(7)
    mask = np.int32([[1] * 9, [1] * 6 + [0] * 3])
    ids = None
    if packed:
        # Padding would see nothing at all, and nobody reads what it gives.
        mask, ids = np.ones_like(mask), np.int32([[1] * 4 + [2] * 5, [1] * 9])
    bias = numpy(attention_bias(mask, ids, causal))
    return {
        "query": random.normal(size=(2, 4, queries, size)),
        "key": random.normal(size=(2, 4, 9, size)),
        "value": random.normal(size=(2, 4, 9, size)),
        "attention_bias": bias[:, :, :queries],
        "dropout_mask": random.random((2, 4, queries, 9)) < 0.8,
        "upstream": random.normal(size=(2, 4, queries, size)),
    }


def attend(query, key, value, attention_bias, dropout_mask, scale):
    mask = AttentionMask.of(attention_bias, query.shape[2], query.shape[1])
    return attention.attend(query, key, value, mask, dropout_mask, scale)


def plain(query, key, value, attention_bias, dropout_mask, scale):
    """The same as it stands in a book, for automatic differentiation."""
    scores = tf.matmul(query, key, transpose_b=True)
    wide = attention_bias.dtype
    scores = tf.cast(scores, wide) * query.shape[-1] ** -0.5 + attention_bias
    weights = tf.nn.softmax(scores, axis=-1)
    if dropout_mask is not None:
        weights = weights * (tf.cast(dropout_mask, wide) * scale)
    return tf.matmul(tf.cast(weights, value.dtype), value)


def results(function, given, dtype, wide="float32", drop=True, graph=""):
    """The context, and the gradients of query, key and value.

    With `graph` the same from a graph, which may know no sizes.
    """
    parts = [tf.cast(given[n], dtype) for n in ("query", "key", "value")]
    upstream = tf.cast(given["upstream"], dtype)
    attention_bias = tf.cast(given["attention_bias"], wide)
    dropout_mask = tf.constant(given["dropout_mask"]) if drop else None

    def run(parts, upstream, attention_bias, dropout_mask):
        with tf.GradientTape() as tape:
            tape.watch(parts)
            context = function(
                *parts, attention_bias, dropout_mask, SCALE if drop else 1.0
            )
        return [context, *tape.gradient(context, parts, upstream)]

    if graph:
        run = tf.function(run, autograph=False)
    if graph == "any size":
        free = [None, 4, None, parts[0].shape[-1]]
        head = tf.TensorSpec(free, parts[0].dtype)
        scores = tf.TensorSpec([None, 4, None, None], tf.bool)
        run = run.get_concrete_function(
            [head] * 3,
            head,
            tf.TensorSpec([None, 1, None, None], wide),
            scores if drop else None,
        )
    return [
        numpy(tf.cast(t, "float64"))
        for t in run(parts, upstream, attention_bias, dropout_mask)
    ]


FORMS = {
    "rows": {},
    "packed": {"packed": True},
    "causal": {"causal": True},
    "first position": {"queries": 1},
    "no power of two": {"size": 24},
}


# A head of nine tokens has 81 scores.
BLOCKS = {"head": 100, "two heads": 200, "row": 400, "batch": 2**20}


@pytest.mark.parametrize(
    ("graph", "form", "drop", "block"),
    [
        # Only graphs are computed in blocks.
        *(("", form, drop, "batch") for form in FORMS for drop in (0, 1)),
        *(("these sizes", "rows", drop, b) for b in BLOCKS for drop in (0, 1)),
        *(("any size", "packed", 1, block) for block in BLOCKS),
        *(("any size", form, 1, "row") for form in FORMS if form != "packed"),
        ("any size", "first position", 1, "head"),
        ("any size", "rows", 1, "two heads"),
    ],
)
def test_gradients_are_those_of_the_plain_form(
    form, drop, graph, block, monkeypatch
) -> None:
    monkeypatch.setattr(attention, "_BLOCK_SCORES", BLOCKS[block])
    given = inputs(**FORMS[form])
    ours = results(attend, given, "float32", drop=drop, graph=graph)
    exact = results(plain, given, "float64", "float64", drop=drop)
    for found, expected in zip(ours, exact, strict=True):
        largest = np.abs(expected).max()
        assert largest > 0.3
        assert np.abs(found - expected).max() < 1e-6 * largest


def test_a_single_key_has_all_the_weight() -> None:
    given = inputs(queries=1)
    given = {
        name: array if name in ("query", "upstream") else array[..., :1, :]
        for name, array in given.items()
    }
    given["attention_bias"] = given["attention_bias"][..., :1]
    context, *gradients = results(attend, given, "float32", drop=False)
    np.testing.assert_array_equal(context, np.float32(given["value"]))
    of_value = np.float32(given["upstream"])
    for found, expected in zip(gradients, (0.0, 0.0, of_value), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_gradient_knows_what_was_dropped() -> None:
    given = inputs()
    exact = results(attend, given, "float32")
    given["dropout_mask"] = given["dropout_mask"].copy()
    given["dropout_mask"][0, 0, 0, 0] ^= True
    changed = results(attend, given, "float32")
    for before, after in zip(exact, changed, strict=True):
        assert np.abs(before - after).max() > 1e-3


@pytest.mark.parametrize("form", ["rows", "no power of two"])
def test_in_bfloat16_it_is_as_exact_as_the_plain_form(form) -> None:
    given = inputs(**FORMS[form])
    for name in ("query", "key", "value", "upstream"):
        given[name] = numpy(tf.cast(given[name], "bfloat16"))
    exact = results(plain, given, "float64", "float64")
    ours, theirs = (
        results(function, given, "bfloat16") for function in (attend, plain)
    )
    for found, peer, expected in zip(ours, theirs, exact, strict=True):
        error, peers = (
            np.sqrt(np.square(got - expected).mean()) for got in (found, peer)
        )
        assert 0 < error < 1.05 * peers


def waits_for(operation, tensor) -> bool:
    """Whether an operation of a graph cannot run before a tensor is there."""
    seen, ahead = set(), [operation]
    while ahead:
        for before in {t.op for t in ahead.pop().inputs} - seen:
            seen.add(before)
            ahead.append(before)
    return tensor.op in seen


@pytest.mark.parametrize("block", ["row", "batch"])
def test_the_gradient_computes_probabilities_when_it_is_their_turn(
    block, monkeypatch
) -> None:
    """In the forward pass TensorFlow would compute them once and keep them."""
    monkeypatch.setattr(attention, "_BLOCK_SCORES", BLOCKS[block])
    given = inputs()
    dropout_mask = tf.constant(given["dropout_mask"])
    names = ("query", "key", "value", "upstream")

    @tf.function(autograph=False)
    def run(query, key, value, upstream):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            context = attend(
                query, key, value, given["attention_bias"], dropout_mask, SCALE
            )
        return tape.gradient(context, [query, key, value], upstream)

    graph = run.get_concrete_function(
        *(tf.constant(given[name], tf.float32) for name in names)
    ).graph
    upstream = graph.inputs[3]
    # Loops have the operations in their bodies.
    kinds = ("While",) if block == "row" else ("Softmax", "SelectV2")
    for kind in kinds:
        waiting = [
            waits_for(operation, upstream)
            for operation in graph.get_operations()
            if operation.type.endswith(kind)
        ]
        assert waiting == [False, True]


@pytest.mark.parametrize(
    ("rows", "longest", "has_loop"),
    [(4, 256, False), (4, 512, True), (4, None, True), (None, 16, True)],
)
def test_rows_that_fit_one_block_need_no_loop(rows, longest, has_loop):
    """Lengths are known only at run time; four heads."""
    found = []

    @tf.function(
        input_signature=[tf.TensorSpec([rows, 1, 1, None])], autograph=False
    )
    def trace(bias):
        found.append(AttentionMask.of(bias, None, 4, longest=longest))

    trace.get_concrete_function()
    assert (found[0].blocks is not None) == has_loop
