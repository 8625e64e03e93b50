"""Several workers, as processes on the loopback: the same run, never lost."""

import random
import re
import signal
import time

import numpy as np
import pytest

from bert_tf.config import BertConfig
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.pretraining.run import run_pretraining
from tests.pretraining.conftest import FILES
from tests.run_folders import history, stop_at, weights
from tests.workers import Workers

# Rounding that differs has not grown after so many of all steps.
EARLY, STEPS = 16, 64


@pytest.fixture(scope="module")
def recipe(records, config_file, tmp_path_factory):
    """Without dropout, whose masks differ from device to device."""
    config = BertConfig.from_json(config_file).override(
        ["hidden_dropout_prob=0", "attention_probs_dropout_prob=0"]
    )
    path = tmp_path_factory.mktemp("config") / "bert_config.json"
    config.save(path)
    return PretrainingRecipe(
        data_dir=str(records),
        config_file=str(path),
        data_streams=2,
        train_batch_size=8,
        eval_batch_size=16,
        num_train_steps=STEPS,
        learning_rate=1e-3,
        log_steps=EARLY,
        eval_steps=STEPS // 2,
        save_checkpoints_steps=4,
        keep_model_steps=EARLY,
    )


def workers_of(recipe, folder, *flags):
    """Two workers that run a recipe."""
    folder.mkdir(exist_ok=True)
    recipe.save(folder / "recipe.json")
    arguments = [
        "tools.run_pretraining",
        f"--recipe={folder / 'recipe.json'}",
        "--strategy=multi_worker",
        f"--output_dir={folder / 'run'}",
        "--worker_timeout=120",
        *flags,
    ]
    return Workers(2, arguments, folder / "logs")


@pytest.fixture(scope="module")
def two_workers(recipe, tmp_path_factory):
    """The folder of both workers' run, from the first step to the last."""
    folder = tmp_path_factory.mktemp("two_workers")
    workers = workers_of(recipe, folder)
    workers.start_all()
    assert workers.wait() == {0: 0, 1: 0}, workers.printed(0)
    return folder / "run"


def assert_alike(folder, reference, tolerance):
    expected = weights(reference)
    for name, array in weights(folder).items():
        np.testing.assert_allclose(
            array, expected[name], rtol=0, atol=tolerance, err_msg=name
        )


@pytest.mark.witness("two workers train the model of one")
def test_two_workers_run_the_same(two_workers, recipe, tmp_path, monkeypatch):
    """The first numbers, and the first model that was kept."""
    stop_at(monkeypatch, EARLY + 1)
    with pytest.raises(KeyboardInterrupt):
        run_pretraining(recipe, tmp_path)
    (expected,), numbers = history(tmp_path), history(two_workers)
    assert numbers[0] == pytest.approx(expected, rel=1e-3)
    assert [row["step"] for row in numbers] == [16, 32, 32, 48, 64, 64]
    model = f"models/step-{EARLY:08d}"
    assert_alike(two_workers / model, tmp_path / model, 1e-5)
    assert {path.name for path in two_workers.iterdir()} == FILES


def test_different_recipes_are_refused(recipe, tmp_path):
    workers = workers_of(recipe, tmp_path)
    workers.start(0)
    workers.start(1, "--learning_rate=1e-4", "--seed=3")
    assert workers.wait() == {0: 1, 1: 1}
    for index in (0, 1):
        last = workers.printed(index).strip().splitlines()[-1]
        assert last.startswith("error: worker 1 (127.0.0.1:"), last
        for part in ("another seed", "another learning_rate", "worker 0 "):
            assert part in last, last
    assert not (tmp_path / "run").exists()


def wait_for_state(workers, run, step):
    """Waits until the run has saved a state of this step or a later one."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        found = run.glob("checkpoints/step-*")
        if max((p.name for p in found), default="") >= f"step-{step:08d}":
            return
        for index, process in workers.processes.items():
            assert process.poll() is None, workers.printed(index)
        time.sleep(0.05)
    raise AssertionError(workers.printed(0))


def test_workers_that_are_killed_and_stopped_run_the_same(
    recipe, two_workers, tmp_path
):
    """Kill -9 of either, whom the other waits for, and SIGTERM of one."""
    workers = workers_of(recipe, tmp_path)
    run = tmp_path / "run"
    workers.start_all()
    moments = random.Random(0)
    for victim, step in ((0, 8), (1, 24)):
        wait_for_state(workers, run, step)
        time.sleep(moments.uniform(0, 0.3))
        workers.processes[victim].kill()
        workers.processes[victim].wait()
        workers.start(victim)
    wait_for_state(workers, run, 40)
    for index in (0, 1):
        assert workers.printed(index).count("Starting again") == 1
    workers.processes[1].send_signal(signal.SIGTERM)
    assert workers.wait() == {0: 75, 1: 75}, workers.printed(0)
    stopped = re.search(
        rf"stopped at step (\d+) of {STEPS}", workers.printed(0)
    )
    newest = max((run / "checkpoints").glob("step-*"))
    assert newest.name == f"step-{int(stopped[1]):08d}"
    workers.start_all()
    assert workers.wait() == {0: 0, 1: 0}, workers.printed(0)
    assert history(run) == history(two_workers)
    models = [path.name for path in sorted((run / "models").iterdir())]
    assert models == [f"step-{n:08d}" for n in range(EARLY, STEPS + 1, EARLY)]
    for part in (".", *(f"models/{name}" for name in models)):
        assert_alike(run / part, two_workers / part, 0)
