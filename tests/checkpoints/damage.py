"""Damages a copy of a model folder and checks the error."""

import json
import pathlib
import re
import shutil
from collections.abc import Callable
from typing import Any

from bert_tf.checkpoints import load_checkpoint, read_arrays, write_arrays
from tests.user_errors import error_of

Damage = Callable[[pathlib.Path], Any]


def assert_refused(
    source: pathlib.Path, tmp_path: pathlib.Path, damage: Damage, *messages: str
) -> None:
    """Loading a damaged copy of a folder is an error that matches."""
    folder = pathlib.Path(shutil.copytree(source, tmp_path / "damaged"))
    damage(folder)
    line = error_of(load_checkpoint, folder)
    for message in messages:
        assert re.search(message, line), line


def changed_json(path: pathlib.Path, **changes: Any) -> None:
    """Changes keys of a JSON file; None removes a key."""
    values = json.loads(path.read_text()) | changes
    values = {key: v for key, v in values.items() if v is not None}
    path.write_text(json.dumps(values))


def with_keys(name: str = "config.json", **changes: Any) -> Damage:
    """See `changed_json`."""
    return lambda folder: changed_json(folder / name, **changes)


def with_bytes(name: str, change: Callable[[bytes], bytes]) -> Damage:
    """Changes the bytes of a file."""

    def damage(folder: pathlib.Path) -> None:
        path = folder / name
        path.write_bytes(change(path.read_bytes()))

    return damage


def truncated(name: str, count: int) -> Damage:
    """Removes bytes from the end of a file."""
    return with_bytes(name, lambda data: data[:-count])


def replaced(name: str, old: bytes, new: bytes) -> Damage:
    """Replaces bytes of a file."""
    return with_bytes(name, lambda data: data.replace(old, new))


def without(name: str) -> Damage:
    """Removes a file or a folder."""

    def damage(folder: pathlib.Path) -> None:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


def with_arrays(change: Callable[[dict], dict]) -> Damage:
    """Changes the arrays of model.safetensors."""

    def damage(folder: pathlib.Path) -> None:
        path = folder / "model.safetensors"
        write_arrays(path, change(read_arrays(path)))

    return damage
