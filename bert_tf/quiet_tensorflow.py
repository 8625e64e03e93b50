"""TensorFlow without its start-up messages, and sooner."""

import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Iterator

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
