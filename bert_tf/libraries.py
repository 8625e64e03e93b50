"""The optional libraries, and imports of others without side effects.

TensorFlow is imported without its start-up messages; Keras and matplotlib write
nothing to the home folder.
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
from typing import Any, NamedTuple

from bert_tf.errors import UserError


class ListedRuntime(NamedTuple):
    """What is known of a runtime before its module is imported."""

    # Its name in messages.
    title: str
    # Those of its extra in pyproject.toml.
    libraries: tuple[str, ...] = ()
    # Whether its files may be int8; `runtime` takes folders of them.
    int8: bool = False
    # Whether it computes in bfloat16 where the processor can.
    bfloat16: bool = False


# What `auto` chooses.
OPENVINO = "openvino"
# By the name of the module in `bert_tf.runtimes`, NAME_file.
RUNTIMES = {
    OPENVINO: ListedRuntime("OpenVINO", ("onnx", "openvino"), bfloat16=True),
    "onnx": ListedRuntime("ONNX Runtime", ("onnx", "onnxruntime"), int8=True),
    "litert": ListedRuntime("LiteRT", int8=True),
}
INT8_FORMATS = [name for name, each in RUNTIMES.items() if each.int8]
FILE_FORMATS = sorted(RUNTIMES, key=lambda name: name not in INT8_FORMATS)
# The formats of the exports that `runtime` takes.
EXPORTS = " or ".join(
    RUNTIMES[name].title.removesuffix(" Runtime") for name in INT8_FORMATS
)
*_FIRST, _LAST = "keras", *RUNTIMES
RUNTIME_HELP = (
    f"what computes the network: {', '.join(_FIRST)} or {_LAST}; auto is "
    f"{OPENVINO} where it is installed, on a CPU, and else keras; or the "
    f"folder of an export in {EXPORTS}, such as one in int8"
)

# The extras of pyproject.toml, by the names of imported modules. Apache Beam is
# checked in records/beam/options.py.
EXTRAS = {
    "serve": ("aiohttp", "grpc", "grpc_health", "prometheus_client"),
    "hub": ("huggingface_hub",),
    "keras_hub": ("kagglehub", "keras_hub"),
    "report": ("jinja2", "matplotlib"),
    "sparse": ("scipy",),
    "transformers": ("torch", "transformers"),
    **{name: r.libraries for name, r in RUNTIMES.items() if r.libraries},
}


def require_extra(extra: str, what: str) -> None:
    """Raises `UserError` if a library of an extra (see EXTRAS) is missing.

    `what` is the part that needs it, for the error.
    """
    missing = missing_libraries(extra)
    if missing:
        raise UserError(
            f"{what} needs {', '.join(missing)}, which this environment does "
            f'not have; run pip install "bert_tf[{extra}]"'
        )


def missing_libraries(extra: str) -> list[str]:
    """Returns the libraries of an extra (see EXTRAS) that are missing."""
    return [n for n in EXTRAS[extra] if importlib.util.find_spec(n) is None]


_PYPLOT, _PATCHES = "matplotlib.pyplot", "matplotlib.patches"
_KERAS_HOME = "KERAS_HOME"
_MATPLOTLIB_HOME = "MPLCONFIGDIR"


@contextlib.contextmanager
def import_of_keras() -> Iterator[None]:
    """Prevents an import of Keras from writing settings and fonts.

    Keras, and TensorFlow's old copy of it, write their defaults to a missing
    ~/.keras/keras.json. Keras also imports matplotlib for
    `keras.visualization`, which writes a list of fonts and takes a quarter of
    the import time of TensorFlow.
    """
    with _without_settings(), _without_matplotlib():
        yield


@contextlib.contextmanager
def _without_settings() -> Iterator[None]:
    base = os.path.expanduser("~")
    # As in Keras 3.15.1.
    if not os.access(base, os.W_OK):
        base = "/tmp"
    folder = os.path.join(base, ".keras")
    settings = os.path.join(folder, "keras.json")
    if _KERAS_HOME in os.environ or os.path.exists(settings):
        yield
        return
    # Keras ignores that it cannot create a folder there.
    os.environ[_KERAS_HOME] = os.devnull
    try:
        yield
    finally:
        del os.environ[_KERAS_HOME]
    # Imports Keras, which is loaded now.
    from bert_tf.compat import keep_downloads_in

    keep_downloads_in(folder)


class _LazyModule(types.ModuleType):
    """A placeholder that imports its module at the first access."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _remove_stand_ins()
        return getattr(importlib.import_module(self.__name__), name)


def _remove_stand_ins() -> None:
    for name, module in list(sys.modules.items()):
        if isinstance(module, _LazyModule):
            del sys.modules[name]


@contextlib.contextmanager
def _without_matplotlib() -> Iterator[None]:
    is_known = "matplotlib" in sys.modules
    if is_known or importlib.util.find_spec("matplotlib") is None:
        yield
        return
    package = sys.modules["matplotlib"] = _LazyModule("matplotlib")
    for name in (_PYPLOT, _PATCHES):
        module = sys.modules[name] = _LazyModule(name)
        setattr(package, name.rpartition(".")[2], module)
    try:
        yield
    finally:
        _remove_stand_ins()


def import_matplotlib() -> None:
    """Imports matplotlib without writing its list of fonts to the home folder.

    An existing folder of matplotlib, or MPLCONFIGDIR, is used as usual.
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
    """Hides the messages of an import of TensorFlow.

    TensorFlow 2.21 writes some before it reads TF_CPP_MIN_LOG_LEVEL. They are
    shown if the user has set that variable or the import fails. If TensorFlow
    is already imported, nothing is done.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    collects = gc.isenabled()
    # An import leaves no garbage, but collections take a fifth of its time.
    gc.disable()
    try:
        with _without_messages():
            yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def _without_messages() -> Iterator[None]:
    # TensorFlow uses oneDNN's matrix products by default only with AVX-512;
    # with AVX2 they make a training step almost twice as fast.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    if _LOG_LEVEL in os.environ or _is_closed(2):
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

                # Logs a missing CUDA.
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


def _is_closed(descriptor: int) -> bool:
    """Returns whether a file descriptor is closed, as in some services."""
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


def import_tensorflow() -> None:
    """Imports TensorFlow without its start-up messages, for a command.

    If the user has set the log level, the import is left to its first use.
    """
    shown = _LOG_LEVEL in os.environ
    with quiet_start():
        if not shown:
            import tensorflow  # noqa: F401

            # Excludes the modules from later garbage collections.
            gc.freeze()


def forget_log_level() -> None:
    """Unsets our log level, so that a child process hides messages again."""
    if os.environ.pop(_LEVEL_IS_OURS, None):
        del os.environ[_LOG_LEVEL]
