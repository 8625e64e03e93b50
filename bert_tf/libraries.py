"""Other libraries: how to install what is missing, and how they are imported.

TensorFlow is imported without its start-up messages, and nothing that Keras and
matplotlib would write stays in the home folder.
"""

import contextlib
import gc
import importlib
import importlib.util
import os
import pathlib
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any

from bert_tf.errors import UserError

# As pyproject.toml has them, by the names that they are imported by. Apache
# Beam is tried in records/beam/options.py.
EXTRAS = {
    "serve": ("aiohttp", "grpc", "grpc_health", "prometheus_client"),
    "hub": ("huggingface_hub", "kagglehub", "keras_hub"),
    "report": ("jinja2", "matplotlib"),
    "onnx": ("onnx", "onnxruntime"),
    "transformers": ("torch", "transformers"),
}


def require_extra(extra: str, what: str) -> None:
    """Checks that the libraries of an extra are installed.

    Args:
      extra: of EXTRAS.
      what: needs them, for the error line.

    Raises:
      UserError: one is missing.
    """
    missing = [n for n in EXTRAS[extra] if importlib.util.find_spec(n) is None]
    if missing:
        raise UserError(
            f"{what} needs {', '.join(missing)}, which this environment does "
            f'not have; run pip install "bert_tf[{extra}]"'
        )


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


_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_LEVEL_IS_OURS = "BERT_TF_HIDES_MESSAGES"


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Hides what TensorFlow writes when it is imported within.

    TensorFlow 2.21 writes some before it reads TF_CPP_MIN_LOG_LEVEL. Where
    the user has set that variable, or the import fails, they are shown; where
    TensorFlow is imported already, nothing is done.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    with _without_messages(), _without_collections():
        yield


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Keeps Python from looking for garbage, of which an import leaves none.

    A fifth of the time that it takes to import TensorFlow.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def _without_messages() -> Iterator[None]:
    """See `quiet_start`."""
    # By itself it takes oneDNN's products only where it finds AVX-512; with
    # AVX2 alone a training step is almost twice as fast with them.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    if _LOG_LEVEL in os.environ or _closed(2):
        yield
        return
    os.environ[_LOG_LEVEL] = "2"
    os.environ[_LEVEL_IS_OURS] = "1"
    standard_error = os.dup(2)
    with tempfile.TemporaryFile() as messages:
        os.dup2(messages.fileno(), 2)
        try:
            yield
            if "tensorflow" in sys.modules:
                import tensorflow as tf

                # Looks for CUDA, and says so where there is none.
                tf.config.list_physical_devices()
            else:
                forget_log_level()
        except BaseException:
            messages.seek(0)
            os.write(standard_error, messages.read())
            raise
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)


def _closed(descriptor: int) -> bool:
    """Whether a file descriptor is closed, as that of a service may be."""
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


def import_tensorflow() -> None:
    """Imports TensorFlow without its start-up messages, for a command.

    Where the user has said which to show, it is left to whoever needs it.
    """
    shown = _LOG_LEVEL in os.environ
    with quiet_start():
        if not shown:
            import tensorflow  # noqa: F401

            # It stays as long as the process: no collection need look at it.
            gc.freeze()


def forget_log_level() -> None:
    """Makes a process that is started from here hide them again.

    Unless the user has said which messages to show.
    """
    if os.environ.pop(_LEVEL_IS_OURS, None):
        del os.environ[_LOG_LEVEL]
