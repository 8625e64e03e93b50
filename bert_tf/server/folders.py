"""Version folders on the disk: which there are, and whether they are whole."""

import dataclasses
import os
import pathlib
import time

from bert_tf.errors import UserError
from bert_tf.server.config import ModelConfig

Fingerprint = tuple[tuple[str, int, int], ...]


def version_folders(base_path: pathlib.Path) -> dict[int, pathlib.Path]:
    """The version folders of a model: those with a number for a name."""
    found = {}
    with os.scandir(base_path) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = entry.name
            if name.isascii() and name.isdigit() and entry.is_dir():
                found[int(name)] = base_path / name
    return found


def fingerprint(folder: pathlib.Path) -> Fingerprint | None:
    """Names, sizes and times of all files: changes while it is copied.

    None for a folder that goes away meanwhile.
    """
    found = []
    try:
        for root, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(root, name)
                status = os.stat(path)
                found.append((path, status.st_size, status.st_mtime_ns))
    except OSError:
        return None
    return tuple(sorted(found)) or None


@dataclasses.dataclass
class Attempt:
    """How often a folder was looked at, and tried in vain.

    Attributes:
      seen: the fingerprint at the last look.
      tried: the fingerprint at the last try to load it.
      tries: how many there were with that one.
      again_at: the next may come then.
    """

    seen: Fingerprint | None = None
    tried: Fingerprint | None = None
    tries: int = 0
    again_at: float = 0.0

    def is_due(
        self, now: Fingerprint | None, at_once: bool, retries: int
    ) -> bool:
        """Whether to load the folder now.

        Args:
          now: its fingerprint.
          at_once: whether it need not have rested since the last look.
          retries: how often to try the same files again.
        """
        rested = at_once or self.seen == now
        self.seen = now
        if now is None:
            return False
        if self.tried != now:
            self.tries = 0
            return rested
        return self.tries <= retries and time.monotonic() >= self.again_at

    def begins(self, now: Fingerprint, interval: float) -> None:
        """The folder is loaded now; the next try comes after `interval`."""
        self.tried = now
        self.tries += 1
        self.again_at = time.monotonic() + interval


def check_folder(model: ModelConfig) -> set[int]:
    """The versions of a model; raises UserError where it has none."""
    if not model.base_path.is_dir():
        raise UserError(
            f"model {model.name!r}: no such folder: {model.base_path}."
        )
    found = version_folders(model.base_path)
    if not found:
        hint = ""
        if (model.base_path / "saved_model.pb").exists():
            hint = "; it is a version itself: give the folder it lies in"
        raise UserError(
            f"model {model.name!r}: no version folder (1, 2, ...) in "
            f"{model.base_path}{hint}."
        )
    return set(found)
