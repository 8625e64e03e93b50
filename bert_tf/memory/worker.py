"""The process of a trial; see `measurement`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from bert_tf.libraries import forget_log_level, import_tensorflow
from bert_tf.processes import serve

if TYPE_CHECKING:
    from bert_tf.memory.prediction import Workload


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
    # An inherited level would be taken for the user's.
    forget_log_level()
    import_tensorflow()
    serve(_answerer)
