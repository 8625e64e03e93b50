"""The gRPC services, with the stubs of tensorflow-serving-api."""

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


def request_of(signature="", name="m", **inputs):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    for alias, value in inputs.items():
        request.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
    return request


def example(text: bytes) -> tf.train.Example:
    made = tf.train.Example()
    made.features.feature["text"].bytes_list.value.append(text)
    return made


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
    array = tf.make_ndarray(response.outputs["probabilities"])
    assert array.shape == (3, 3)


def test_an_output_filter(stub):
    request = request_of(text=["a"])
    request.output_filter.append("label")
    assert list(stub.Predict(request).outputs) == ["label"]
    request.output_filter.append("other")
    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(request)
    assert "alias not found in signature: other" in caught.value.details()


def test_every_type(stub):
    given = {
        "f": np.float32([1.5, -2]),
        "d": np.float64([0.1, 3]),
        "i": np.int32([-7, 8]),
        "l": np.int64([2**40, 1]),
        "u": np.uint8([200, 3]),
        "b": np.array([True, False]),
    }
    outputs = stub.Predict(request_of("numbers", **given)).outputs
    for alias, value in given.items():
        back = tf.make_ndarray(outputs[alias])
        assert back.dtype == value.dtype
        np.testing.assert_array_equal(back, value)


def test_bytes_pass_unchanged(stub):
    outputs = stub.Predict(
        request_of("raw_bytes", image_bytes=[b"\xff\xfe", b""])
    ).outputs
    assert list(outputs["data_bytes"].string_val) == [
        b"\xff\xfe\xff\x00",
        b"\xff\x00",
    ]


def test_classify_regress_and_both(stub):
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "m"
    request.model_spec.signature_name = "classify"
    request.input.example_list.examples.extend(
        [example(b"good film"), example(b"x")]
    )
    classified = stub.Classify(request)
    rows = tf.make_ndarray(
        stub.Predict(request_of(text=["good film", "x"])).outputs[
            "probabilities"
        ]
    )
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
    asked.model_spec.name = "x"
    with pytest.raises(grpc.RpcError) as caught:
        models.GetModelStatus(asked)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def wrong_version():
    request = request_of(text=["a"])
    request.model_spec.version.value = 77
    return request


def wrong_label():
    request = request_of(text=["a"])
    request.model_spec.version_label = "canary"
    return request


def huge_shape():
    request = request_of(text=["a"])
    request.inputs["text"].tensor_shape.dim[0].size = 2**40
    return request


def wrong_content():
    request = request_of("tokens", ids=[[1, 2]])
    request.inputs["ids"].tensor_content = b"123"
    return request


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (request_of(name="x", text=["a"]), "NOT_FOUND", "Latest(x)"),
        (request_of(name="", text=["a"]), "INVALID_ARGUMENT", "no name"),
        (predict_pb2.PredictRequest(), "INVALID_ARGUMENT", "Missing"),
        (wrong_version(), "NOT_FOUND", "Specific(m, 77)"),
        (wrong_label(), "INVALID_ARGUMENT", "version label: canary"),
        (
            request_of("none", text=["a"]),
            "FAILED_PRECONDITION",
            'key "none" not found',
        ),
        (request_of(), "INVALID_ARGUMENT", "Missing but required: {text}"),
        (
            request_of(text=["a"], more=[1]),
            "INVALID_ARGUMENT",
            "Sent extra: {more}",
        ),
        (
            request_of(text=[1, 2]),
            "INVALID_ARGUMENT",
            '"text" is expected to be string but is int32',
        ),
        (
            request_of(text=[["a"]]),
            "INVALID_ARGUMENT",
            "to have shape [-1] but has [1, 1]",
        ),
        (
            request_of(text=np.zeros([0], object)),
            "INVALID_ARGUMENT",
            "batch is empty",
        ),
        (
            request_of("picky", text=["bad"]),
            "INVALID_ARGUMENT",
            "must not be bad",
        ),
        (huge_shape(), "INVALID_ARGUMENT", "cannot have the shape"),
        (wrong_content(), "INVALID_ARGUMENT", "tensor parsing error"),
    ],
)
def test_errors(stub, request_, code, message):
    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(request_)
    assert caught.value.code().name == code
    assert message in caught.value.details()
    assert stub.Predict(request_of(text=["still alive"]))


def test_a_deadline(stub):
    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(request_of("slow", steps=[20_000]), timeout=0.2)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_message_that_is_too_large(versions):
    with (
        served(versions, max_request_bytes=1000) as server,
        grpc.insecure_channel(server.grpc) as channel,
    ):
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
