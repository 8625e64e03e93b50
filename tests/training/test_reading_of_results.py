"""When the host reads the results of steps does not change a training."""

import pathlib
import signal

import numpy as np
import pytest

from bert_tf.errors import RunStopped, UserError
from bert_tf.training import loop, step
from bert_tf.training.loop import TrainingLoop
from bert_tf.training.recovery import Backoff, LossScale
from bert_tf.training.sentinel import NonFiniteError
from tests.run_folders import history
from tests.training.tiny_run import (
    BATCH,
    STEPS,
    assert_same,
    make_loop,
    rows,
    state,
)
from tests.user_errors import error_of

# Name, whether results are read after each step, as on a CPU, and whether
# several steps are one call, as on a TPU; neither is the way of a GPU.
WAYS = {"each": (True, False), "few": (False, False), "several": (False, True)}
# Loops over steps of replicas on logical CPUs return nothing (TensorFlow 2.21).
MIRRORED = ("each", "few")


def read_as(monkeypatch, way: str) -> None:
    """Reads results as where there are only CPUs, on GPUs or on TPUs."""
    each_step, several = WAYS[way]
    for module in (loop, step):
        monkeypatch.setattr(module, "has_accelerator", lambda: not each_step)
    monkeypatch.setattr(step, "needs_static_shapes", lambda _: several)
    # Equal bits need the same compiler.
    monkeypatch.setattr(step, "XLA_MIN_PARAMETERS", 0)


def spoilt(name: str, value: object, *numbers: int) -> dict[str, np.ndarray]:
    """Rows of which one is damaged in each of some steps' batches."""
    data = rows(STEPS * BATCH)
    for number in numbers:
        data[name][(number - 1) * BATCH + 3, 2] = value
    return data


@pytest.fixture(scope="module")
def courses(tmp_path_factory):
    """The folder of the whole run in each way, and of two replicas."""
    root = tmp_path_factory.mktemp("courses")

    def finish(way: str, strategy: str = "one_device") -> pathlib.Path:
        folder = root / f"{way}_{strategy}"
        if not folder.exists():
            with pytest.MonkeyPatch.context() as patch:
                read_as(patch, way)
                make_loop(folder, strategy=strategy).run()
        return folder

    return finish


@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
def test_the_numbers_are_those_of_reading_each_step(
    strategy, courses, monkeypatch
):
    reads, read = [], loop.read_results
    monkeypatch.setattr(
        loop,
        "read_results",
        lambda results: reads.append(len(results)) or read(results),
    )
    ways = list(WAYS) if strategy == "one_device" else MIRRORED
    for way in ways:
        assert_same(courses(way, strategy), courses("each", strategy))
    steps = [row["step"] for row in history(courses("few", strategy))]
    assert steps == [8, 16, 20]
    # The first steps of both phases, log steps, states, and the phases' ends.
    assert reads == [1] * STEPS + (len(ways) - 1) * [1, 7, 2, 3, 1, 2, 4]


@pytest.fixture(scope="module")
def weights_after_steps(tmp_path_factory) -> list[list[np.ndarray]]:
    """The weights at the start and after each step of a plain run."""
    with pytest.MonkeyPatch.context() as patch:
        read_as(patch, "each")
        plain = make_loop(tmp_path_factory.mktemp("plain"))
        weights = [[v.numpy() for v in plain.step.variables]]
        for batch in plain.phases[0].batches(0):
            plain.step(batch)
            weights.append([v.numpy() for v in plain.step.variables])
    return weights


@pytest.mark.parametrize(
    ("way", "number"), [("each", 8), ("few", 4), ("several", 20)]
)
def test_a_bad_step_is_named_and_ends_the_run(
    way, number, weights_after_steps, tmp_path, monkeypatch
):
    read_as(monkeypatch, way)
    data = spoilt("x", np.nan, number, min(number + 2, STEPS))
    own = make_loop(tmp_path / "bad", data)
    with pytest.raises(NonFiniteError) as caught:
        own.run()
    assert f"step {number}: " in str(caught.value)
    assert "the input x" in str(caught.value)
    (kept,) = (tmp_path / "bad").glob("*.npz")
    assert kept.name == f"bad_batch_step_{number}.npz"
    part = slice((number - 1) * BATCH, number * BATCH)
    np.testing.assert_array_equal(np.load(kept)["x"], data["x"][part])
    # The weights are those before the step.
    weights = [v.numpy() for v in own.step.variables]
    np.testing.assert_equal(weights, weights_after_steps[number - 1])


@pytest.mark.parametrize("kind", [Backoff, LossScale])
def test_steps_are_skipped_alike(kind, tmp_path, monkeypatch, capsys):
    bad = [3, 4, 12, 16]
    name = {Backoff: "backoff", LossScale: "loss_scale"}[kind]
    printed = []
    # No TPU computes in float16.
    ways = list(WAYS) if kind is Backoff else ["each", "few"]
    for way in ways:
        read_as(monkeypatch, way)
        data = spoilt("x", np.nan, *bad)
        make_loop(tmp_path / way, data, **{name: kind()}).run()
        printed.append(capsys.readouterr().out.replace(way, ""))
        assert_same(tmp_path / way, tmp_path / "each")
    left = state(tmp_path / ways[-1])
    kept = list((tmp_path / "few").glob("*.npz"))
    if kind is Backoff:
        assert len(set(printed)) == 1
        line = "step 12: loss or gradient is not finite; the input x"
        assert "learning rate is 0.125 times" in printed[0]
        assert left["Backoff/rate_factor:0"] == 0.5 ** len(bad)
        assert len(kept) == len(bad)
    else:
        line = "step 12: float16 overflow"
        assert left["LossScale/loss_scale:0"] == 2.0 ** (15 - len(bad))
        assert not kept
    assert line in printed[0]


def test_ten_bad_steps_in_a_row_end_the_run(tmp_path):
    data = spoilt("x", np.nan, 3, *range(8, 18))
    with pytest.raises(NonFiniteError, match="step 17: loss or gradient"):
        make_loop(tmp_path, data, backoff=Backoff()).run()
    # After step 10: one bad step, four good ones, three bad ones.
    left = state(tmp_path)
    assert left["Backoff/rate_factor:0"] == 0.5**4
    for array in left.values():
        assert np.isfinite(array).all()


@pytest.mark.parametrize(
    ("way", "remedy"),
    [("each", {}), ("several", {}), ("few", {"loss_scale": LossScale})],
)
def test_ids_outside_their_limits_are_named(way, remedy, tmp_path, monkeypatch):
    read_as(monkeypatch, way)
    data = spoilt("input_mask", 9, 12)
    made = {name: kind() for name, kind in remedy.items()}
    own = make_loop(tmp_path, data, limits={"input_mask": 2}, **made)
    line = error_of(own.run)
    assert line.startswith("step 12: input_mask[3, 2] is 9")
    assert "[0, 2)" in line
    assert (tmp_path / "bad_batch_step_12.npz").exists()
    assert max(tmp_path.glob("checkpoints/*")).name == "step-00000010"


@pytest.mark.parametrize(
    ("way", "strategy"),
    # Reading each step is tested in test_resuming.py.
    [("few", "one_device"), ("several", "one_device"), ("each", "mirrored")],
)
def test_asked_to_stop_it_saves_that_step_and_goes_on(
    way, strategy, courses, tmp_path, monkeypatch
):
    whole = courses(way, strategy)
    read_as(monkeypatch, way)
    train = TrainingLoop._train

    def stopped(self, phase, batch, number, progress, history):
        # A call of several steps ends at 8.
        if number in (5, 8):
            signal.raise_signal(signal.SIGTERM)
        train(self, phase, batch, number, progress, history)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_train", stopped)
        with pytest.raises(RunStopped, match="stopped at step [58] of 20"):
            make_loop(tmp_path, strategy=strategy).run()
    make_loop(tmp_path, strategy=strategy).run()
    assert_same(tmp_path, whole)


def test_ids_of_another_worker(tmp_path):
    """Its own line names them; this one has none to name."""
    own = make_loop(tmp_path)
    batch = next(iter(own.phases[0].batches(0)))
    result = loop.read_results([own.step(batch)])[0]
    with pytest.raises(UserError, match="another worker's batch has ids"):
        own._sentinel.explain(batch, 1, result)
