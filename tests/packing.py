"""Compressed files for tests."""

import bz2
import gzip
from collections.abc import Callable

import pyarrow as pa


def zstd(data: bytes) -> bytes:
    """Data in the format of .zst files."""
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as file:
        file.write(data)
    return packed.getvalue().to_pybytes()


# The end of a file's name to the function that compresses its content.
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": zstd,
}
