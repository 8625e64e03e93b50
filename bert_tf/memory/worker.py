"""The process of a trial; see `measurement`."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from bert_tf.processes import serve

if TYPE_CHECKING:
    from bert_tf.memory.prediction import Workload


def _import_tensorflow() -> None:
    """Imports it without what it writes when it starts."""
    standard_error = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        import tensorflow as tf

        # Looks for CUDA, and says so where there is none.
        tf.config.list_physical_devices()
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(nowhere)


def _answerer(limit: float | None) -> Callable:
    """The memory of the GPU, or trials within a limit of bytes."""
    from bert_tf.compat import gpu_memory_limit
    from bert_tf.memory.measurement import run_trial

    def answer(work: "Workload | None") -> object:
        if limit is None or work is None:
            return gpu_memory_limit()
        return run_trial(work, limit)

    return answer


if __name__ == "__main__":
    _import_tensorflow()
    serve(_answerer)
