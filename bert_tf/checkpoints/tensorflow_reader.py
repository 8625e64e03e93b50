"""Reads the variables of TensorFlow checkpoints."""

import math
import pathlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import numpy as np

from bert_tf.checkpoints.recognition import OBJECT_GRAPH, SHARD
from bert_tf.errors import UserError, one_line
from bert_tf.foreign_files import demand_regular
from bert_tf.lazy_arrays import LazyArrays

# Suffix of the keys of variables.
VARIABLE_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# Patterns of the optimizers with their slots, metrics and counters that Keras
# saves with the weights.
TRAINING_STATE = (
    r"(.+/)?\.OPTIMIZER_SLOT/.+",
    r"(.+/)?(optimizer|optimizer_weights|keras_api|metrics)/.+",
    r"(.+/)?(save_counter|global_step)",
)


def open_checkpoint(prefix: pathlib.Path) -> LazyArrays:
    """Opens a checkpoint by its prefix; variables are read at each access.

    Partitioned variables are joined. Damage inside a variable is detected when
    it is read.

    Raises:
      UserError: the files are damaged or incomplete.
    """
    import tensorflow as tf

    if re.search(r"[\[\]\\]", str(prefix)):
        raise UserError(
            f"{prefix}: TensorFlow opens no path with [, ] or a backslash in "
            "it; rename the folder."
        )
    with _refuse_damage(f"{prefix}.index"):
        reader = tf.train.load_checkpoint(str(prefix))
        shapes = reader.get_variable_to_shape_map()
        types = reader.get_variable_to_dtype_map()
    # The size of strings is unknown.
    expected = sum(
        math.prod(shape) * types[name].size
        for name, shape in shapes.items()
        if types[name] != tf.string
    )
    _check_shards(prefix, expected)

    def read(name: str) -> np.ndarray:
        with _refuse_damage(f"{prefix}.data-*", f" at {name}"):
            return reader.get_tensor(name)

    return LazyArrays(
        {name: tuple(shape) for name, shape in sorted(shapes.items())}, read
    )


class ObjectGraph:
    """The object graph of a checkpoint: nodes, attributes, variables.

    Args:
      serialized: a TrackableObjectGraph; its first node is the root.
      source: the file, for errors.
    """

    def __init__(self, serialized: bytes, source: str) -> None:
        from google.protobuf.message import DecodeError
        from tensorflow.core.protobuf import trackable_object_graph_pb2

        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        try:
            graph.ParseFromString(serialized)
        except DecodeError:
            raise UserError(f"{source}: damaged graph of objects.") from None
        self.parts = [
            {part.local_name: part.node_id for part in node.children}
            for node in graph.nodes
        ]
        self.keys: dict[int, str] = {}
        self.names: dict[int, str] = {}
        for number, node in enumerate(graph.nodes):
            for value in node.attributes:
                if value.name == "VARIABLE_VALUE":
                    self.keys[number] = value.checkpoint_key
                    self.names[number] = value.full_name

    @classmethod
    def of(cls, opened: LazyArrays, source: str) -> Self:
        """Reads the graph of an open checkpoint."""
        # TensorFlow returns a single string as bytes, not as an array.
        return cls(bytes(opened[OBJECT_GRAPH]), source)

    def at(self, node: int, path: str) -> int | None:
        """Returns the node at the end of a path of attributes, or None."""
        for name in path.split("/") if path else ():
            if name not in self.parts[node]:
                return None
            node = self.parts[node][name]
        return node


def open_by_full_name(prefix: pathlib.Path) -> LazyArrays:
    """Opens a tf.train.Checkpoint with variables under their full names.

    Optimizer slots, whose names repeat those of weights, and variables with
    duplicate names keep their paths through the object graph.
    """
    opened = open_checkpoint(prefix)
    graph = ObjectGraph.of(opened, f"{prefix}.index")
    named = {key: graph.names[node] for node, key in graph.keys.items()}
    names: dict[str, str] = {}
    for key in opened:
        path = key.removesuffix(VARIABLE_VALUE)
        name = named.get(key) or path
        if name in names or any(re.fullmatch(p, path) for p in TRAINING_STATE):
            name = path
        if key != OBJECT_GRAPH:
            names[name] = key
    return opened.renamed(names)


@contextmanager
def _refuse_damage(path: str, place: str = "") -> Iterator[None]:
    """Turns TensorFlow's errors about a damaged file into `UserError`."""
    import tensorflow as tf

    try:
        yield
    except (tf.errors.OpError, IndexError, RuntimeError) as error:
        raise UserError(
            f"{path}: damaged checkpoint{place} ({one_line(error)})."
        ) from None


def _check_shards(prefix: pathlib.Path, expected: int) -> None:
    """Checks that all shards exist and hold the bytes of the index."""
    shards: dict[int, list[pathlib.Path]] = {}
    for path in sorted(prefix.parent.iterdir()):
        match = SHARD.fullmatch(path.name)
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
