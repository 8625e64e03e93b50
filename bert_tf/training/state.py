"""Training state on disk: whole or absent, rotated, recognised when torn.

`<folder>/step-00001000/` holds `state.safetensors` (every variable, float32 as
trained) and `state.json` (the step, the CRC-32C of the other file, what the
loop carries along). The folder is written beside and renamed, so a killed run
leaves the one before.
"""

import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import google_crc32c
import numpy as np

from bert_tf.checkpoints import read_arrays, write_arrays
from bert_tf.errors import UserError
from bert_tf.files import written_beside

_ARRAYS, _FACTS = "state.safetensors", "state.json"
_CHUNK = 1 << 24


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """What a run needs to go on exactly where it was.

    Attributes:
      step: optimizer steps done.
      arrays: variables by name.
      facts: JSON values that the loop carries along.
    """

    step: int
    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]


def _checksum(path: pathlib.Path) -> int:
    digest = 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest = google_crc32c.extend(digest, chunk)
    return digest


def _sync(path: pathlib.Path) -> None:
    """Forces a file or a folder's entries to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _steps(folder: pathlib.Path) -> list[pathlib.Path]:
    """The states in a folder, newest first."""
    return sorted(folder.glob("step-*"), reverse=True)


def state_folder(folder: str | pathlib.Path, step: int) -> pathlib.Path:
    """Where the state after a step lies."""
    return pathlib.Path(folder) / f"step-{step:08d}"


def save_state(
    folder: str | pathlib.Path,
    state: TrainingState,
    keep: int,
    best: int | None = None,
) -> pathlib.Path:
    """Writes a state and removes all but the newest `keep` and the best.

    Args:
      folder: where the states of this run lie.
      state: what to write.
      keep: how many states stay, at least 1.
      best: the step of a state that stays besides.

    Returns:
      The folder of the written state.
    """
    folder = pathlib.Path(folder)
    target = state_folder(folder, state.step)
    with written_beside(target) as beside:
        beside.mkdir()
        write_arrays(beside / _ARRAYS, state.arrays)
        _sync(beside / _ARRAYS)
        facts = {
            "step": state.step,
            "crc32c": _checksum(beside / _ARRAYS),
            "facts": dict(state.facts),
        }
        (beside / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
        _sync(beside / _FACTS)
    _sync(folder)
    for old in _steps(folder)[keep:]:
        if best is None or old != state_folder(folder, best):
            shutil.rmtree(old)
    for torn in folder.glob(".step-*.partial"):
        shutil.rmtree(torn)
    return target


def load_state(path: pathlib.Path) -> TrainingState:
    """Reads the state in one folder.

    Raises:
      UserError: it is not there, or damaged.
    """
    try:
        facts = json.loads((path / _FACTS).read_text(encoding="utf-8"))
        if _checksum(path / _ARRAYS) != facts["crc32c"]:
            raise UserError(f"{path / _ARRAYS}: checksum does not match")
        return TrainingState(
            facts["step"], read_arrays(path / _ARRAYS), facts["facts"]
        )
    except (FileNotFoundError, ValueError, KeyError) as error:
        # json.JSONDecodeError and UserError are both ValueErrors.
        raise UserError(f"{path}: {error}") from None


def newest_state(
    folder: str | pathlib.Path,
) -> tuple[TrainingState | None, list[str]]:
    """Reads the newest state that is whole.

    Args:
      folder: where the states of a run lie; may not exist yet.

    Returns:
      The state, or None where there is none at all, and a line for each newer
      state that was passed over because it is damaged.

    Raises:
      UserError: there are states and none of them is whole.
    """
    damaged: list[str] = []
    paths = _steps(pathlib.Path(folder))
    for path in paths:
        try:
            return load_state(path), damaged
        except UserError as error:
            damaged.append(f"{error}; using the state before it")
    if paths:
        raise UserError(
            f"{folder}: every training state is damaged; remove the folder to "
            f"start again ({damaged[0]})."
        )
    return None, damaged
