"""JSON to arrays and back, by TF Serving's rules."""

import json

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from bert_tf.server import json_tensors
from bert_tf.server.json_answers import write_outputs
from bert_tf.server.json_parser import parse
from bert_tf.server.json_requests import (
    read_examples,
    read_inputs,
    signature_name,
)
from bert_tf.server.loaded_model import Tensor
from bert_tf.server.status import RequestError


def tensor(dtype: tf.DType) -> Tensor:
    return Tensor("x:0", dtype.as_datatype_enum, None)


TEXT = {"text": tensor(tf.string)}
PAIR = {"a": tensor(tf.string), "b": tensor(tf.int32)}


def read(body: str, tensors: dict[str, Tensor]):
    return read_inputs(parse(body.encode()), tensors)


@pytest.mark.parametrize(
    ("body", "form"),
    [
        ('{"instances": ["a", "ü"]}', "instances"),
        ('{"instances": [{"text": "a"}, {"text": "ü"}]}', "instances"),
        ('{"instances": [{"b64": "YQ"}, {"b64": "w7w="}]}', "instances"),
        ('{"instances": [{"text": {"b64": "YQ=="}}, {"text": "ü"}]}',) * 1
        + ("instances",),
        ('{"inputs": ["a", "ü"]}', "inputs"),
        ('{"inputs": {"text": ["a", {"b64": "w7w="}]}}', "inputs"),
        ('\ufeff {"inputs": ["a", "\\u00fc"]} trailing', "inputs"),
    ],
)
def test_the_ways_to_say_the_same(body, form):
    arrays, found = read(body, TEXT)
    assert found == form
    assert arrays["text"].tolist() == [b"a", "ü".encode()]


def test_rows_and_columns_of_several_inputs():
    rows, _ = read(
        '{"instances": [{"a": "x", "b": 3}, {"b": -4, "a": "y"}]}', PAIR
    )
    columns, _ = read('{"inputs": {"b": [3, -4], "a": ["x", "y"]}}', PAIR)
    for arrays in (rows, columns):
        assert arrays["a"].tolist() == [b"x", b"y"]
        assert arrays["b"].dtype == np.int32
        assert arrays["b"].tolist() == [3, -4]


def test_shapes_of_nested_lists():
    one = {"x": tensor(tf.float32)}
    arrays, _ = read('{"instances": [[[1, 2.5]], [[NaN, -Infinity]]]}', one)
    assert arrays["x"].shape == (2, 1, 2)
    np.testing.assert_array_equal(
        arrays["x"].ravel(), np.float32([1, 2.5, np.nan, -np.inf])
    )
    assert read('{"inputs": 7}', one)[0]["x"].shape == ()
    assert read('{"inputs": []}', one)[0]["x"].shape == (0,)


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        (tf.float32, ["1", "1.5", "1e39"], ["true", '"1"', "1e400", "1" * 400]),
        (tf.int32, ["1", "-2147483648"], ["1.0", "2147483648", "true", "null"]),
        (tf.int64, ["9223372036854775807"], ["9223372036854775808", "1e3"]),
        (tf.uint8, ["255"], ["256", "-1"]),
        (tf.uint64, ["18446744073709551615"], ["-1"]),
        (tf.bool, ["true", "false"], ["1", '"true"', "null"]),
        (tf.string, ['"x"', '{"b64": "eA=="}'], ["1", "null", '{"b": "x"}']),
    ],
)
def test_types_are_strict(dtype, good, bad):
    one = {"x": tensor(dtype)}
    for value in good:
        array = read(f'{{"inputs": [{value}]}}', one)[0]["x"]
        assert array.shape == (1,)
    for value in bad:
        with pytest.raises(RequestError) as caught:
            read(f'{{"inputs": [{value}]}}', one)
        assert caught.value.code.name == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "The document is empty"),
        ("{", "Parse error: Missing a name for object member. at offset: 1"),
        ("[1]", "Is not object"),
        ('"' + "[" * 10, "JSON Parse error"),
        ("[" * 100_000, "Missing a comma or ]"),
        ("[" * 100_000 + "]" * 100_000, "Is not object"),
        ('{"instances": [' + "[" * 70 + "]" * 71 + "}", "nested more than 31"),
        ('{"instances": ["\\ud800"]}', "surrogate pair"),
        ("{}", "Missing 'inputs' or 'instances' key"),
        ('{"inputs": ["a"], "instances": ["a"]}', "only one of"),
        ('{"instances": "a"}', "to be an list/array"),
        ('{"instances": []}', "No values in 'instances' array"),
        (
            '{"instances": [["a"], ["a", "b"]]}',
            "Expecting tensor size: 1 but got: 2",
        ),
        ('{"instances": [[["a"], "b"]]}', "found at incorrect level: 2"),
        ('{"instances": [[["a"], ["b", "c"]]]}', "at unexpected size: 2"),
        ('{"instances": ["a", {"text": "b"}]}', "got object at item 1"),
        ('{"instances": [{"text": "a"}, "b"]}', "got list at item 1"),
        ('{"instances": [{"txt": "a"}]}', "does not have named input: txt"),
        ('{"instances": [{}]}', "keys must be equal to: text"),
        ('{"inputs": {"txt": ["a"]}}', "Missing named input: text"),
        ('{"inputs": {}}', "Missing named input: text"),
        ('{"instances": [{"b64": "a b c d e"}]}', "Unable to base64 decode"),
        ('{"instances": [3]}', "Number is not of expected type: string"),
    ],
)
def test_what_is_wrong_is_said(body, message):
    with pytest.raises(RequestError) as caught:
        read(body, TEXT)
    assert message in caught.value.message
    assert caught.value.code.name == "INVALID_ARGUMENT"
    assert len(caught.value.message) < 600


def test_plain_rows_for_several_inputs():
    for body in ('{"instances": ["a"]}', '{"inputs": ["a"]}'):
        with pytest.raises(RequestError, match="multiple input tensors"):
            read(body, PAIR)


def test_invalid_utf8_is_refused_with_its_place():
    with pytest.raises(RequestError, match="UTF-8 .* at offset: 15"):
        parse(b'{"instances": ["\xff"]}'.replace(b'["', b"[", 1))


def test_a_signature_name_is_a_string():
    assert signature_name({}) == ""
    with pytest.raises(RequestError, match="must be a string value"):
        signature_name({"signature_name": 3})


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
@hypothesis.settings(max_examples=400, deadline=None)
def test_in_bulk_is_as_value_by_value(value, dtype, form):
    request, one = {form: value}, {"x": tensor(dtype)}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_tensors, "_in_bulk", lambda *_: None)
        slow = outcome(request, one)
    assert outcome(request, one) == slow


def strings(*values: bytes) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def test_rows_and_columns_are_written():
    outputs = {
        "b": np.float32([[0.1, 1e-7], [9e6, 123456.789]]),
        "a": strings(b"x", "ü\n".encode()),
    }
    rows = write_outputs(outputs, "instances")
    assert json.loads(rows) == {
        "predictions": [
            {"a": "x", "b": [0.1, 1e-7]},
            {"a": "ü\n", "b": [9e6, 123456.789]},
        ]
    }
    assert "ü" in rows.decode()
    assert json.loads(write_outputs(outputs, "inputs")) == {
        "outputs": {
            "a": ["x", "ü\n"],
            "b": [[0.1, 1e-7], [9e6, 123456.789]],
        }
    }


def test_one_output_has_no_name():
    one = {"a": np.int64([[1, 2], [3, -4]])}
    assert json.loads(write_outputs(one, "instances")) == {
        "predictions": [[1, 2], [3, -4]]
    }
    assert json.loads(write_outputs(one, "inputs")) == {
        "outputs": [[1, 2], [3, -4]]
    }


def test_bytes_and_other_types_are_written():
    outputs = {
        "x_bytes": strings(b"\xff\x00"),
        "text": strings(b"a\xff"),
        "flag": np.array([True]),
        "size": np.uint64([2**64 - 1]),
    }
    assert json.loads(write_outputs(outputs, "instances")) == {
        "predictions": [
            {
                "x_bytes": {"b64": "/wA="},
                "text": "a\ufffd",
                "flag": True,
                "size": 2**64 - 1,
            }
        ]
    }


def test_numbers_look_as_tf_serving_writes_them():
    values = np.float32([0.2, 2, 9000000, 3e-5, 1 / 3, np.nan, -np.inf])
    text = write_outputs({"x": values}, "inputs")
    assert b"[0.2, 2.0, 9e+06, 3e-05, 0.333333343, NaN, -Infinity]" in text


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


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({}, "'examples' is expected"),
        ({"examples": {}}, "to be an list/array"),
        ({"examples": []}, "is an empty array"),
        ({"examples": ["x"]}, "got JSON String"),
        ({"examples": [{"x": None}]}, "unexpected JSON type: Null"),
        ({"examples": [{"x": [1, 2.0]}]}, "expecting type: int64"),
        ({"examples": [{"x": 2**63}]}, "Only int64_t"),
        ({"examples": [{"x": [[1]]}]}, "unexpected JSON type: Array"),
    ],
)
def test_wrong_examples(request_, message):
    with pytest.raises(RequestError, match=message):
        read_examples(request_)
