"""The worker process of a trial, see `measurement`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from bert_tf.libraries import forget_log_level, import_tensorflow
from bert_tf.processes import serve

if TYPE_CHECKING:
    from bert_tf.memory.prediction import Workload


def _answerer(limit: float | None) -> Callable:
    """Returns a function that runs trials, or reports the GPU's memory."""
    from bert_tf.compat import gpu_memory_limit
    from bert_tf.memory.measurement import run_trial

    def answer(work: "Workload | None") -> object:
        if limit is None or work is None:
            return gpu_memory_limit()
        return run_trial(work, limit)

    return answer


if __name__ == "__main__":
    # The parent's log level is not a choice of the user.
    forget_log_level()
    import_tensorflow()
    serve(_answerer)
