"""How a run reaches its devices."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Devices:
    """What a run must know to reach its devices; it computes the same.

    Attributes:
      logical_cpus: split the CPU into this many devices, which lets "mirrored"
        be tried without GPUs; 0 leaves it as it is. Has to come before
        TensorFlow touches its devices.
      tpu: name or address of the TPU; "local" on a TPU VM.
      worker_timeout: seconds to wait for the other workers of a run.
    """

    logical_cpus: int = 0
    tpu: str = ""
    worker_timeout: float = 600.0


AS_THEY_ARE = Devices()
