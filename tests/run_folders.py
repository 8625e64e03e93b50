"""Reads the folders of finished runs, and interrupts runs."""

import json
import pathlib
import signal
from typing import Any

import numpy as np
import pytest

from bert_tf.checkpoints import read_arrays
from bert_tf.training.loop import TrainingLoop


def history(folder: pathlib.Path) -> list[dict[str, Any]]:
    """The history of a run, without speeds."""
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if "per_second" not in k}
        for line in lines
    ]


def weights(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """The weights of the model, or of the adapter, in a folder."""
    (path,) = folder.glob("*model.safetensors")
    return read_arrays(path)


def answer_lines(folder: pathlib.Path) -> list[dict[str, Any]]:
    """The lines for the report."""
    lines = (folder / "dev_predictions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def assert_same_run(first: pathlib.Path, second: pathlib.Path) -> None:
    """Asserts that two trainings wrote equal histories, weights and answers."""
    assert history(first) == history(second)
    for part in (".", "last"):
        theirs = weights(second / part)
        for name, array in weights(first / part).items():
            np.testing.assert_array_equal(array, theirs[name])
    for name in ("dev_predictions.jsonl", "task.json"):
        assert (first / name).read_text() == (second / name).read_text()


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Raises KeyboardInterrupt before a step of a training."""
    train = TrainingLoop._train

    def interrupt(self, phase, batch, number, progress, history):
        if number == step:
            raise KeyboardInterrupt
        train(self, phase, batch, number, progress, history)

    monkeypatch.setattr(TrainingLoop, "_train", interrupt)


def press_ctrl_c(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Sends SIGINT during a step, as a terminal or Jupyter does."""
    # Shells let background processes ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    train = TrainingLoop._train

    def interrupted(self, phase, batch, number, progress, history):
        if number == step:
            signal.raise_signal(signal.SIGINT)
        train(self, phase, batch, number, progress, history)

    monkeypatch.setattr(TrainingLoop, "_train", interrupted)
