"""TensorFlow without its start-up messages."""

import os
import tempfile

_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_LEVEL_IS_OURS = "BERT_TF_HIDES_MESSAGES"


def import_tensorflow() -> None:
    """Imports TensorFlow without its start-up messages.

    TensorFlow 2.21 writes some before it reads TF_CPP_MIN_LOG_LEVEL. Where
    the user has set that variable, or the import fails, they are shown.
    """
    # By itself it takes oneDNN's products only where it finds AVX-512; with
    # AVX2 alone a training step is almost twice as fast with them.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    if _LOG_LEVEL in os.environ:
        return
    os.environ[_LOG_LEVEL] = "2"
    os.environ[_LEVEL_IS_OURS] = "1"
    standard_error = os.dup(2)
    with tempfile.TemporaryFile() as messages:
        os.dup2(messages.fileno(), 2)
        try:
            import tensorflow as tf

            # Looks for CUDA, and says so where there is none.
            tf.config.list_physical_devices()
        except BaseException:
            messages.seek(0)
            os.write(standard_error, messages.read())
            raise
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)


def forget_log_level() -> None:
    """Makes a process that is started from here hide them again.

    Unless the user has said which messages to show.
    """
    if os.environ.pop(_LEVEL_IS_OURS, None):
        del os.environ[_LOG_LEVEL]
