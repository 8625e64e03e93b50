"""JSON to arrays and back, by TF Serving's rules."""

import json

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from bert_tf.server import json_requests
from bert_tf.server.json_answers import write_outputs
from bert_tf.server.json_parser import parse
from bert_tf.server.json_requests import read_examples, read_inputs
from bert_tf.server.loaded_model import Tensor
from bert_tf.server.status import RequestError


def tensor(dtype: tf.DType) -> Tensor:
    return Tensor("x:0", dtype.as_datatype_enum, None)


TEXT = {"text": tensor(tf.string)}


def test_a_byte_order_mark_and_what_follows_are_skipped():
    body = '\ufeff {"inputs": ["a", "\\u00fc"]} trailing'
    arrays, form = read_inputs(parse(body.encode()), TEXT)
    assert form == "inputs"
    assert arrays["text"].tolist() == [b"a", "ü".encode()]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('"' + "[" * 10, "JSON Parse error"),
        # At what follows the comma, whatever Python's version says.
        ('{"a": [1 , ]}', "Invalid value. at offset: 11"),
        ('{"a": 1 , }', "Missing a name for object member. at offset: 10"),
        ("[" * 100_000, "Missing a comma or ]"),
        ("[" * 100_000 + "]" * 100_000, "Is not object"),
        ('{"instances": [' + "[" * 70 + "]" * 71 + "}", "nested more than 31"),
        ('{"instances": "' + "a" * 10_000 + '"}', "to be an list/array"),
    ],
)
def test_what_is_deep_or_long_is_refused_in_few_words(body, message):
    with pytest.raises(RequestError) as caught:
        read_inputs(parse(body.encode()), TEXT)
    assert message in caught.value.message
    assert caught.value.code.name == "INVALID_ARGUMENT"
    assert len(caught.value.message) < 600


def test_invalid_utf8_is_refused_with_its_place():
    with pytest.raises(RequestError, match="UTF-8 .* at offset: 15"):
        parse(b'{"instances": ["\xff"]}'.replace(b'["', b"[", 1))


LEAVES = strategies.one_of(
    strategies.integers(-(2**70), 2**70),
    strategies.integers(-300, 300),
    strategies.floats(),
    strategies.booleans(),
    strategies.none(),
    strategies.text(max_size=3),
    strategies.just({"b64": "aGk="}),
    strategies.just({}),
)
SOME = strategies.sampled_from(
    [
        strategies.integers(-(2**63), 2**64),
        strategies.integers(0, 255),
        strategies.one_of(strategies.floats(), strategies.integers()),
        strategies.booleans(),
        strategies.text(max_size=3),
    ]
).flatmap(
    lambda leaves: strategies.tuples(
        strategies.integers(0, 3), strategies.integers(0, 3)
    ).flatmap(
        lambda shape: strategies.lists(
            strategies.lists(leaves, min_size=shape[1], max_size=shape[1]),
            min_size=shape[0],
            max_size=shape[0],
        )
    )
)
NESTED = SOME | strategies.recursive(
    LEAVES, lambda inner: strategies.lists(inner, max_size=3), max_leaves=12
)
ALL_DTYPES = [tf.float32, tf.float64, tf.int8, tf.int32, tf.int64, tf.uint8]
ALL_DTYPES += [tf.uint64, tf.bool, tf.string, tf.float16]


def outcome(request: dict, tensors: dict) -> tuple:
    """The array of a request, or its error, as something to compare."""
    try:
        array = read_inputs(request, tensors)[0]["x"]
    except RequestError as error:
        return error.code, error.message
    data = array.tolist() if array.dtype == object else array.tobytes()
    return array.dtype, array.shape, data


@hypothesis.given(
    NESTED,
    strategies.sampled_from(ALL_DTYPES),
    strategies.sampled_from(["instances", "inputs"]),
)
@hypothesis.settings(max_examples=200, deadline=None)
def test_in_bulk_is_as_value_by_value(value, dtype, form):
    request, one = {form: value}, {"x": tensor(dtype)}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_requests, "_in_bulk", lambda *_: None)
        slow = outcome(request, one)
    assert outcome(request, one) == slow


@hypothesis.given(strategies.lists(strategies.floats(width=32), min_size=1))
def test_floats_come_back_exactly(values):
    array = np.array(values, np.float32)
    text = write_outputs({"x": array}, "inputs")
    back = np.array(json.loads(text)["outputs"], np.float32)
    np.testing.assert_array_equal(back, array)


def test_rows_need_one_batch_size():
    for outputs, message in (
        ({"a": np.ones([2]), "b": np.ones([3])}, "inconsistent batch size"),
        ({"a": np.float32(1.0)}, "has no shape information"),
        ({}, "empty tensor map"),
        ({"a": np.ones([1], np.float16)}, "JSON value for tensor type: half"),
    ):
        with pytest.raises(RequestError, match=message):
            write_outputs(outputs, "instances")


def test_examples_have_the_kind_of_their_values():
    given = read_examples(
        {
            "context": {"c": "shared"},
            "examples": [
                {"s": ["x", {"b64": "/w=="}], "i": [3, True], "f": 1.5}
            ],
        }
    )
    shared = given.example_list_with_context
    feature = shared.examples[0].features.feature
    assert list(feature["s"].bytes_list.value) == [b"x", b"\xff"]
    assert list(feature["i"].int64_list.value) == [3, 1]
    assert list(feature["f"].float_list.value) == [1.5]
    context = shared.context.features.feature
    assert list(context["c"].bytes_list.value) == [b"shared"]
