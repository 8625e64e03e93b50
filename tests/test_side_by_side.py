"""Batches side by side: in order, as many as there are cores, errors too."""

import os
import threading
import time
from types import SimpleNamespace

import pytest
import tensorflow as tf

from bert_tf import side_by_side as module
from bert_tf.side_by_side import one_core_a_batch, side_by_side


@pytest.fixture
def cores(monkeypatch) -> None:
    """Three cores, of which an operation has one."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
    monkeypatch.setattr(module, "cores_per_batch", lambda: 1)


def test_results_come_in_order_of_as_many_threads_as_cores(cores) -> None:
    together, running, most = threading.Lock(), 0, 0
    meeting = threading.Barrier(3, timeout=30)

    def square(number: int) -> int:
        nonlocal running, most
        with together:
            running += 1
            most = max(most, running)
        # Behind the first, three at a time or never.
        if 1 <= number <= 3:
            meeting.wait()
        time.sleep(0.01 * (5 - number % 5))
        with together:
            running -= 1
        return number**2

    found = list(side_by_side(square, iter(range(14))))
    assert found == [n**2 for n in range(14)]
    assert most == 3


def test_items_are_read_as_they_are_needed(cores) -> None:
    items = iter(range(100))
    results = side_by_side(lambda number: number, items)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert next(items) < 10


def test_an_error_ends_it(cores) -> None:
    def failing(number: int) -> int:
        if number == 2:
            raise ValueError("two")
        return number

    results = side_by_side(failing, range(1000))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
        next(results)


@pytest.mark.parametrize(
    ("kinds", "expected"), [(["CPU"], [1]), (["CPU", "GPU"], [])]
)
def test_accelerators_leave_operations_as_they_are(
    kinds, expected, cores, monkeypatch
) -> None:
    said: list[int] = []
    monkeypatch.setattr(module, "cores_per_batch", lambda: 0)
    monkeypatch.setattr(
        tf.config.threading, "set_intra_op_parallelism_threads", said.append
    )
    monkeypatch.setattr(
        tf.config,
        "list_physical_devices",
        lambda: [SimpleNamespace(device_type=kind) for kind in kinds],
    )
    one_core_a_batch()
    assert said == expected


def test_by_itself_nothing_runs_side_by_side() -> None:
    """TensorFlow gives each operation all cores."""
    assert tf.config.threading.get_intra_op_parallelism_threads() == 0
    here = threading.get_ident()
    found = list(side_by_side(lambda _: threading.get_ident(), range(3)))
    assert found == [here] * 3
    # TensorFlow has computed in this process, so that it is too late.
    tf.constant(1) + 1
    one_core_a_batch()
    assert tf.config.threading.get_intra_op_parallelism_threads() == 0
