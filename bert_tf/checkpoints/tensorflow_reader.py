"""TensorFlow checkpoints: which lies in a folder, and its variables.

A checkpoint is PREFIX.index and PREFIX.data-00000-of-00001 (or more shards).
The folder may have a text file `checkpoint` that names the newest prefix.
TensorFlow is imported only where a file is opened.
"""

import glob
import math
import pathlib
import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bert_tf.errors import UserError
from bert_tf.foreign_files import demand_regular
from bert_tf.lazy_arrays import LazyArrays

# The key under which tf.train.Checkpoint keeps its graph of objects.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"

_NEWEST_FILE = "checkpoint"
_SHARD = re.compile(r"(?P<prefix>.+)\.data-(?P<part>\d{5})-of-(?P<parts>\d{5})")
# The last eight bytes of TensorFlow's tables. A file of the first format ends
# with them, and a checkpoint of another library that is called .ckpt does not.
_TABLE_END = bytes.fromhex("57fb808b247547db")


def index_files(folder: pathlib.Path, object_based: bool) -> list[pathlib.Path]:
    """The index files of tf.train.Checkpoint, or those with plain names."""
    # The key is one of the first of the table and stored in full, so there is
    # no need of TensorFlow to see it. Other programs' files of that name, such
    # as search indexes, are no tables and have no data beside them.
    return [
        path
        for path in sorted(folder.glob("*.index"))
        if path.is_file()
        and (
            _ends_like_a_table(path)
            or any(folder.glob(f"{glob.escape(path.stem)}.data-*"))
            or ".ckpt" in path.name
        )
        and (OBJECT_GRAPH.encode() in path.read_bytes()) == object_based
    ]


def remains(folder: pathlib.Path) -> str | None:
    """Says what is left of a checkpoint that has no index, if anything is."""
    if any(folder.glob("*.index")):
        return None
    for path in sorted(folder.iterdir()):
        if not path.is_file():
            continue
        if shard := _SHARD.fullmatch(path.name):
            return f"{path}: {shard['prefix']}.index is missing beside it."
        if re.search(r"\.ckpt(-\d+)*(-of-\d+)?$", path.name):
            if _ends_like_a_table(path):
                return (
                    f"{path}: a checkpoint of TensorFlow's first format; "
                    "restore it and save it with tf.compat.v1.train.Saver("
                    "write_version=tf.compat.v1.train.SaverDef.V2)."
                )
    return None


def _ends_like_a_table(path: pathlib.Path) -> bool:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - len(_TABLE_END)))
        return file.read() == _TABLE_END


def find_prefix(folder: pathlib.Path, object_based: bool) -> pathlib.Path:
    """The prefix of the one checkpoint of a kind, or of its newest.

    Raises `UserError` where there are several and no file names the newest,
    or the newest is not there.
    """
    prefixes = [
        path.with_suffix("") for path in index_files(folder, object_based)
    ]
    names = ", ".join(prefix.name for prefix in prefixes)
    newest_file = folder / _NEWEST_FILE
    demand_regular(newest_file)
    if newest_file.is_file():
        text = newest_file.read_text(encoding="utf-8", errors="replace")
        named = re.search(r'^model_checkpoint_path: "(.+)"$', text, re.M)
        # The path may be one on the machine that wrote it.
        newest = (
            folder / pathlib.PurePosixPath(named[1]).name if named else None
        )
        if newest not in prefixes:
            raise UserError(
                f"{newest_file}: names {newest.name if newest else 'nothing'}, "
                f"but the folder has {names}; remove this file, and all "
                "checkpoints but one."
            )
        return newest
    if len(prefixes) > 1:
        raise UserError(
            f"{folder}: holds {len(prefixes)} checkpoints ({names}) and no "
            "file `checkpoint` that names one; leave one of them."
        )
    return prefixes[0]


def open_checkpoint(prefix: pathlib.Path) -> LazyArrays:
    """Opens a checkpoint whose variables are read when asked for.

    Partitioned variables are whole. Damage in the middle of a variable is
    found when that is read.

    Args:
      prefix: path of the files without .index and .data-*.
    """
    import tensorflow as tf

    if re.search(r"[\[\]\\]", str(prefix)):
        raise UserError(
            f"{prefix}: TensorFlow opens no path with [, ] or a backslash in "
            "it; rename the folder."
        )
    with _one_line(f"{prefix}.index"):
        reader = tf.train.load_checkpoint(str(prefix))
        shapes = reader.get_variable_to_shape_map()
        types = reader.get_variable_to_dtype_map()
    # Strings have no size that is known beforehand.
    expected = sum(
        math.prod(shape) * types[name].size
        for name, shape in shapes.items()
        if types[name] != tf.string
    )
    _check_shards(prefix, expected)

    def read(name: str) -> np.ndarray:
        with _one_line(f"{prefix}.data-*", f" at {name}"):
            return reader.get_tensor(name)

    return LazyArrays(
        {name: tuple(shape) for name, shape in sorted(shapes.items())}, read
    )


@contextmanager
def _one_line(path: str, place: str = "") -> Iterator[None]:
    """What TensorFlow says of a damaged file, as one line."""
    import tensorflow as tf

    try:
        yield
    except (tf.errors.OpError, IndexError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path}: damaged checkpoint{place} ({reason})."
        ) from None


def _check_shards(prefix: pathlib.Path, expected: int) -> None:
    """Whether all shards are there, with all the bytes of the index."""
    shards: dict[int, list[pathlib.Path]] = {}
    for path in sorted(prefix.parent.iterdir()):
        match = _SHARD.fullmatch(path.name)
        if match and match["prefix"] == prefix.name:
            demand_regular(path)
            shards.setdefault(int(match["parts"]), []).append(path)
    whole = [paths for parts, paths in shards.items() if len(paths) == parts]
    if not whole:
        there = sorted(path.name for paths in shards.values() for path in paths)
        raise UserError(
            f"{prefix}.index: its .data files are not all there (found "
            f"{', '.join(there) or 'none'})."
        )
    size = max(sum(path.stat().st_size for path in paths) for paths in whole)
    if size < expected:
        raise UserError(
            f"{whole[0][0]}: truncated; the variables take {expected} bytes, "
            f"and {size} are there."
        )
