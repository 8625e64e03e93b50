"""TF_CONFIG, read strictly, and waiting for workers by name."""

import json
import os
import socket
import threading
import time

import pytest

from bert_tf.errors import UserError
from bert_tf.training.cluster import Cluster
from tests.workers import free_addresses


def read(monkeypatch, content):
    text = content if isinstance(content, str) else json.dumps(content)
    monkeypatch.setenv("TF_CONFIG", text)
    return Cluster.from_environment()


def config(cluster, kind="worker", index=0):
    return {"cluster": cluster, "task": {"type": kind, "index": index}}


def test_workers_and_a_chief(monkeypatch):
    workers = {"worker": ["a:1", "b:2"]}
    second = read(monkeypatch, config(workers, index=1))
    assert second == Cluster(("a:1", "b:2"), 1)
    assert not second.is_chief
    assert second.name(1) == "worker 1 (b:2)"
    assert read(monkeypatch, config(workers)).is_chief
    both = {"chief": ["c:3"], **workers}
    chief = read(monkeypatch, config(both, "chief"))
    assert chief == Cluster(("c:3", "a:1", "b:2"), 0)
    assert read(monkeypatch, config(both, "worker", 1)).index == 2
    assert chief.shard.part(9) == slice(0, 3)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "TF_CONFIG is not set; set it on every worker"),
        ("{", "TF_CONFIG: is not JSON"),
        ("[1]", "has no object 'cluster'"),
        ({"cluster": {"worker": ["a:1"]}}, "has no object 'task'"),
        (config({}), "names no worker"),
        (config({"worker": "a:1"}), "worker is no list of addresses"),
        (config({"worker": ["a"]}), "'a' of worker is not host:port"),
        (config({"worker": ["a:0"]}), "'a:0' of worker is not host:port"),
        (config({"worker": ["a:x", "b:1"]}), "'a:x' of worker is not host"),
        (config({"worker": ["a:1", "a:1"]}), "names a:1 more than once"),
        (config({"worker": ["a:1"]}, index=1), "task index 1, but 1 of type"),
        (config({"worker": ["a:1"]}, index="0"), "has task index '0', but 1"),
        (config({"worker": ["a:1"]}, "evaluator"), "has task type 'evaluator'"),
        (config({"worker": ["a:1"]}, "chief"), "has task index 0, but 0 of"),
        (config({"worker": ["a:1"], "ps": ["b:1"]}), "has tasks of type 'ps'"),
        (config({"chief": ["a:1", "b:1"]}), "names 2 chiefs; there is one"),
    ],
)
def test_malformed(monkeypatch, content, expected):
    with pytest.raises(UserError) as caught:
        read(monkeypatch, content)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_workers_meet_in_any_order():
    addresses = tuple(free_addresses(3))
    met = []

    def come(index, delay):
        time.sleep(delay)
        Cluster(addresses, index).wait_for_all(30)
        met.append(index)
        # TensorFlow's server listens from now on.
        _, port = addresses[index].split(":")
        with socket.create_server(("", int(port))):
            time.sleep(1)

    given = [(index, 0.2 * index) for index in range(3)]
    threads = [threading.Thread(target=come, args=each) for each in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert sorted(met) == [0, 1, 2]


def test_those_that_do_not_come_are_named():
    first, second, third = free_addresses(3)
    with socket.create_server(("127.0.0.1", int(second.split(":")[1]))):
        with pytest.raises(UserError) as caught:
            Cluster((first, second, third), 0).wait_for_all(0.5)
    line = str(caught.value)
    assert f"worker 0 ({first}) waited 0.5 s for worker 2 ({third});" in line
    assert second not in line


def test_a_taken_port_is_said():
    first, second = free_addresses(2)
    with socket.create_server(("", int(first.split(":")[1]))):
        with pytest.raises(UserError) as caught:
            Cluster((first, second), 0).wait_for_all(0.5)
    assert f"worker 0 ({first}): cannot listen at port" in str(caught.value)
    assert "TF_CONFIG" not in os.environ
