"""What a training saves when it is stopped, and where it cannot save."""

import pathlib
import shutil
import signal
import types

import pytest

from bert_tf.errors import UserError
from bert_tf.training.saved_states import SavedStates
from tests.run_folders import press_ctrl_c
from tests.training.tiny_run import assert_same, make_loop

pytestmark = pytest.mark.usefixtures("eagerly")

SHORT = {"steps": (4, 2), "intervals": {"save_checkpoints_steps": 2}}
STEPS = 6


def states(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoints/*"))


def test_ctrl_c_saves_the_state(tmp_path, monkeypatch, capsys):
    """Also at the last step."""
    whole, folder = tmp_path / "whole", tmp_path / "run"
    make_loop(whole, **SHORT).run()
    for number in (3, STEPS):
        with monkeypatch.context() as patch:
            press_ctrl_c(patch, number)
            line = f"stopped at step {number} of {STEPS}"
            with pytest.raises(KeyboardInterrupt, match=line):
                make_loop(folder, **SHORT).run()
        assert states(folder)[-1] == f"step-{number:08}"
    make_loop(folder, **SHORT).run()
    printed = capsys.readouterr().out
    assert f"resuming from step 3 of {STEPS}" in printed
    assert f"already finished: {STEPS} of {STEPS}" in printed
    assert_same(folder, whole)


def test_a_disk_without_room_for_a_state_is_found_before_training(
    tmp_path, monkeypatch
):
    disk = types.SimpleNamespace(total=100, free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk)
    with pytest.raises(UserError, match="state takes .* MB and 0 MB are free"):
        make_loop(tmp_path, **SHORT).run()
    assert states(tmp_path) == []


def test_a_second_ctrl_c_stops_at_once(tmp_path, monkeypatch):
    save = SavedStates.save

    def interrupted(self, number, window):
        signal.raise_signal(signal.SIGINT)
        save(self, number, window)

    press_ctrl_c(monkeypatch, 1)
    monkeypatch.setattr(SavedStates, "save", interrupted)
    with pytest.raises(KeyboardInterrupt, match="^$"):
        make_loop(tmp_path, **SHORT).run()
    assert states(tmp_path) == []
