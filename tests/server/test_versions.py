"""Versions that come, go, are half copied or do not load."""

import asyncio
import contextlib
import io
import json
import pathlib
import shutil
import threading
import time

import aiohttp
import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

from bert_tf.errors import UserError
from bert_tf.server import manager
from bert_tf.server.batching import BatchingParameters
from bert_tf.server.config import ModelConfig, read_models
from bert_tf.server.manager import WARM_UP_FILE
from tests.server.served_models import (
    Background,
    changed_signatures,
    copy_version,
    fetch,
    served,
)

ASK_VERSION = {"signature_name": "version", "instances": ["a"]}


def version_of(server: Background, path: str = "") -> int:
    url = f"{server.rest}/v1/models/m{path}:predict"
    status, answer = fetch(url, ASK_VERSION)
    assert status == 200, answer
    return answer["predictions"][0]


def states(server: Background) -> dict[int, str]:
    _, answer = fetch(f"{server.rest}/v1/models/m")
    return {
        int(one["version"]): one["state"]
        for one in answer["model_version_status"]
    }


def until(check, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


@pytest.fixture
def folder(versions, tmp_path) -> pathlib.Path:
    """A model folder with version 1."""
    copy_version(versions / "1", tmp_path / "m" / "1")
    return tmp_path / "m"


def write_warm_up(version: pathlib.Path, *texts: str) -> None:
    path = version / WARM_UP_FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for text in texts:
            request = predict_pb2.PredictRequest()
            request.model_spec.name = "m"
            request.model_spec.signature_name = "picky"
            # One value that stands for two.
            request.inputs["text"].CopyFrom(tf.make_tensor_proto([text]))
            request.inputs["text"].tensor_shape.dim[0].size = 2
            log = prediction_log_pb2.PredictionLog(
                predict_log=prediction_log_pb2.PredictLog(request=request)
            )
            writer.write(log.SerializeToString())


@pytest.mark.parametrize("batched", [False, True])
def test_a_swap_under_load_loses_no_request(folder, versions, batched):
    batching = BatchingParameters(max_batch_size=8) if batched else None
    with served(folder, batching=batching) as server:
        seen, errors, stop = [], [], threading.Event()

        async def rest_client(session):
            while not stop.is_set():
                async with session.post(
                    f"{server.rest}/v1/models/m:predict",
                    data=io.BytesIO(json.dumps(ASK_VERSION).encode()),
                ) as answer:
                    value = await answer.json()
                    if answer.status == 200:
                        seen.append(value["predictions"][0])
                    else:
                        errors.append(value)

        async def rest_clients():
            async with aiohttp.ClientSession() as session:
                await asyncio.gather(*(rest_client(session) for _ in range(6)))

        def grpc_client():
            request = predict_pb2.PredictRequest()
            request.model_spec.name = "m"
            request.model_spec.signature_name = "version"
            request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a"]))
            with grpc.insecure_channel(server.grpc) as channel:
                stub = prediction_service_pb2_grpc.PredictionServiceStub(
                    channel
                )
                while not stop.is_set():
                    try:
                        response = stub.Predict(request)
                    except grpc.RpcError as error:
                        errors.append(str(error))
                    else:
                        seen.append(response.outputs["version"].int_val[0])

        threads = [
            threading.Thread(target=lambda: asyncio.run(rest_clients())),
            threading.Thread(target=grpc_client),
        ]
        for thread in threads:
            thread.start()
        try:
            until(lambda: seen.count(1) > 50)
            copy_version(versions / "2", folder / "2")
            until(lambda: seen.count(2) > 50)
            until(lambda: states(server) == {1: "END", 2: "AVAILABLE"})
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert errors == []
        assert set(seen) == {1, 2}


def test_a_request_in_flight_keeps_its_version(folder, versions):
    with served(folder) as server:
        body = {"signature_name": "slow", "instances": [5000]}
        answers = []
        url = f"{server.rest}/v1/models/m:predict"
        client = threading.Thread(
            target=lambda: answers.append(fetch(url, body))
        )
        client.start()
        time.sleep(0.2)
        copy_version(versions / "2", folder / "2")
        until(lambda: states(server).get(2) == "AVAILABLE")
        client.join()
        assert answers[0][0] == 200
        until(lambda: states(server)[1] == "END")


def half_copied(versions, folder, kind):
    """Version 2 with something missing."""
    target = folder / "2"
    shutil.copytree(versions / "2", target)
    data = target / "variables" / "variables.data-00000-of-00001"
    graph = target / "saved_model.pb"
    if kind == "no graph":
        graph.unlink()
    elif kind == "half a graph":
        graph.write_bytes(graph.read_bytes()[: graph.stat().st_size // 2])
    elif kind == "no variables":
        shutil.rmtree(target / "variables")
    elif kind == "half the variables":
        data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    elif kind == "empty":
        shutil.rmtree(target)
        target.mkdir()


@pytest.mark.parametrize(
    "kind",
    ["no graph", "half a graph", "no variables", "half the variables", "empty"],
)
def test_a_half_copied_version_waits(folder, versions, kind, capfd):
    with served(folder) as server:
        half_copied(versions, folder, kind)
        if kind != "empty":
            until(lambda: states(server).get(2) == "END")
            _, answer = fetch(f"{server.rest}/v1/models/m/versions/2")
            (status,) = answer["model_version_status"]
            assert status["status"]["error_code"] != "OK"
            assert str(folder / "2") in status["status"]["error_message"]
            assert "version 2 does not load" in capfd.readouterr().err
        assert version_of(server) == 1
        # The rest arrives.
        shutil.copytree(versions / "2", folder / "2", dirs_exist_ok=True)
        until(lambda: states(server).get(2) == "AVAILABLE")
        assert version_of(server) == 2


def test_a_folder_that_still_changes_is_not_loaded(folder, versions):
    with served(folder, poll_wait=0.2) as server:
        shutil.copytree(versions / "2", folder / "2")
        growing = folder / "2" / "growing"
        end = time.monotonic() + 2
        while time.monotonic() < end:
            with growing.open("a") as file:
                file.write("x")
            time.sleep(0.02)
            assert states(server) == {1: "AVAILABLE"}
        until(lambda: states(server).get(2) == "AVAILABLE")


def test_a_folder_that_changes_while_it_is_loaded(
    folder, versions, monkeypatch, capfd
):
    class Meddled(manager.LoadedModel):
        """Finds that version 2 gets one more file, the first time."""

        def __init__(self, path, options):
            super().__init__(path, options)
            if path.name == "2":
                (path / "late").touch()

    monkeypatch.setattr(manager, "LoadedModel", Meddled)
    with served(folder) as server:
        copy_version(versions / "2", folder / "2")
        until(lambda: states(server).get(2) == "END")
        assert "2 changed while it was loaded" in capfd.readouterr().err
        assert version_of(server) == 1
        monkeypatch.undo()
        until(lambda: states(server).get(2) == "AVAILABLE")


def test_at_the_start_the_newest_whole_version_serves(folder, versions):
    half_copied(versions, folder, "half the variables")
    with served(folder) as server:
        assert version_of(server) == 1
        assert states(server) == {1: "AVAILABLE", 2: "END"}


def test_warm_up_runs_and_must_succeed(folder, versions, tmp_path, capfd):
    write_warm_up(folder / "1", "fine", "also fine")
    shutil.copytree(versions / "2", tmp_path / "2")
    write_warm_up(tmp_path / "2", "fine", "bad")
    with served(folder) as server:
        (tmp_path / "2").rename(folder / "2")
        until(lambda: states(server).get(2) == "END")
        assert version_of(server) == 1
        metrics = server.server._metrics.page()
    records = ":tensorflow:serving:model_warmup_records_read"
    assert f'{records}{{model_path="{folder / "1"}",status="OK"}} 2' in metrics
    failed = 'status="INVALID_ARGUMENT"} 1'
    assert f'{records}{{model_path="{folder / "2"}",{failed}' in metrics
    assert "request 1: " in capfd.readouterr().err


def test_a_warm_up_request_stands_for_no_more_than_a_request_may(folder):
    write_warm_up(folder / "1", "fine")
    with (
        pytest.raises(UserError, match="request 0: tensor parsing error: text"),
        served(folder, max_request_bytes=10),
    ):
        pass


def test_a_signature_of_a_tensor_that_is_not_there_does_not_load(folder):
    with changed_signatures(folder / "1") as definitions:
        definitions["pair"].outputs["score"].name = "nothing:0"
    with (
        pytest.raises(UserError, match='"pair" names the tensor nothing:0'),
        served(folder),
    ):
        pass


def test_without_warm_up_a_wrong_file_does_not_matter(folder):
    write_warm_up(folder / "1", "bad")
    with (
        pytest.raises(UserError, match="must not be bad"),
        served(folder),
    ):
        pass
    with served(folder, warm_up=False) as server:
        assert version_of(server) == 1


def test_a_folder_that_vanishes_does_not_end_service(folder):
    with served(folder) as server:
        shutil.rmtree(folder)
        time.sleep(0.5)
        assert version_of(server) == 1


def test_going_back_to_an_older_version(folder, versions):
    copy_version(versions / "2", folder / "2")
    with served(folder) as server:
        assert version_of(server) == 2
        shutil.rmtree(folder / "2")
        until(lambda: states(server) == {1: "AVAILABLE", 2: "END"})
        assert version_of(server) == 1
        copy_version(versions / "2", folder / "2")
        until(lambda: states(server) == {1: "END", 2: "AVAILABLE"})


def test_policies_and_labels(folder, versions):
    copy_version(versions / "2", folder / "2")
    copy_version(versions / "2", folder / "10")
    for config, expected in (
        (ModelConfig("m", folder, num_versions=2), {2, 10}),
        (ModelConfig("m", folder, "all"), {1, 2, 10}),
        (ModelConfig("m", folder, "specific", versions=(1, 2)), {1, 2}),
    ):
        with served(models=(config,)) as server:
            assert set(states(server)) == expected
    labels = (("canary", 2), ("stable", 1))
    config = ModelConfig("m", folder, "all", labels=labels)
    with served(models=(config,)) as server:
        assert version_of(server, "/labels/stable") == 1
        assert version_of(server, "/labels/canary") == 2
        assert version_of(server, "/versions/1") == 1


def test_a_label_needs_its_version(folder):
    config = ModelConfig("m", folder, labels=(("stable", 7),))
    with (
        pytest.raises(UserError, match="'stable' names version 7, .* is 1"),
        served(models=(config,)),
    ):
        pass
    with served(models=(config,), labels_for_unavailable=True) as server:
        url = f"{server.rest}/v1/models/m/labels/stable:predict"
        assert fetch(url, ASK_VERSION)[0] == 404


def test_a_config_file_that_changes(folder, versions, tmp_path):
    path = tmp_path / "models.config"

    def write(*models: tuple[str, pathlib.Path]) -> None:
        entries = "".join(
            f'config {{ name: "{name}" base_path: "{base}" }}\n'
            for name, base in models
        )
        path.write_text(f"model_config_list {{ {entries} }}")

    write(("m", folder))
    with served(folder, config_file=path, config_poll_wait=0.1) as server:
        write(("m", versions), ("n", folder))
        until(lambda: states(server).get(2) == "AVAILABLE")
        assert version_of(server) == 2
        url = f"{server.rest}/v1/models/n:predict"
        until(lambda: fetch(url, ASK_VERSION)[0] == 200)
        path.write_text("nonsense")
        time.sleep(0.5)
        assert version_of(server) == 2
        # The same number from another folder.
        write(("m", folder))
        until(lambda: fetch(url, ASK_VERSION)[0] == 404)
        assert version_of(server) == 1


def reload(server: Background, *models: ModelConfig) -> None:
    server.call(server.server.manager.change_models(models))


def test_a_label_goes_over_when_its_version_is_there(
    folder, versions, monkeypatch
):
    copy_version(versions / "2", folder / "2")
    started, go_on = threading.Event(), threading.Event()

    class Waiting(manager.LoadedModel):
        def __init__(self, path, options):
            started.set()
            assert go_on.wait(30)
            super().__init__(path, options)

    def config(number: int) -> ModelConfig:
        labels = (("stable", number),)
        return ModelConfig("m", folder, "all", labels=labels)

    only = ModelConfig(
        "m", folder, "specific", versions=(1,), labels=(("stable", 1),)
    )
    with served(models=(only,)) as server:
        monkeypatch.setattr(manager, "LoadedModel", Waiting)
        changing = threading.Thread(target=lambda: reload(server, config(2)))
        changing.start()
        assert started.wait(30)
        assert version_of(server, "/labels/stable") == 1
        go_on.set()
        changing.join()
        assert version_of(server, "/labels/stable") == 2
        # A version that is not there, and one that does not load.
        half_copied(versions, folder.parent, "half a graph")
        (folder.parent / "2").rename(folder / "3")
        for number in (7, 3):
            with pytest.raises(
                manager.LabelError, match=f"to version {number} of model m"
            ):
                reload(server, config(number))
            assert version_of(server, "/labels/stable") == 2
        assert states(server)[2] == "AVAILABLE"


def test_a_label_may_wait_but_not_leave_its_version(folder):
    stable = ModelConfig("m", folder, labels=(("stable", 1),))
    moved = ModelConfig("m", folder, labels=(("stable", 2),))
    both = ModelConfig("m", folder, labels=(("next", 2), ("stable", 1)))
    with served(models=(stable,), labels_for_unavailable=True) as server:
        with pytest.raises(manager.LabelError, match="'stable' names"):
            reload(server, moved)
        reload(server, both)
        assert version_of(server, "/labels/stable") == 1
        url = f"{server.rest}/v1/models/m/labels/next:predict"
        assert fetch(url, ASK_VERSION)[0] == 404


def test_a_reload_that_is_refused_leaves_all_as_it_was(folder, versions):
    before = ModelConfig("m", folder, labels=(("stable", 1),))
    moved = ModelConfig("m", versions, labels=(("stable", 2),))
    with served(models=(before,)) as server:
        for other, error in (
            (folder.parent / "none", "no such folder"),
            (folder.parent / "broken", "has no file saved_model.pb"),
        ):
            (folder.parent / "broken" / "1").mkdir(parents=True, exist_ok=True)
            (folder.parent / "broken" / "1" / "other").touch()
            with pytest.raises(UserError, match=error):
                reload(server, moved, ModelConfig("n", other))
            assert version_of(server, "/labels/stable") == 1
            assert version_of(server) == 1


def test_a_reload_goes_on_without_its_client(folder, versions):
    async def impatient(change) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(change, 0.001)

    with served(folder) as server:
        moved = ModelConfig("m", versions)
        change = server.server.manager.change_models((moved,))
        server.call(impatient(change))
        until(lambda: states(server) == {1: "END", 2: "AVAILABLE"})


def test_a_reload_with_no_models(folder):
    with served(folder) as server:
        reload(server)
        until(lambda: states(server) == {1: "END"})
        url = f"{server.rest}/v1/models/m:predict"
        status, answer = fetch(url, ASK_VERSION)
        assert status == 404
        assert "Servable not found for request: Latest(m)" in answer["error"]
        reload(server, ModelConfig("m", folder))
        assert version_of(server) == 1


def test_a_polled_label_waits_for_its_version(folder, versions, tmp_path):
    path = tmp_path / "models.config"
    text = f'''model_config_list {{ config {{ name: "m" base_path: "{folder}"
        version_labels {{ key: "stable" value: %d }} }} }}'''
    path.write_text(text % 1)
    config = read_models(path)
    with served(
        models=config, config_file=path, config_poll_wait=0.1
    ) as server:
        path.write_text(text % 2)
        time.sleep(0.5)
        assert version_of(server, "/labels/stable") == 1
        copy_version(versions / "2", folder / "2")
        url = f"{server.rest}/v1/models/m/labels/stable:predict"
        until(lambda: fetch(url, ASK_VERSION) == (200, {"predictions": [2]}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda base: base / "none", "no such folder"),
        (lambda base: base, r"no version folder \(1, 2, ...\)"),
    ],
)
def test_nothing_to_serve(tmp_path, make, message):
    with pytest.raises(UserError, match=message), served(make(tmp_path)):
        pass


def test_a_version_folder_is_no_base_path(versions):
    with (
        pytest.raises(UserError, match="give the folder it lies in"),
        served(versions / "1"),
    ):
        pass


def test_only_a_broken_version(versions, tmp_path):
    half_copied(versions, tmp_path, "half a graph")
    with pytest.raises(UserError, match="model 'm': .*/2: "), served(tmp_path):
        pass


def test_a_port_that_is_taken(folder):
    with served(folder) as server:
        for setting in ("rest_port", "grpc_port"):
            port = getattr(server.server, setting)
            with (
                pytest.raises(UserError, match=f"`{setting}`={port}: "),
                contextlib.ExitStack() as stack,
            ):
                stack.enter_context(served(folder, **{setting: port}))
