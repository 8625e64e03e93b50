"""Distribution strategies by name, their batches and results.

Workers compare code and settings before they train together.
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

# Errors of a collective operation if another worker is gone.
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
      name: "one_device"; "mirrored" for every GPU of this machine, or its
        logical CPUs if it has no GPU; "multi_worker" for every device of the
        workers in TF_CONFIG; "tpu".
      devices: settings of the devices.

    Raises:
      UserError: an unknown name, fewer than two devices to mirror over, a
        malformed TF_CONFIG, a worker that does not start, or no TPU.
      WorkerLost: a worker was lost while the workers connected.
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
        # The default on CPUs is collective operations, whose keys collide if
        # a process creates a second strategy (TensorFlow 2.21).
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
        # One of them is still in the run that lost a worker.
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
    # The resolvers of the platforms raise different errors.
    except Exception as error:
        reason = " ".join(str(error).split())[:100]
        raise UserError(
            f"`tpu`={name}: found no TPU ({type(error).__name__}: {reason}); "
            "run on a TPU VM with tensorflow-tpu, or choose another "
            "`strategy`."
        ) from None


def split_cpu(count: int) -> None:
    """Splits the CPU into logical devices, before TensorFlow first uses it."""
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
    """Returns whether XLA compiles every step, once for each shape."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def cluster_of(strategy: tf.distribute.Strategy) -> Cluster:
    """Returns the workers of a strategy; otherwise one without an address."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return Cluster.from_environment()
    return Cluster()


@contextlib.contextmanager
def translate_worker_errors(cluster: Cluster) -> Iterator[None]:
    """Raises `WorkerLost` if an operation fails because a worker is gone."""
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
    """Distributes this worker's batches over its devices.

    Args:
      strategy: the distribution strategy.
      dataset: batches whose size is a multiple of the worker's devices.
    """
    workers = len(cluster_of(strategy).workers)
    devices = strategy.num_replicas_in_sync // workers
    if devices == 1:
        return dataset
    if workers == 1:
        return strategy.experimental_distribute_dataset(dataset)

    # `rebatch` does not support batches of different sizes.
    @tf.autograph.experimental.do_not_convert
    def split(batch: dict[str, tf.Tensor]) -> tf.data.Dataset:
        parts = {n: tf.stack(tf.split(v, devices)) for n, v in batch.items()}
        return tf.data.Dataset.from_tensor_slices(parts)

    return strategy.distribute_datasets_from_function(
        lambda context: dataset.flat_map(split)
    )


def share_rows(strategy: tf.distribute.Strategy, value: tf.Tensor) -> tf.Tensor:
    """Returns rows that `collect` can read; called inside `strategy.run`.

    Args:
      strategy: the distribution strategy.
      value: [rows of a device, ...]; gathered from all devices if there are
        several workers.
    """
    if len(cluster_of(strategy).workers) == 1:
        return value
    # Only a copy on each device can be gathered.
    value = tf.identity(value)
    return tf.distribute.get_replica_context().all_gather(value, axis=0)


def collect(strategy: tf.distribute.Strategy, value: object) -> np.ndarray:
    """Returns the rows of `share_rows` from all devices of all workers."""
    parts = strategy.experimental_local_results(value)
    if len(cluster_of(strategy).workers) > 1:
        # Every device holds the rows of all.
        parts = parts[:1]
    return np.concatenate([part.numpy() for part in parts])


def gather_numbers(
    strategy: tf.distribute.Strategy, numbers: Sequence[int]
) -> np.ndarray:
    """Gathers equally many numbers of each worker; all workers wait for it.

    Returns:
      int64 [workers, numbers].
    """
    row = np.array([numbers], np.int64)
    workers = len(cluster_of(strategy).workers)
    if workers == 1:
        return row
    rows = collect(strategy, _gather(strategy)(tf.constant(row)))
    # One row per device; the rows of a worker's devices are equal.
    return rows[:: strategy.num_replicas_in_sync // workers]


@functools.cache
def _gather(
    strategy: tf.distribute.Strategy,
) -> Callable[[tf.Tensor], object]:
    return tf.function(
        lambda row: strategy.run(lambda r: share_rows(strategy, r), (row,))
    )


@functools.cache
def _code() -> str:
    """Returns a digest of this package and the versions of its libraries."""
    digest = hashlib.sha256()
    folder = pathlib.Path(__file__).parent.parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode())
        digest.update(path.read_bytes())
    for name in ("tensorflow", "keras", "numpy"):
        digest.update(importlib.metadata.version(name).encode())
    return digest.hexdigest()


def check_agreement(
    strategy: tf.distribute.Strategy, facts: Mapping[str, object]
) -> None:
    """Raises `UserError` on all workers if their code or settings differ.

    Args:
      strategy: the distribution strategy.
      facts: name to a value that must be equal on all workers.
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
                for name, digest, expected in zip(
                    names, row, table[0], strict=True
                )
                if digest != expected
            ]
            if different:
                raise UserError(
                    f"{cluster.name(index)} has another "
                    f"{' and another '.join(different)} than "
                    f"{cluster.name(0)}; start the same command, of the same "
                    "version and with the same files, on every worker."
                )

    # First, since different code may have different facts.
    compare(["version of bert_tf, TensorFlow, Keras or NumPy"], [_code()])
    compare(list(facts), [repr(value) for value in facts.values()])
