"""The time that the demo says is left; its parts are tested where they are."""

import importlib
import itertools
import re
import sys
import types
from unittest import mock

import pytest
from absl import flags


@pytest.fixture
def demo():
    """The module, whose flags are also those of other commands."""
    fresh = flags.FlagValues().__dict__
    with mock.patch.dict(flags.FLAGS.__dict__, fresh):
        yield importlib.import_module("tools.demo")
    del sys.modules["tools.demo"]


def test_the_time_left_follows_the_machine(demo, monkeypatch, capsys):
    def left() -> int:
        printed = capsys.readouterr().out
        return int(re.search(r"about (\d+) seconds left in all", printed)[1])

    planned = sum(demo._PARTS.values())
    monkeypatch.setattr(demo, "_pace", lambda: 2.0)
    clock = demo._Clock()
    *before, training, masks, tuning = demo._PARTS
    for part in (*before, training):
        clock.begin(part, "")
    assert left() == 2 * planned
    # Three times as slow as planned.
    done = planned - demo._PARTS[masks] - demo._PARTS[tuning]
    monkeypatch.setattr(clock, "seconds", lambda: 3.0 * done)
    clock.begin(masks, "")
    assert left() == 3 * (planned - done)


def test_the_pace_is_the_root_of_that_of_the_products(demo, monkeypatch):
    ticks = itertools.count(0.0, 4 * demo._SECONDS_OF_PRODUCTS)
    # The demo's own clock: other threads read that of the module time.
    clock = types.SimpleNamespace(monotonic=lambda: next(ticks))
    monkeypatch.setattr(demo, "time", clock)
    assert demo._pace() == pytest.approx(2.0)
