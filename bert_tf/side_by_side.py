"""Concurrent inference: one batch per core instead of one batch on all cores.

Cores that share the operations of one batch synchronise after each operation;
cores that compute a batch each do not.
"""

import collections
import concurrent.futures
import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import tensorflow as tf

from bert_tf.compat import has_accelerator

Item = TypeVar("Item")
Result = TypeVar("Result")

# At most this many batches are held in memory.
_MOST_BATCHES = 8


def one_core_a_batch() -> None:
    """Configures TensorFlow so that `side_by_side` uses one core per batch.

    Call it before TensorFlow computes, in a process that does not train. It has
    no effect after TensorFlow has started, with a GPU or TPU, or where the user
    has set the number of threads of an operation. With more than 8 cores, each
    batch gets several.
    """
    cores = len(os.sched_getaffinity(0))
    # Listing logical devices would initialise TensorFlow.
    devices = tf.config.list_physical_devices()
    on_cpu = all(device.device_type == "CPU" for device in devices)
    is_set = "TF_NUM_INTRAOP_THREADS" in os.environ or cores_per_batch()
    if on_cpu and not is_set:
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(
                cores // min(cores, _MOST_BATCHES)
            )


def side_by_side(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Yields the results of a function for each item, in order.

    On CPUs, cores // threads-per-operation calls run at a time. By default
    TensorFlow uses all cores for an operation, so calls run one by one.

    Args:
      function: computes with TensorFlow; is called from several threads.
      items: an iterable, read lazily.
    """
    count = 1
    if cores_per_batch() and not has_accelerator():
        count = len(os.sched_getaffinity(0)) // cores_per_batch()
    items = iter(items)
    # The first call traces the function, so it runs before the threads start.
    yield from map(function, itertools.islice(items, 1))
    if count < 2:
        yield from map(function, items)
        return
    pending: collections.deque[concurrent.futures.Future[Result]]
    pending = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) > count:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def cores_per_batch() -> int:
    """Returns the threads of an operation; 0 if TensorFlow uses all cores."""
    return tf.config.threading.get_intra_op_parallelism_threads()
