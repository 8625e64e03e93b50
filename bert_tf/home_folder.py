"""The user's home folder stays as it is where libraries would write into it."""

import contextlib
import importlib
import importlib.util
import os
import pathlib
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any

_PYPLOT, _PATCHES = "matplotlib.pyplot", "matplotlib.patches"
_KERAS_HOME = "KERAS_HOME"
_MATPLOTLIB_HOME = "MPLCONFIGDIR"


@contextlib.contextmanager
def import_of_keras() -> Iterator[None]:
    """Keeps Keras, imported within, from writing settings and fonts.

    Where there is no ~/.keras/keras.json, Keras, and TensorFlow's old copy of
    it, write one with their defaults. And Keras imports matplotlib for
    `keras.visualization`, which writes a list of all fonts and is a quarter of
    the time that TensorFlow takes to import.
    """
    with _without_settings(), _without_matplotlib():
        yield


@contextlib.contextmanager
def _without_settings() -> Iterator[None]:
    base = os.path.expanduser("~")
    # As Keras 3.15.1 chooses it.
    if not os.access(base, os.W_OK):
        base = "/tmp"
    folder = os.path.join(base, ".keras")
    settings = os.path.join(folder, "keras.json")
    if _KERAS_HOME in os.environ or os.path.exists(settings):
        yield
        return
    # In a device no folder can be made, which Keras takes as it is.
    os.environ[_KERAS_HOME] = os.devnull
    try:
        yield
    finally:
        del os.environ[_KERAS_HOME]
    # Needs Keras, which is imported by now.
    from bert_tf.compat import keep_downloads_in

    keep_downloads_in(folder)


class _LaterModule(types.ModuleType):
    """Stands for a module, which is imported when anything is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _remove_stand_ins()
        return getattr(importlib.import_module(self.__name__), name)


def _remove_stand_ins() -> None:
    for name, module in list(sys.modules.items()):
        if isinstance(module, _LaterModule):
            del sys.modules[name]


@contextlib.contextmanager
def _without_matplotlib() -> Iterator[None]:
    is_known = "matplotlib" in sys.modules
    if is_known or importlib.util.find_spec("matplotlib") is None:
        yield
        return
    package = sys.modules["matplotlib"] = _LaterModule("matplotlib")
    for name in (_PYPLOT, _PATCHES):
        module = sys.modules[name] = _LaterModule(name)
        setattr(package, name.rpartition(".")[2], module)
    try:
        yield
    finally:
        _remove_stand_ins()


def import_matplotlib() -> None:
    """Imports matplotlib and its list of fonts, which it would write.

    A folder of matplotlib that exists, or that MPLCONFIGDIR names, is used as
    matplotlib does by itself.
    """
    if "matplotlib" in sys.modules or _MATPLOTLIB_HOME in os.environ:
        return
    home = pathlib.Path.home()
    config = os.environ.get("XDG_CONFIG_HOME") or home / ".config"
    cache = os.environ.get("XDG_CACHE_HOME") or home / ".cache"
    folders = [pathlib.Path(each, "matplotlib") for each in (config, cache)]
    if any(map(os.path.exists, [*folders, home / ".matplotlib"])):
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ[_MATPLOTLIB_HOME] = folder
        try:
            import matplotlib.font_manager  # noqa: F401
        finally:
            del os.environ[_MATPLOTLIB_HOME]
