"""Distribution strategies by name, and what goes in and out of them.

Before workers train together they compare what they are about to do.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, WorkerLost, check_choice, whole_number
from bert_tf.training.cluster import DEFAULT_DEVICES, Cluster, Devices, answers

STRATEGIES = ("one_device", "mirrored", "multi_worker", "tpu")

# What a collective operation ends with when another worker is gone.
_LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.UnavailableError,
)


def make_strategy(
    name: str, devices: Devices = DEFAULT_DEVICES
) -> tf.distribute.Strategy:
    """Makes the distribution strategy of a run.

    Args:
      name: "one_device"; "mirrored" for every GPU of this machine (its
        logical CPUs where it has no GPU); "multi_worker" for every device of
        the workers that TF_CONFIG names; "tpu".
      devices: how to reach them.

    Raises:
      UserError: an unknown name, fewer than two devices to mirror over, a
        malformed TF_CONFIG, a worker that does not come, or no TPU.
      WorkerLost: a worker was lost while the workers met.
    """
    check_choice("`strategy`", name, STRATEGIES)
    if devices.tpu and name != "tpu":
        raise UserError(f"`tpu`={devices.tpu}: is for `strategy`=tpu.")
    if devices.logical_cpus:
        split_cpu(devices.logical_cpus)
    if name == "mirrored":
        return _mirrored()
    if name == "multi_worker":
        return _multi_worker(devices.worker_timeout)
    if name == "tpu":
        return _tpu(devices.tpu)
    return tf.distribute.get_strategy()


def _mirrored() -> tf.distribute.Strategy:
    devices = tf.config.list_logical_devices("GPU")
    reduction = None
    if not devices:
        devices = tf.config.list_logical_devices("CPU")
        # The default on CPUs is collective operations, whose keys clash when
        # one process makes a second strategy (TensorFlow 2.21).
        reduction = tf.distribute.ReductionToOneDevice()
    if len(devices) < 2:
        raise UserError(
            f"`strategy`=mirrored: found {len(devices)} device "
            f"({devices[0].name}) and needs two or more; use "
            "`strategy`=one_device, or `logical_cpus`=2 to try it on a CPU."
        )
    return tf.distribute.MirroredStrategy([d.name for d in devices], reduction)


def _multi_worker(seconds: float) -> tf.distribute.Strategy:
    cluster = Cluster.from_environment()
    cluster.wait_for_all(seconds)
    options = tf.distribute.experimental
    implementation = options.CommunicationImplementation.RING
    if tf.config.list_physical_devices("GPU"):
        implementation = options.CommunicationImplementation.NCCL
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=options.CommunicationOptions(
                implementation=implementation
            )
        )
    except tf.errors.OpError as error:
        # One of them still belongs to the run that lost a worker.
        raise WorkerLost(
            f"{cluster.name(cluster.index)} could not join the others "
            f"({type(error).__name__})."
        ) from None


def _tpu(name: str) -> tf.distribute.Strategy:
    if not name:
        raise UserError(
            "`strategy`=tpu: needs `tpu`, the TPU's name or address, or "
            "local on a TPU VM."
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        address = resolver.master().removeprefix("grpc://")
        if address and not answers(address):
            raise ConnectionError(f"nothing answers at {address}")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    # Whatever the resolver of the platform at hand raises.
    except Exception as error:
        reason = " ".join(str(error).split())[:100]
        raise UserError(
            f"`tpu`={name}: found no TPU ({type(error).__name__}: {reason}); "
            "run on a TPU VM with tensorflow-tpu, or choose another "
            "`strategy`."
        ) from None


def split_cpu(count: int) -> None:
    """Splits the CPU into logical devices; TensorFlow must not use it yet."""
    whole_number("logical_cpus", count, 1)
    try:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * count,
        )
    except RuntimeError:
        if len(tf.config.list_logical_devices("CPU")) != count:
            raise UserError(
                f"`logical_cpus`={count}: TensorFlow's devices are already in "
                "use in this process."
            ) from None


def needs_static_shapes(strategy: tf.distribute.Strategy) -> bool:
    """Whether all of its steps are compiled by XLA, one for each shape."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def cluster_of(strategy: tf.distribute.Strategy) -> Cluster:
    """The workers that a strategy spans; one without an address otherwise."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return Cluster.from_environment()
    return Cluster()


@contextlib.contextmanager
def translate_worker_errors(cluster: Cluster) -> Iterator[None]:
    """Raises `WorkerLost` where an operation ends since a worker is gone."""
    try:
        yield
    except tf.errors.OpError as error:
        text = error.message or ""
        if len(cluster.workers) == 1 or not (
            isinstance(error, _LOST) or "ollective" in text
        ):
            raise
        gone = [
            cluster.name(index)
            for index in range(len(cluster.workers))
            if index != cluster.index and f"/task:{index}" in text
        ]
        raise WorkerLost(
            f"{cluster.name(cluster.index)} lost "
            f"{' and '.join(gone) or 'another worker'} "
            f"({type(error).__name__})."
        ) from None


def distribute(
    strategy: tf.distribute.Strategy, dataset: tf.data.Dataset
) -> Any:
    """Shares this worker's batches, a multiple of its devices, among these."""
    workers = len(cluster_of(strategy).workers)
    devices = strategy.num_replicas_in_sync // workers
    if devices == 1:
        return dataset
    if workers == 1:
        return strategy.experimental_distribute_dataset(dataset)

    # Not `rebatch`, which takes no batches of different sizes.
    @tf.autograph.experimental.do_not_convert
    def parts(batch: dict[str, tf.Tensor]) -> tf.data.Dataset:
        shares = {n: tf.stack(tf.split(v, devices)) for n, v in batch.items()}
        return tf.data.Dataset.from_tensor_slices(shares)

    def of_devices(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return dataset.flat_map(parts)

    return strategy.distribute_datasets_from_function(of_devices)


def share_rows(strategy: tf.distribute.Strategy, value: tf.Tensor) -> tf.Tensor:
    """In a function that `strategy.run` runs: a result for `collect` to take.

    Args:
      strategy: the distribution strategy.
      value: [rows of a device, ...]; over several workers the result has the
        rows of all their devices.
    """
    if len(cluster_of(strategy).workers) == 1:
        return value
    # A copy on each device, as only such can be gathered.
    value = tf.identity(value)
    return tf.distribute.get_replica_context().all_gather(value, axis=0)


def collect(strategy: tf.distribute.Strategy, value: object) -> np.ndarray:
    """The rows of `share_rows` from every device of every worker, in order."""
    parts = strategy.experimental_local_results(value)
    if len(cluster_of(strategy).workers) > 1:
        # Each device has the rows of all.
        parts = parts[:1]
    return np.concatenate([part.numpy() for part in parts])


def gather_numbers(
    strategy: tf.distribute.Strategy, numbers: Sequence[int]
) -> np.ndarray:
    """Gathers the numbers of all workers, which wait for each other.

    Returns:
      int64 [workers, numbers], as many of every worker.
    """
    mine = np.array([numbers], np.int64)
    workers = len(cluster_of(strategy).workers)
    if workers == 1:
        return mine
    rows = collect(strategy, _gather(strategy)(tf.constant(mine)))
    # A row of each device; those of a worker are equal and stand together.
    return rows[:: strategy.num_replicas_in_sync // workers]


@functools.cache
def _gather(
    strategy: tf.distribute.Strategy,
) -> Callable[[tf.Tensor], object]:
    """The operation, traced once for every number of numbers."""
    return tf.function(
        lambda row: strategy.run(lambda r: share_rows(strategy, r), (row,))
    )


@functools.cache
def _code() -> str:
    """A digest of this package and of what it computes with."""
    found = hashlib.sha256()
    folder = pathlib.Path(__file__).parent.parent
    for path in sorted(folder.rglob("*.py")):
        found.update(str(path.relative_to(folder)).encode())
        found.update(path.read_bytes())
    for name in ("tensorflow", "keras", "numpy"):
        found.update(importlib.metadata.version(name).encode())
    return found.hexdigest()


def check_agreement(
    strategy: tf.distribute.Strategy, facts: Mapping[str, object]
) -> None:
    """Refuses, on every worker, workers that would not do the same.

    Args:
      strategy: the distribution strategy.
      facts: what must be equal on all workers, by what to call it.
    """
    cluster = cluster_of(strategy)
    if len(cluster.workers) == 1:
        return

    def compare(names: Sequence[str], texts: Sequence[str]) -> None:
        digests = [hashlib.sha256(t.encode()).hexdigest() for t in texts]
        table = gather_numbers(strategy, [int(d[:15], 16) for d in digests])
        for index, row in enumerate(table):
            different = [
                name
                for name, theirs, chiefs in zip(
                    names, row, table[0], strict=True
                )
                if theirs != chiefs
            ]
            if different:
                raise UserError(
                    f"{cluster.name(index)} has another "
                    f"{' and another '.join(different)} than "
                    f"{cluster.name(0)}; start the same command, of the same "
                    "version and with the same files, on every worker."
                )

    # First, since other code may have other facts.
    compare(["version of bert_tf, TensorFlow, Keras or NumPy"], [_code()])
    compare(list(facts), [repr(value) for value in facts.values()])
