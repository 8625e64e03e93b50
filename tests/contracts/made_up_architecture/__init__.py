"""An architecture that nobody has made: two files, and one line in a list."""

import pathlib

import pytest

from bert_tf import architectures, encoders
from bert_tf.architecture_list import ARCHITECTURES, Listed

FOLDER = pathlib.Path(__file__).parent
NAME = "mosaic"
LINE = Listed("mosaic.MOSAIC", ("FirstToken", "MosaicBlock", "MosaicEncoder"))


def add_to_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the files and the line among those of the package."""
    for room in (architectures, encoders):
        inside = FOLDER / room.__name__.rpartition(".")[2]
        path = [*room.__path__, str(inside)]
        monkeypatch.setattr(room, "__path__", path)
    monkeypatch.setitem(ARCHITECTURES, NAME, LINE)
