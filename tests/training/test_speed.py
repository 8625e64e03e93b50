import pytest

from bert_tf.training import loop
from bert_tf.training.loop import Speed


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
