"""Local attention in blocks against all scores, of which most are masked."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf
from model_helpers import fill, numpy
from test_attention import SCALE, plain

from bert_tf.architectures.modernbert import ModernBertConfig
from bert_tf.encoders.modernbert import ModernBertEncoder
from bert_tf.layers import attention, band
from bert_tf.layers.attention import (
    AttentionMask,
    attend,
    attention_bias,
    dropout_shape,
    uncut_attention,
)

HEADS, SIZE = 3, 8
LENGTHS = (1, 3, 7, 8, 12, 13, 20, 33)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch) -> None:
    monkeypatch.setattr(band, "_LEAST_QUERIES", 4)


def batch_of(length: int, packed: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """The mask of two rows, the second with padding, and their sequences."""
    mask = np.ones((2, length), "int32")
    mask[1, max(1, length - 3) :] = 0
    if not packed:
        return mask, None
    sequences = np.ones((2, length), "int32")
    sequences[0, length // 3 :] = 2
    sequences[0, length // 2 :] = 3
    return mask, sequences * mask


def inputs(length: int, packed: bool) -> dict[str, np.ndarray]:
    random = np.random.default_rng(length)
    mask, sequences = batch_of(length, packed)
    shape = (4, 2, HEADS, length, SIZE)
    query, key, value, upstream = random.normal(size=shape).astype("float32")
    return {
        "query": query,
        "key": key,
        "value": value,
        # What queries at padding give is nobody's.
        "upstream": upstream * mask[:, None, :, None],
        "bias": numpy(attention_bias(mask, sequences)),
        "real": mask[:, None, :, None],
    }


def full_bias(given: dict[str, np.ndarray], window: int) -> np.ndarray:
    length = given["query"].shape[2]
    near = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    return np.where(near <= window, given["bias"], -1e4)


def expected(given, window, dtype="float32", wide="float64", keep=None):
    """Context and gradients of the plain form, with a dropout mask."""
    names = ("query", "key", "value")
    parts = [tf.cast(tf.cast(given[n], dtype), wide) for n in names]
    with tf.GradientTape() as tape:
        tape.watch(parts)
        scale = 1.0 if keep is None else SCALE
        bias = tf.cast(full_bias(given, window), wide)
        context = plain(*parts, bias, keep, scale)
    upstream = tf.cast(tf.cast(given["upstream"], dtype), wide)
    gradients = tape.gradient(context, parts, upstream)
    return [numpy(context) * given["real"], *map(numpy, gradients)]


def ours(given, window, dtype="float32", function=None):
    names = ("query", "key", "value", "upstream")
    parts = [tf.cast(given[name], dtype) for name in names]
    found = (function or results_of(window))(*parts, tf.constant(given["bias"]))
    found = [numpy(tf.cast(each, "float64")) for each in found]
    return [found[0] * given["real"], *found[1:]]


def results_of(window, drop_seed=None):
    """A function from heads and a bias to the context and the gradients."""

    def run(query, key, value, upstream, bias):
        mask = AttentionMask.of(bias, None, HEADS, window)
        keep, scale = None, 1.0
        if drop_seed is not None:
            shape, scale = dropout_shape(query, mask), SCALE
            keep = tf.random.stateless_uniform(shape, [drop_seed, 1]) < 0.8
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            context = attend(query, key, value, mask, keep, scale)
        gradients = tape.gradient(context, [query, key, value], upstream)
        return [context, *gradients, *([] if keep is None else [keep])]

    return run


def of_any_length(run, packed: bool):
    """The same as a graph that knows no lengths."""
    heads = tf.TensorSpec([None, HEADS, None, SIZE], "float32")
    bias = tf.TensorSpec([None, 1, None if packed else 1, None], "float32")
    traced = tf.function(run, autograph=False)
    return traced.get_concrete_function(*[heads] * 4, bias)


def assert_close(found, reference, tolerance=1e-6) -> None:
    for one, other in zip(found, reference, strict=True):
        largest = max(np.abs(other).max(), 1.0)
        assert np.abs(one - other).max() < tolerance * largest


# A window below and above the fewest queries of a block. In turn, heads are cut
# after the blocks, which are the same for packed rows.
FORMS_OF_ATTENTION = [
    *(("eager", packed, size) for packed in (0, 1) for size in (1, 2, 5)),
    *(("any length", packed, size) for packed in (0, 1) for size in (1, 5)),
    *(("heads in turn", True, 1), ("heads in turn", False, 5)),
]


@pytest.mark.filterwarnings("ignore:You are using a softmax")
@pytest.mark.parametrize(("form", "packed", "window"), FORMS_OF_ATTENTION)
def test_it_is_masked_attention_of_any_length(
    form, packed, window, monkeypatch
) -> None:
    if form == "heads in turn":
        monkeypatch.setattr(attention, "_BLOCK_SCORES", 100)
    run = results_of(window)
    if form != "eager":
        run = of_any_length(run, packed)
    for length in LENGTHS:
        given = inputs(length, packed)
        found = ours(given, window, function=run)
        assert_close(found, expected(given, window))


@pytest.mark.parametrize("form", ["eager", "any length"])
def test_dropout_is_that_of_the_scores_it_drops(form) -> None:
    given, window, length = inputs(33, packed=False), 2, 33
    run = results_of(window, drop_seed=4)
    if form != "eager":
        run = of_any_length(run, packed=False)
    *found, drawn = ours(given, window, function=run)
    # The keys of a block of 4 queries begin 2 before it.
    assert drawn.shape == (2, HEADS, 36, 8)
    keep = np.zeros((2, HEADS, length, length), bool)
    for query in range(length):
        begin = query // 4 * 4 - 2
        for key in range(max(begin, 0), min(begin + 8, length)):
            keep[:, :, query, key] = drawn[:, :, query, key - begin]
    assert_close(found, expected(given, window, keep=tf.constant(keep)))


def test_in_bfloat16_it_is_as_exact_as_the_plain_form() -> None:
    given = inputs(33, packed=False)
    exact = expected(given, 2, "bfloat16")
    found = ours(given, 2, "bfloat16")
    for one, other in zip(found, exact, strict=True):
        error = np.sqrt(np.square(one - other).mean())
        assert 0 < error < 4e-3 * np.sqrt(np.square(other).mean()) + 1e-3


def test_arrays_grow_with_the_length_not_its_square() -> None:
    length = 4096
    heads = tf.TensorSpec([1, HEADS, length, SIZE], "float32")
    bias = tf.TensorSpec([1, 1, 1, length], "float32")
    largest = {}
    for name, context in (
        ("blocks", contextlib.nullcontext()),
        ("all", uncut_attention()),
    ):
        with context:
            run = tf.function(results_of(64), autograph=False)
            graph = run.get_concrete_function(*[heads] * 4, bias).graph
        operations = list(graph.get_operations())
        for function in graph._functions.values():
            operations += function.graph.get_operations()
        largest[name] = max(
            output.shape.num_elements() or 0
            for operation in operations
            for output in operation.outputs
            if output.shape.is_fully_defined()
        )
    assert largest["blocks"] <= HEADS * length * 192
    assert largest["all"] >= length**2


def encoder_of(**changes) -> ModernBertEncoder:
    config = ModernBertConfig(
        vocab_size=50,
        hidden_size=24,
        # The last layer is local too.
        num_hidden_layers=3,
        num_attention_heads=HEADS,
        intermediate_size=16,
        local_attention=4,
        **changes,
    )
    encoder = ModernBertEncoder(config)
    fill(encoder, 3)
    return encoder


FORMS = {
    "rows": {},
    "without padding": {"unpadded": True},
    "packed": {"packed": True},
    "packed, without padding": {"packed": True, "unpadded": True},
    "first token": {"pooled_only": True},
    "first token, without padding": {"pooled_only": True, "unpadded": True},
    "mean": {"pooled_only": True, "pooling": "mean"},
}


@pytest.mark.parametrize("form", FORMS)
def test_an_encoder_computes_what_it_does_with_all_scores(
    form, monkeypatch
) -> None:
    used = []
    keys = band.Band.keys
    monkeypatch.setattr(
        band.Band, "keys", lambda *given: used.append(1) or keys(*given)
    )
    options = dict(FORMS[form])
    packed = options.pop("packed", False)
    encoder = encoder_of(classifier_pooling=options.pop("pooling", "cls"))
    mask, sequences = batch_of(30, packed)
    ids = np.random.default_rng(1).integers(1, 50, mask.shape)
    batch = {
        "input_ids": tf.constant(ids * mask, tf.int32),
        "input_mask": tf.constant(mask),
        "segment_ids": tf.zeros_like(mask),
    }
    if packed:
        batch["sequence_ids"] = tf.constant(sequences)
        starts = [[0, 10, 15], [0, 0, 0]]
        batch["cls_positions"] = tf.constant(starts, tf.int32)

    def run():
        with tf.GradientTape() as tape:
            outputs = encoder(batch, **options)
            real = tf.cast(mask[..., None], tf.float32)
            parts = [outputs["pooled_output"]]
            if "sequence_output" in outputs:
                parts.append(outputs["sequence_output"] * real)
            loss = tf.add_n([tf.reduce_sum(tf.square(part)) for part in parts])
        weights = encoder.blocks[1].attention.kernel
        return [*map(numpy, parts), numpy(tape.gradient(loss, weights.value))]

    with uncut_attention():
        reference = run()
    assert not used
    assert_close(run(), reference, 1e-5)
    assert used
