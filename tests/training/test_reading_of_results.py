"""When the host reads the results of steps does not change a training."""

import contextlib
import pathlib
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import read_arrays
from bert_tf.errors import RunStopped, UserError
from bert_tf.optimization import adamw
from bert_tf.training import loop, step
from bert_tf.training.loop import Phase, TrainingLoop
from bert_tf.training.recipe import TrainingRecipe
from bert_tf.training.recovery import Backoff, LossScale
from bert_tf.training.run_folder import RunFolders
from bert_tf.training.sentinel import NonFiniteError
from bert_tf.training.step import TrainingStep
from bert_tf.training.strategies import make_strategy
from tests.run_folders import history
from tests.training.test_step import Regressor, WeightedSquares, rows
from tests.user_errors import error_of

STEPS, LOG_STEPS, BATCH = 20, 8, 8


# Name, whether results are read after each step, as on a CPU, and whether
# several steps are one call, as on a TPU; neither is the way of a GPU.
WAYS = {"each": (True, False), "few": (False, False), "several": (False, True)}
# Loops over steps of replicas on logical CPUs return nothing (TensorFlow 2.21).
MIRRORED = ("each", "few")
every_way = pytest.mark.parametrize("way", WAYS)


def read_as(monkeypatch, way: str) -> None:
    """Reads results as where there are only CPUs, on GPUs or on TPUs."""
    each_step, several = WAYS[way]
    for module in (loop, step):
        monkeypatch.setattr(module, "has_accelerator", lambda: not each_step)
    monkeypatch.setattr(step, "needs_static_shapes", lambda _: several)
    # Equal bits need the same compiler.
    monkeypatch.setattr(step, "XLA_MIN_PARAMETERS", 0)


def make_loop(
    folder: pathlib.Path, data=None, strategy="one_device", **more
) -> TrainingLoop:
    """A run of two phases, the second from step 13 on."""
    data = data or rows(STEPS * BATCH)
    chosen = make_strategy(strategy)
    keras.utils.set_random_seed(7)
    with chosen.scope():
        training_step = TrainingStep(
            Regressor(0.3),
            WeightedSquares(),
            adamw(0.03, STEPS, clip_norm=None),
            chosen,
            **more,
        )
    whole = tf.data.Dataset.from_tensor_slices(data).batch(BATCH, True)
    phases = [
        Phase(count, BATCH, lambda k, first=first: whole.skip(first + k), None)
        for first, count in ((0, 13), (13, STEPS - 13))
    ]
    folder.mkdir(exist_ok=True)
    return TrainingLoop(
        training_step,
        None,
        phases,
        RunFolders(folder, folder),
        TrainingRecipe(log_steps=LOG_STEPS, save_checkpoints_steps=10),
        eval_steps=STEPS,
        reading=contextlib.nullcontext,
        fingerprint={},
    )


def state(folder: pathlib.Path) -> dict[str, np.ndarray]:
    newest = max(folder.glob("checkpoints/step-*"))
    return read_arrays(newest / "state.safetensors")


def assert_same(first: pathlib.Path, second: pathlib.Path) -> None:
    assert history(first) == history(second)
    expected = state(second)
    for name, array in state(first).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


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


@pytest.mark.parametrize(
    ("way", "number"),
    [("each", 8), ("few", 4), ("few", 20), ("several", 4), ("several", 20)],
)
def test_a_bad_step_is_named_and_ends_the_run(
    way, number, tmp_path, monkeypatch
):
    read_as(monkeypatch, way)
    data = spoilt("x", np.nan, number, min(number + 2, STEPS))
    own = make_loop(tmp_path / "bad", data)
    with pytest.raises(NonFiniteError) as caught:
        own.run()
    assert f"step {number}: loss or gradient is not finite; the input x" in (
        str(caught.value)
    )
    (kept,) = (tmp_path / "bad").glob("*.npz")
    assert kept.name == f"bad_batch_step_{number}.npz"
    part = slice((number - 1) * BATCH, number * BATCH)
    np.testing.assert_array_equal(np.load(kept)["x"], data["x"][part])
    # The weights are those before the step.
    good = make_loop(tmp_path / "good")
    batches = iter(good.phases[0].batches(0))
    for _ in range(number - 1):
        good.step(next(batches))
    for actual, expected in zip(
        own.step.variables, good.step.variables, strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("kind", [Backoff, LossScale])
def test_steps_are_skipped_alike(kind, tmp_path, monkeypatch, capsys):
    bad = [3, 4, 12, 16]
    name = {Backoff: "backoff", LossScale: "loss_scale"}[kind]
    printed = []
    for way in WAYS:
        read_as(monkeypatch, way)
        data = spoilt("x", np.nan, *bad)
        make_loop(tmp_path / way, data, **{name: kind()}).run()
        printed.append(capsys.readouterr().out.replace(way, ""))
        assert_same(tmp_path / way, tmp_path / "each")
    left = state(tmp_path / "several")
    kept = list((tmp_path / "few").glob("*.npz"))
    if kind is Backoff:
        assert len(set(printed)) == 1
        line = "step 12: loss or gradient is not finite; the input x"
        assert "learning rate is 0.125 times the schedule's" in printed[0]
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


@pytest.mark.parametrize("remedy", [{}, {"loss_scale": LossScale}])
@every_way
def test_ids_outside_their_limits_are_named(way, remedy, tmp_path, monkeypatch):
    read_as(monkeypatch, way)
    data = spoilt("input_mask", 9, 12)
    made = {name: kind() for name, kind in remedy.items()}
    own = make_loop(tmp_path, data, limits={"input_mask": 2}, **made)
    line = error_of(own.run)
    assert line.startswith(
        "step 12: input_mask[3, 2] is 9, which is not in [0, 2): the records"
    )
    assert (tmp_path / "bad_batch_step_12.npz").exists()
    assert max(tmp_path.glob("checkpoints/*")).name == "step-00000010"


@pytest.mark.parametrize(
    ("way", "strategy"),
    [*((way, "one_device") for way in WAYS), ("each", "mirrored")],
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
