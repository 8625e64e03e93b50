"""However a training is interrupted, it ends as the uninterrupted one.

Proved here for every training, since `TrainingLoop` runs them all.
"""

import pathlib
import random
import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import RunStopped
from bert_tf.training.loop import TrainingLoop
from bert_tf.training.saved_states import BestWeights, SavedStates
from tests.commands import Command
from tests.run_folders import history, stop_at
from tests.training.tiny_run import STEPS, assert_same, make_loop, rows


@pytest.fixture(scope="module", autouse=True)
def _eagerly() -> Iterator[None]:
    """Graphs are traced by the command, which is killed."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def keeping_models(folder: pathlib.Path) -> TrainingLoop:
    """A run that evaluates, and writes its weights to models/."""

    def keep(step: int) -> None:
        path = folder / "models" / f"{step:02d}.npz"
        path.parent.mkdir(exist_ok=True)
        np.savez(path, *loop.step.variables)

    loop = make_loop(
        folder,
        intervals={"save_checkpoints_steps": 4},
        held_out=rows(16, seed=1),
        loop={"eval_steps": 6, "keep_model": keep, "keep_model_steps": 2},
    )
    return loop


def models(folder: pathlib.Path) -> dict[str, list[np.ndarray]]:
    found = {}
    for path in sorted((folder / "models").iterdir()):
        with np.load(path) as arrays:
            found[path.stem] = [arrays[name] for name in arrays]
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("whole")
    keeping_models(folder).run()
    return folder


@pytest.mark.parametrize(
    ("owner", "name", "number", "resumed", "kept"),
    [
        # Between the log rows, so that the sums since the last row are kept.
        (TrainingLoop, "_train", 15, 12, 7),
        (TrainingLoop, "_evaluate", 12, 8, 5),
        # Before a model is written, and between a model and its state.
        (TrainingLoop, "_keep_model", 8, 6, 3),
        (SavedStates, "save", 8, 6, 4),
        # In the second phase.
        (TrainingLoop, "_train", 18, 16, 8),
    ],
)
def test_what_breaks_off_comes_to_the_same_end(
    owner, name, number, resumed, kept, whole, tmp_path, monkeypatch, capsys
):
    method = getattr(owner, name)

    def broken(self, *arguments):
        if number in arguments:
            raise KeyboardInterrupt
        return method(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, broken)
        with pytest.raises(KeyboardInterrupt):
            keeping_models(tmp_path).run()
    assert len(models(tmp_path)) == kept
    capsys.readouterr()
    keeping_models(tmp_path).run()
    assert f"resuming from step {resumed} of" in capsys.readouterr().out
    assert_same(tmp_path, whole)
    np.testing.assert_equal(models(tmp_path), models(whole))
    assert list(models(whole)) == [f"{n:02d}" for n in range(2, STEPS + 1, 2)]


@pytest.mark.parametrize("begins", [0, 13])
def test_a_signal_before_a_phase_ends_the_run_at_once(
    begins, whole, tmp_path, monkeypatch, capsys
):
    """Its first step, whose graph takes long to trace, does not begin."""
    method = TrainingLoop._batches_from

    def signalled(self, phase, done):
        if done == begins:
            signal.raise_signal(signal.SIGTERM)
            pytest.fail("it went on")
        return method(self, phase, done)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_batches_from", signalled)
        with pytest.raises(RunStopped) as raised:
            keeping_models(tmp_path).run()
    line = "before the first step; the same command begins"
    if begins:
        line = "at step 13 of 20, whose state is saved; the same command"
    assert str(raised.value).startswith(f"stopped {line}")
    keeping_models(tmp_path).run()
    assert ("resuming from step 13 of" in capsys.readouterr().out) == (
        begins > 0
    )
    assert_same(tmp_path, whole)


def stopping_early(folder: pathlib.Path) -> TrainingLoop:
    """The second of four evaluations is the best; after two more it ends."""
    scores = {3: 0.2, 6: 0.5, 9: 0.4, 12: 0.5, 15: 0.9}

    def score() -> dict[str, float]:
        return {"f1": scores[int(loop.step.optimizer.iterations)]}

    loop = make_loop(
        folder,
        loop={"eval_steps": 3},
        best=lambda step: BestWeights(step.variables, score, "f1", 2, False),
    )
    return loop


@pytest.mark.parametrize("number", [5, 8])
def test_the_best_weights_and_the_early_end_survive_an_interruption(
    number, tmp_path, monkeypatch, capsys
):
    """The last weights are in the newest state, the best beside them."""
    with monkeypatch.context() as patch:
        stop_at(patch, number)
        with pytest.raises(KeyboardInterrupt):
            stopping_early(tmp_path).run()
    loop = stopping_early(tmp_path)
    loop.run()
    assert "stopping at step 12" in capsys.readouterr().out
    assert loop.best.step == 6
    plain = make_loop(tmp_path / "plain")
    batches = plain.phases[0].batches(0).take(12)
    for step, batch in enumerate(batches, start=1):
        plain.step(batch)
        if step == 6:
            best = [v.numpy() for v in plain.step.variables]
    last = [v.numpy() for v in plain.step.variables]
    np.testing.assert_equal([v.numpy() for v in loop.step.variables], last)
    again = stopping_early(tmp_path)
    again.run()
    assert "already finished" in capsys.readouterr().out
    again.best.assign()
    np.testing.assert_equal([v.numpy() for v in again.step.variables], best)
    assert [row["step"] for row in history(tmp_path)] == [3, 6, 8, 9, 12]


@pytest.mark.witness("a training killed at any moment resumes exactly")
def test_killed_and_stopped_at_random_moments(tmp_path):
    """Kill -9 again and again, Ctrl-C and SIGTERM."""
    killed, moments = tmp_path / "killed", random.Random(0)

    # Processes of their own all: threads decide how sums are rounded.
    def run(folder: pathlib.Path) -> Command:
        arguments = ["tests.training.tiny_run", f"--output_dir={folder}"]
        return Command(*arguments, log=tmp_path / "log")

    def newest_state() -> str:
        names = (p.name for p in killed.glob("checkpoints/step-*"))
        return max(names, default="")

    def start() -> Command:
        """Starts the run and waits until it has written a new state."""
        before, process = newest_state(), run(killed)
        while process.poll() is None and newest_state() <= before:
            time.sleep(0.01)
        assert newest_state() > before, process.printed()
        return process

    def is_writing() -> bool:
        return any(killed.glob("checkpoints/.step-*.partial"))

    assert run(tmp_path / "whole").wait() == 0
    while_writing = 0
    for number in range(2):
        process = start()
        if number % 2:
            while process.poll() is None and not is_writing():
                pass
        else:
            time.sleep(moments.uniform(0, 0.1))
        process.kill()
        while_writing += is_writing()
        assert process.wait() == -signal.SIGKILL, process.printed()
    assert while_writing >= 1
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 75)):
        process = start()
        process.log.write_text("")
        process.send_signal(number)
        assert process.wait() == code, process.printed()
        assert process.printed().count("whose state is saved") == 1
    assert run(killed).wait() == 0
    assert_same(killed, tmp_path / "whole")
