"""Distribution strategies by name."""

import tensorflow as tf

from bert_tf.errors import UserError

STRATEGIES = ("one_device", "mirrored")


def make_strategy(name: str, logical_cpus: int = 0) -> tf.distribute.Strategy:
    """Makes the distribution strategy of a run.

    Args:
      name: "one_device", or "mirrored" for every GPU of this machine (its
        logical CPUs where it has no GPU).
      logical_cpus: split the CPU into this many devices, which lets
        "mirrored" be tried without GPUs; 0 leaves it as it is. Has to come
        before TensorFlow touches its devices.

    Raises:
      UserError: an unknown name, or fewer than two devices to mirror over.
    """
    if name not in STRATEGIES:
        raise UserError(
            f"--strategy={name}: unknown; it takes one of "
            f"{', '.join(STRATEGIES)}."
        )
    if logical_cpus:
        split_cpu(logical_cpus)
    if name == "one_device":
        return tf.distribute.get_strategy()
    devices = tf.config.list_logical_devices("GPU")
    reduction = None
    if not devices:
        devices = tf.config.list_logical_devices("CPU")
        # The default on CPUs is collective operations, whose keys clash when
        # one process makes a second strategy (TensorFlow 2.21).
        reduction = tf.distribute.ReductionToOneDevice()
    if len(devices) < 2:
        raise UserError(
            f"--strategy=mirrored: found {len(devices)} device "
            f"({devices[0].name}) and needs two or more; use "
            "--strategy=one_device, or --logical_cpus=2 to try it on a CPU."
        )
    return tf.distribute.MirroredStrategy([d.name for d in devices], reduction)


def split_cpu(count: int) -> None:
    """Splits the CPU into `count` logical devices.

    Raises:
      UserError: TensorFlow's devices are already in use.
    """
    if count < 1:
        raise UserError(f"--logical_cpus={count}: give 1 or more.")
    try:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * count,
        )
    except RuntimeError:
        if len(tf.config.list_logical_devices("CPU")) != count:
            raise UserError(
                f"--logical_cpus={count}: TensorFlow's devices are already in "
                "use in this process."
            ) from None
