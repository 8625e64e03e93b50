"""The gRPC services, with the stubs of tensorflow-serving-api."""

import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from tests.server.served_models import fetch, served
from tests.server.served_models import predict_request as request_of


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel


@pytest.fixture(scope="module")
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.fixture(scope="module")
def models(channel):
    return model_service_pb2_grpc.ModelServiceStub(channel)


def example(text: bytes) -> tf.train.Example:
    made = tf.train.Example()
    made.features.feature["text"].bytes_list.value.append(text)
    return made


def probabilities(stub, texts) -> np.ndarray:
    outputs = stub.Predict(request_of(text=texts)).outputs
    return tf.make_ndarray(outputs["probabilities"])


def test_predict_equals_rest(stub, server):
    texts = ["good film", "", "ü"]
    response = stub.Predict(request_of(text=texts))
    assert response.model_spec.name == "m"
    assert response.model_spec.version.value == 2
    assert response.model_spec.signature_name == "serving_default"
    _, rest = fetch(f"{server.rest}/v1/models/m:predict", {"inputs": texts})
    # Clients read the typed fields as well as tensors.
    assert list(response.outputs["label"].string_val) == [
        label.encode() for label in rest["outputs"]["label"]
    ]
    np.testing.assert_array_equal(
        list(response.outputs["probabilities"].float_val),
        np.float32(rest["outputs"]["probabilities"]).ravel(),
    )
    assert probabilities(stub, texts).shape == (3, 3)


def test_an_output_filter(stub):
    request = request_of(text=["a"])
    request.output_filter.append("label")
    assert list(stub.Predict(request).outputs) == ["label"]
    request.output_filter.append("other")
    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(request)
    assert "alias not found in signature: other" in caught.value.details()


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (np.float32([1.5, -2]), "float_val"),
        (np.float64([0.1, 3]), "double_val"),
        (np.int32([-7, 8]), "int_val"),
        (np.int64([2**40, 1]), "int64_val"),
        (np.uint8([200, 3]), "int_val"),
        (np.array([True, False]), "bool_val"),
        (np.float16([1.5, -2]), "half_val"),
        (np.array([1.5, -2], tf.bfloat16.as_numpy_dtype), "half_val"),
        (np.complex64([1 + 2j, -1j]), "scomplex_val"),
        (np.complex128([0.1 + 2j, 3]), "dcomplex_val"),
    ],
)
def test_every_type_has_its_field(stub, value, field):
    asked = request_of(tf.as_dtype(value.dtype).name, x=value)
    given = stub.Predict(asked).outputs["y"]
    assert len(getattr(given, field)) in (2, 4)
    back = tf.make_ndarray(given)
    assert back.dtype == value.dtype
    np.testing.assert_array_equal(back, value)
    # What came back is in typed fields, which are read too.
    asked.inputs["x"].CopyFrom(given)
    assert stub.Predict(asked).outputs["y"] == given


def test_bytes_pass_unchanged(stub):
    request = request_of("raw_bytes", image_bytes=[b"\xff\xfe", b""])
    found = stub.Predict(request).outputs["data_bytes"].string_val
    assert list(found) == [b"\xff\xfe\xff\x00", b"\xff\x00"]


def test_classify_regress_and_both(stub):
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "m"
    request.model_spec.signature_name = "classify"
    given = [example(b"good film"), example(b"x")]
    request.input.example_list.examples.extend(given)
    classified = stub.Classify(request)
    rows = probabilities(stub, ["good film", "x"])
    for one, row in zip(classified.result.classifications, rows, strict=True):
        assert [c.label for c in one.classes] == ["bad", "fair", "good"]
        np.testing.assert_allclose([c.score for c in one.classes], row, 1e-5)
    regression = regression_pb2.RegressionRequest(input=request.input)
    regression.model_spec.name = "m"
    regression.model_spec.signature_name = "regress"
    values = [r.value for r in stub.Regress(regression).result.regressions]
    assert values == [9, 1]
    both = inference_pb2.MultiInferenceRequest(input=request.input)
    for kind in ("classify", "regress"):
        task = both.tasks.add(method_name=f"tensorflow/serving/{kind}")
        task.model_spec.name, task.model_spec.signature_name = "m", kind
    results = stub.MultiInference(both).results
    assert results[0].classification_result == classified.result
    assert [r.value for r in results[1].regression_result.regressions] == values
    both.tasks[1].model_spec.signature_name = "classify"
    with pytest.raises(grpc.RpcError, match="Duplicate evaluation"):
        stub.MultiInference(both)
    for number, name, message in (
        (1, "", "Found ModelSpec with an empty model name."),
        (1, "other", "All ModelSpecs in a MultiInferenceRequest must"),
        (0, "", "ModelSpec has no name specified."),
    ):
        both.tasks[number].model_spec.name = name
        with pytest.raises(grpc.RpcError, match=message):
            stub.MultiInference(both)
    with pytest.raises(grpc.RpcError, match="ModelSpec has no name specified"):
        stub.MultiInference(inference_pb2.MultiInferenceRequest())


def test_metadata_and_status(stub, models):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "m"
    request.metadata_field.append("signature_def")
    response = stub.GetModelMetadata(request)
    found = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(found)
    assert set(found.signature_def["pair"].inputs) == {"text", "text_b"}
    asked = get_model_status_pb2.GetModelStatusRequest()
    asked.model_spec.name = "m"
    (status,) = models.GetModelStatus(asked).model_version_status
    assert (status.version, status.state) == (
        2,
        get_model_status_pb2.ModelVersionStatus.AVAILABLE,
    )
    # A label stands for all versions, also one that there is not.
    asked.model_spec.version_label = "stable"
    assert list(models.GetModelStatus(asked).model_version_status) == [status]
    asked.model_spec.name = "x"
    with pytest.raises(grpc.RpcError) as caught:
        models.GetModelStatus(asked)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def changed(change, *arguments, **inputs):
    request = request_of(*arguments, **inputs)
    change(request)
    return request


INVALID = "INVALID_ARGUMENT"


def of_version_77(request):
    request.model_spec.version.value = 77


def of_a_label(request):
    request.model_spec.version_label = "canary"


def of_three_bytes(request):
    request.inputs["ids"].tensor_content = b"123"


def of_many_rows(request):
    request.inputs["text"].tensor_shape.dim[0].size = 2**40


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (request_of(name="x", text=["a"]), "NOT_FOUND", "Latest(x)"),
        (request_of(name="", text=["a"]), INVALID, "no name"),
        (predict_pb2.PredictRequest(), INVALID, "Missing"),
        (changed(of_version_77, text=["a"]), "NOT_FOUND", "Specific(m, 77)"),
        (changed(of_a_label, text=["a"]), INVALID, "version label: canary"),
        (request_of("none", text=["a"]), "FAILED_PRECONDITION", '"none" not f'),
        (request_of(), INVALID, "Missing but required: {text}"),
        (request_of(text=["a"], more=[1]), INVALID, "Sent extra: {more}"),
        (
            *(request_of(text=[1, 2]), INVALID),
            "Expects arg[0] to be string but int32 is provided",
        ),
        (
            *(request_of(txt=["a"]), INVALID),
            "Signature input alias: text(feed name: serving_default_text:0)",
        ),
        (
            *(request_of("optional", text=["a"], txt=["a"]), INVALID),
            "Inputs contains invalid name. Used request inputs: text",
        ),
        (request_of("picky", text=["bad"]), INVALID, "must not be bad"),
        (changed(of_many_rows, text=["a"]), INVALID, "27487790694400 bytes"),
        (
            *(changed(of_three_bytes, "tokens", ids=[[1, 2]]), INVALID),
            "tensor parsing error",
        ),
    ],
)
def test_errors(stub, request_, code, message):
    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(request_)
    assert caught.value.code().name == code
    assert message in caught.value.details()
    assert stub.Predict(request_of(text=["still alive"]))


@pytest.mark.parametrize("name", ["server", "batching_server"])
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        (tf.float32, [2**28]),
        (tf.float32, [2**14, 2**8 + 1]),
        (tf.string, [2**20]),
        (tf.string, [2**40, 2**20]),
    ],
)
def test_few_bytes_stand_for_no_more_than_may_be(request, name, dtype, shape):
    server = request.getfixturevalue(name)
    asked = request_of(dtype.name)
    asked.inputs["x"].dtype = dtype.as_datatype_enum
    for size in shape:
        asked.inputs["x"].tensor_shape.dim.add(size=size)
    start = time.monotonic()
    with grpc.insecure_channel(server.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        for values in ([], [0]):
            field = {tf.string: "string_val", tf.float32: "float_val"}[dtype]
            one = [b"a" if dtype is tf.string else 1.5 for _ in values]
            getattr(asked.inputs["x"], field).extend(one)
            with pytest.raises(grpc.RpcError) as caught:
                stub.Predict(asked)
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert "16777216 are left" in caught.value.details()
    assert time.monotonic() - start < 5


def test_inputs_together_stand_for_no_more_than_may_be(stub):
    asked = request_of("pair", text="", text_b="")
    for alias in ("text", "text_b"):
        asked.inputs[alias].tensor_shape.dim.add(size=2**19)
    with pytest.raises(grpc.RpcError, match="are left"):
        stub.Predict(asked)


def test_the_last_value_is_repeated_and_what_is_too_much_left_out(stub):
    asked = request_of("float32")
    given = asked.inputs["x"]
    given.dtype = tf.float32.as_datatype_enum
    given.tensor_shape.dim.add(size=4)
    for values, read in (
        ([], [0, 0, 0, 0]),
        ([1, 2], [1, 2, 2, 2]),
        ([1, 2, 3, 4, 5], [1, 2, 3, 4]),
    ):
        given.ClearField("float_val")
        given.float_val.extend(values)
        answer = stub.Predict(asked).outputs["y"]
        assert list(answer.float_val) == read


def test_a_context_that_stands_in_each_example(stub, server):
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "m"
    request.model_spec.signature_name = "classify"
    shared = request.input.example_list_with_context
    shared.context.CopyFrom(example(b"x" * 2**16))
    shared.examples.extend([tf.train.Example()] * 1000)
    with pytest.raises(grpc.RpcError, match="more than the 16777216 bytes"):
        stub.Classify(request)
    body = {"context": {"text": "x" * 2**16}, "examples": [{}] * 1000}
    body["signature_name"] = "classify"
    status, answer = fetch(f"{server.rest}/v1/models/m:classify", body)
    assert (status, "more than the 16777216" in answer["error"]) == (400, True)


def test_scalars_defaults_other_shapes_and_no_rows(stub):
    outputs = stub.Predict(request_of("float32", x=np.float32(1.5))).outputs
    assert tf.make_ndarray(outputs["y"]) == 1.5
    outputs = stub.Predict(request_of("optional", text=["a"])).outputs
    assert list(outputs["joined"].string_val) == [b"a!"]
    outputs = stub.Predict(request_of("pair", text=[["a"]], text_b=[["b"]]))
    assert tf.make_ndarray(outputs.outputs["joined"]).shape == (1, 1)
    assert probabilities(stub, np.zeros([0], object)).shape == (0, 3)


def test_more_rows_than_a_batch(stub):
    texts = [f"text {number}" for number in range(70)]
    found = probabilities(stub, texts)
    assert len(found) == 70
    for row in (0, 33, 69):
        (alone,) = probabilities(stub, [texts[row]])
        np.testing.assert_allclose(found[row], alone, rtol=1e-6)


@pytest.mark.parametrize("dtype", [0, 20, 21, 11, 101, 999])
def test_dtypes_that_are_not_taken(stub, dtype):
    asked = request_of(text=["a"])
    asked.inputs["text"].dtype = dtype
    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(asked)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "Expects arg[0] to be string but" in caught.value.details()


def test_bytes_that_are_no_request(channel):
    for method in ("Predict", "Classify", "MultiInference"):
        service = "/tensorflow.serving.PredictionService"
        call = channel.unary_unary(f"{service}/{method}")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"\xff\x00 no protocol buffer")
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "is not a tensorflow.serving" in caught.value.details()


def test_a_long_error_arrives(stub):
    asked = request_of(**{"x" * 100_000: ["a"]})
    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(asked)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_deadline(stub):
    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(request_of("slow", text=["10000"]), timeout=0.2)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_message_that_is_too_large(strict_server):
    with grpc.insecure_channel(strict_server.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Predict(request_of(text=["x" * 5000]))
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert stub.Predict(request_of(text=["x"]))


def test_other_models_can_be_asked_for(versions):
    with (
        served(versions) as server,
        grpc.insecure_channel(server.grpc) as channel,
    ):
        models = model_service_pb2_grpc.ModelServiceStub(channel)
        request = model_management_pb2.ReloadConfigRequest()
        config = request.config.model_config_list.config.add(
            name="other", base_path=str(versions), model_platform="tensorflow"
        )
        config.model_version_policy.specific.versions.append(1)
        config.version_labels["stable"] = 1
        assert models.HandleReloadConfigRequest(request).status.error_code == 0
        labelled = f"{server.rest}/v1/models/other/labels/stable:predict"
        body = {"signature_name": "version", "instances": ["a"]}
        assert fetch(labelled, body) == (200, {"predictions": [1]})
        assert fetch(f"{server.rest}/v1/models/m:predict", body)[0] == 404
        # What cannot be served changes nothing.
        config.name, config.base_path = "m", "/nowhere"
        with pytest.raises(grpc.RpcError, match="no such folder: /nowhere"):
            models.HandleReloadConfigRequest(request)
        assert fetch(labelled, body)[0] == 200
        config.name, config.base_path = "other", str(versions)
        config.version_labels["stable"] = 7
        for change, code in (
            (lambda: None, "FAILED_PRECONDITION"),
            (lambda: request.ClearField("config"), "INVALID_ARGUMENT"),
        ):
            change()
            with pytest.raises(grpc.RpcError) as caught:
                models.HandleReloadConfigRequest(request)
            assert caught.value.code().name == code
            assert fetch(labelled, body)[0] == 200
        # A list of none is a list.
        request.config.model_config_list.SetInParent()
        models.HandleReloadConfigRequest(request)
        assert fetch(labelled, body)[0] == 400
        status, answer = fetch(f"{server.rest}/v1/models/other")
        assert status == 200
        (version,) = answer["model_version_status"]
        assert version["state"] in ("UNLOADING", "END")
        url = f"{server.rest}/v1/models/other:predict"
        status, answer = fetch(url, body)
        assert status == 404
        assert "not found for request: Latest(other)" in answer["error"]
        del config.version_labels["stable"]
        request.config.model_config_list.config.append(config)
        models.HandleReloadConfigRequest(request)
        assert fetch(url, body) == (200, {"predictions": [1]})
