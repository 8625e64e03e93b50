import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.training.cluster import Devices
from bert_tf.training.strategies import make_strategy, split_cpu


def test_mirrored_spans_the_logical_cpus():
    two = make_strategy("mirrored", Devices(logical_cpus=2))
    assert two.num_replicas_in_sync == 2
    assert make_strategy("one_device").num_replicas_in_sync == 1


def test_mirrored_with_one_device_says_what_would_do(monkeypatch):
    cpu = tf.config.list_logical_devices("CPU")[:1]
    monkeypatch.setattr(
        tf.config,
        "list_logical_devices",
        lambda kind: cpu if kind == "CPU" else [],
    )
    with pytest.raises(UserError, match="found 1 device .*`logical_cpus`=2"):
        make_strategy("mirrored")


def test_bad_values():
    with pytest.raises(UserError, match="`strategy`='many': takes one of"):
        make_strategy("many")
    with pytest.raises(UserError, match="`logical_cpus`=-1"):
        split_cpu(-1)
    with pytest.raises(UserError, match="already in use"):
        split_cpu(3)
