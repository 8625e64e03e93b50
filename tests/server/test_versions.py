"""Versions that come, go, are half copied or do not load."""

import asyncio
import contextlib
import pathlib
import shutil
import threading
import time

import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from bert_tf.errors import UserError
from bert_tf.server import manager
from bert_tf.server.config import ModelConfig, read_models
from bert_tf.server.manager import WARM_UP_FILE
from tests.server.served_models import (
    Background,
    changed_signatures,
    copy_version,
    fetch,
    predict_request,
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
    found = answer["model_version_status"]
    return {int(one["version"]): one["state"] for one in found}


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
            request = predict_request("picky", text=[text])
            # One value that stands for two.
            request.inputs["text"].tensor_shape.dim[0].size = 2
            log = prediction_log_pb2.PredictionLog(
                predict_log=prediction_log_pb2.PredictLog(request=request)
            )
            writer.write(log.SerializeToString())


def test_a_request_in_flight_keeps_its_version(folder, versions):
    with served(folder) as server:
        body = {"signature_name": "slow", "instances": ["5000"]}
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


def halve(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DATA = "variables/variables.data-00000-of-00001"
LACKS = {
    "the graph": lambda version: (version / "saved_model.pb").unlink(),
    "half of the graph": lambda version: halve(version / "saved_model.pb"),
    "the variables": lambda version: shutil.rmtree(version / "variables"),
    "half of the variables": lambda version: halve(version / DATA),
}


def half_copied(versions, target, lacks):
    """Version 2 with something missing."""
    shutil.copytree(versions / "2", target)
    LACKS[lacks](target)


def test_a_half_copied_version_waits(folder, versions, capfd):
    with served(folder) as server:
        (folder / "2").mkdir()
        for number, lacks in enumerate(LACKS, 3):
            target = folder / str(number)
            half_copied(versions, target, lacks)
            until(lambda n=number: states(server).get(n) == "END")
            _, answer = fetch(f"{server.rest}/v1/models/m/versions/{number}")
            (status,) = answer["model_version_status"]
            assert status["status"]["error_code"] != "OK"
            assert str(target) in status["status"]["error_message"]
            said = f"version {number} failed to load"
            assert said in capfd.readouterr().err
            assert version_of(server) == (1 if number == 3 else 2)
            # The rest arrives.
            shutil.copytree(versions / "2", target, dirs_exist_ok=True)
            until(lambda n=number: states(server).get(n) == "AVAILABLE")
            assert version_of(server) == 2


def test_a_folder_that_still_changes_is_not_loaded(folder, versions):
    with served(folder, poll_wait=0.1) as server:
        shutil.copytree(versions / "2", folder / "2")
        growing = folder / "2" / "growing"
        end = time.monotonic() + 1
        while time.monotonic() < end:
            with growing.open("a") as file:
                file.write("x")
            time.sleep(0.02)
            assert states(server) == {1: "AVAILABLE"}
        until(lambda: states(server).get(2) == "AVAILABLE")


def test_a_folder_that_changes_in_loading(folder, versions, monkeypatch, capfd):
    class Meddled(manager.LoadedModel):
        """Finds that version 2 gets one more file, the first time."""

        def __init__(self, path, *options):
            super().__init__(path, *options)
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
    half_copied(versions, folder / "2", "half of the variables")
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
    with served(folder, warm_up=False) as server:
        assert version_of(server) == 2


def test_going_back_to_an_older_version(folder, versions):
    copy_version(versions / "2", folder / "2")
    with served(folder) as server:
        assert version_of(server) == 2
        shutil.rmtree(folder / "2")
        until(lambda: states(server) == {1: "AVAILABLE", 2: "END"})
        assert version_of(server) == 1
        copy_version(versions / "2", folder / "2")
        until(lambda: states(server) == {1: "END", 2: "AVAILABLE"})
        # A folder that vanishes does not end service.
        shutil.rmtree(folder)
        time.sleep(0.3)
        assert version_of(server) == 2


def test_a_config_file_that_changes(folder, versions, tmp_path):
    path = tmp_path / "models.config"

    def write(*models: tuple[str, pathlib.Path]) -> None:
        entries = "".join(
            f'config {{ name: "{name}" base_path: "{base}" }}\n'
            for name, base in models
        )
        path.write_text(f"model_config_list {{ {entries} }}")

    write(("m", folder))
    with served(folder, config_file=path, config_poll_wait=0.05) as server:
        write(("m", versions), ("n", folder))
        until(lambda: states(server).get(2) == "AVAILABLE")
        assert version_of(server) == 2
        url = f"{server.rest}/v1/models/n:predict"
        until(lambda: fetch(url, ASK_VERSION)[0] == 200)
        path.write_text("nonsense")
        time.sleep(0.3)
        assert version_of(server) == 2
        # The same number from another folder.
        write(("m", folder))
        until(lambda: fetch(url, ASK_VERSION)[0] == 404)
        assert version_of(server) == 1


def reload(server: Background, *models: ModelConfig) -> None:
    server.call(server.server.manager.change_models(models))


def test_a_label_goes_over_to_what_is_there(folder, versions, monkeypatch):
    copy_version(versions / "2", folder / "2")
    started, go_on = threading.Event(), threading.Event()

    class Waiting(manager.LoadedModel):
        def __init__(self, *options):
            started.set()
            assert go_on.wait(30)
            super().__init__(*options)

    def config(number: int) -> ModelConfig:
        labels = (("stable", number),)
        return ModelConfig("m", folder, "all", labels=labels)

    label = {"labels": (("stable", 1),)}
    only = ModelConfig("m", folder, "specific", versions=(1,), **label)
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
        half_copied(versions, folder.parent / "2", "half of the graph")
        (folder.parent / "2").rename(folder / "3")
        for number in (7, 3):
            line = f"to version {number} of model m"
            with pytest.raises(manager.LabelError, match=line):
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


def test_a_polled_label_waits_for_its_version(folder, versions, tmp_path):
    path = tmp_path / "models.config"
    text = f'''model_config_list {{ config {{ name: "m" base_path: "{folder}"
        version_labels {{ key: "stable" value: %d }} }} }}'''
    path.write_text(text % 1)
    config = read_models(path)
    polled = {"config_file": path, "config_poll_wait": 0.05}
    with served(models=config, **polled) as server:
        path.write_text(text % 2)
        time.sleep(0.3)
        assert version_of(server, "/labels/stable") == 1
        copy_version(versions / "2", folder / "2")
        url = f"{server.rest}/v1/models/m/labels/stable:predict"
        until(lambda: fetch(url, ASK_VERSION) == (200, {"predictions": [2]}))


def _missing_tensor(version):
    with changed_signatures(version) as definitions:
        definitions["pair"].outputs["score"].name = "nothing:0"


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (lambda v: shutil.rmtree(v.parent), {}, "'m': no such folder: .*/m"),
        (shutil.rmtree, {}, r"no version folder \(1, 2, ...\) in .*/m"),
        (lambda v: v.replace(v.with_name("saved_model.pb")), {}, "its parent"),
        (LACKS["half of the graph"], {}, "model 'm': .*/1: "),
        (_missing_tensor, {}, '"pair" names the tensor nothing:0'),
        (
            *(lambda v: write_warm_up(v, "fine"), {"max_request_bytes": 10}),
            "request 0: tensor parsing error: text",
        ),
        (lambda v: None, {"labels": (("stable", 7),)}, "7; available: 1"),
    ],
)
def test_nothing_to_serve(folder, change, settings, message):
    change(folder / "1")
    model = ModelConfig("m", folder, labels=settings.pop("labels", ()))
    with (
        pytest.raises(UserError, match=message),
        served(models=(model,), **settings),
    ):
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
