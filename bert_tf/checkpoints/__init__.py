"""Model folders: reading and writing named arrays."""

from bert_tf.checkpoints.folder import (
    Checkpoint,
    load_checkpoint,
    read_arrays,
    save_checkpoint,
    write_arrays,
)

__all__ = [
    "Checkpoint",
    "read_arrays",
    "load_checkpoint",
    "write_arrays",
    "save_checkpoint",
]
