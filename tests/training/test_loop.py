"""The clock of a training, and what interrupts it."""

import os
import signal
import threading

import pytest

from bert_tf.training import loop
from bert_tf.training.loop import Speed, StopRequest


def test_tracing_and_pauses_do_not_count(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
    clock = Speed()
    now[0] += 50
    clock.advance(8, 80)
    assert clock.rates()["sequences_per_second"] == 0
    for _ in range(3):
        now[0] += 2
        clock.advance(8, 70)
    now[0] += 30
    clock.pause(30)
    assert clock.rates() == {
        "sequences_per_second": pytest.approx(4),
        "tokens_per_second": pytest.approx(35),
    }
    clock.expect_tracing()
    now[0] += 99
    clock.advance(8, 80)
    now[0] += 1
    clock.advance(16, 100)
    assert str(clock) == "16.0 sequences/s, 100 tokens/s"


def test_noted_once_and_put_back(capsys):
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as request:
        assert not request.made
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        assert request.made
    assert signal.getsignal(signal.SIGTERM) == before
    assert capsys.readouterr().err.count("received SIGTERM") == 1


def test_a_block_that_changes_nothing_is_ended(capsys):
    with StopRequest() as request:
        with request.at_once():
            pass
        with pytest.raises(loop._StopAtOnceError), request.at_once():
            os.kill(os.getpid(), signal.SIGTERM)
        # It is recorded too, and ends the next block before it begins.
        assert request.made
        with pytest.raises(loop._StopAtOnceError), request.at_once():
            request.made = False
        assert request.made
    assert capsys.readouterr().err.count("received SIGTERM") == 1


def test_outside_the_main_thread():
    found = []

    def run():
        with StopRequest() as request:
            found.append(request.made)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [False]


@pytest.fixture
def default_interrupt():
    """A shell has Ctrl-C ignored in what runs in its background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_interrupt")
def test_the_first_interrupt_is_noted_and_the_second_stops(capsys):
    with StopRequest() as request:
        os.kill(os.getpid(), signal.SIGINT)
        assert request.made
        assert request.interrupted
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert "again stops at once" in capsys.readouterr().err
    with StopRequest() as request:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert request.made
        assert not request.interrupted


@pytest.mark.parametrize("own", [signal.SIG_IGN, lambda number, frame: None])
def test_a_handler_of_the_user_stays(own):
    before = signal.signal(signal.SIGINT, own)
    try:
        with StopRequest() as request:
            os.kill(os.getpid(), signal.SIGINT)
            assert not request.made
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
