"""Batches that are computed side by side, where nothing is trained.

Cores that share the operations of one batch wait for each other at each of
them; cores with a batch each do not.
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

# As many are in memory.
_MOST_BATCHES = 8


def one_core_a_batch() -> None:
    """Has `side_by_side` compute as many batches as there are cores.

    For a process that trains nothing, on one device, before TensorFlow
    computes; after that, beside a GPU or TPU, and where the user has said how
    many threads an operation has, nothing is done. Of more than 8 cores, each
    batch has several.
    """
    cores = len(os.sched_getaffinity(0))
    # As the physical devices say; asking for logical ones starts TensorFlow.
    devices = tf.config.list_physical_devices()
    on_cpu = all(device.device_type == "CPU" for device in devices)
    chosen = "TF_NUM_INTRAOP_THREADS" in os.environ or _threads()
    if on_cpu and not chosen:
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(
                cores // min(cores, _MOST_BATCHES)
            )


def side_by_side(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """What a function gives of items, in their order.

    As many at a time as the threads of an operation leave cores for, on CPUs;
    by itself TensorFlow has it use all of them.

    Args:
      function: computes with TensorFlow; is called from several threads.
      items: read as they are needed.
    """
    count = 1
    if _threads() and not has_accelerator():
        count = len(os.sched_getaffinity(0)) // _threads()
    items = iter(items)
    # Alone, since the first call traces what all compute.
    yield from map(function, itertools.islice(items, 1))
    if count < 2:
        yield from map(function, items)
        return
    waiting: collections.deque[concurrent.futures.Future[Result]]
    waiting = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _threads() -> int:
    """Threads of an operation; 0 where TensorFlow decides."""
    return tf.config.threading.get_intra_op_parallelism_threads()
