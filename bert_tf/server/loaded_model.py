"""A SavedModel in memory, and its signatures."""

import dataclasses
import gc
import pathlib
from collections.abc import Callable, Collection

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 - registers the ops of text models
from google.protobuf.message import DecodeError
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from bert_tf.errors import UserError
from bert_tf.foreign_files import demand_regular
from bert_tf.processes import give_memory_back
from bert_tf.server.status import invalid

DEFAULT_SIGNATURE = "serving_default"
_LOAD_ERRORS = (
    tf.errors.OpError,
    DecodeError,
    OSError,
    RuntimeError,
    ValueError,
    TypeError,
)
# TensorFlow 2.21, built for NumPy 1, crashes on arrays with more dimensions.
MAX_DIMS = 32

Arrays = dict[str, np.ndarray]


class LoadError(Exception):
    """A version folder failed to load."""


def dtype_name(number: int) -> str:
    """Returns the name of a TensorFlow dtype, for example float."""
    if number not in types_pb2.DataType.values():
        return f"dtype {number}"
    return types_pb2.DataType.Name(number)[3:].lower()


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Name, dtype and shape of an input or output of a signature."""

    name: str
    dtype: int
    shape: tuple[int | None, ...] | None

    @property
    def dtype_name(self) -> str:
        """The name of the dtype, for example float."""
        return dtype_name(self.dtype)

    @property
    def has_open_batch(self) -> bool:
        """Whether the first dimension may have any size."""
        return self.shape is None or (
            len(self.shape) > 0 and self.shape[0] is None
        )


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature: inputs and outputs by alias, and its function."""

    name: str
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    function: Callable[..., list[np.ndarray]]
    defaults: Arrays = dataclasses.field(default_factory=dict)

    @property
    def can_batch(self) -> bool:
        """Whether rows of several requests may run in one batch."""
        tensors = [*self.inputs.values(), *self.outputs.values()]
        return bool(self.inputs) and all(t.has_open_batch for t in tensors)

    @property
    def can_split(self) -> bool:
        """Whether the outputs of the parts of a request can be joined.

        Rows that are as wide as the widest of their batch differ by part.
        """
        return self.can_batch and all(
            tensor.shape is not None and None not in tensor.shape[1:]
            for tensor in self.outputs.values()
        )

    def check_names(self, inputs: Collection[str]) -> None:
        """Raises RequestError if inputs are missing or unknown."""
        names = ",".join(sorted(inputs))
        missing = sorted(self.inputs.keys() - set(inputs))
        too_few = len(inputs) < len(self.inputs) and not self.defaults
        if len(inputs) > len(self.inputs) or too_few:
            extra = ",".join(sorted(set(inputs) - self.inputs.keys()))
            raise invalid(
                f"input size does not match signature: {len(inputs)}!="
                f"{len(self.inputs)} len({{{names}}}) != "
                f"len({{{','.join(sorted(self.inputs))}}}). Sent extra: "
                f"{{{extra}}}. Missing but required: {{{','.join(missing)}}}."
            )
        for alias in missing:
            if alias not in self.defaults:
                raise invalid(
                    f"Signature input alias: {alias}(feed name: "
                    f"{self.inputs[alias].name}) not found in request and no "
                    "default value provided. Inputs expected to be in the "
                    f"request {{{names}}}, or default input alias set: "
                    f"{','.join(sorted(self.defaults))}"
                )
        used = self.inputs.keys() & set(inputs)
        if len(used) < len(inputs):
            raise invalid(
                "Inputs contains invalid name. Used request inputs: "
                f"{','.join(sorted(used))}, request input: {names}"
            )

    def check_dtype(self, alias: str, dtype: int) -> None:
        """Raises RequestError if an input has another dtype."""
        if dtype != self.inputs[alias].dtype:
            raise invalid(
                f'input "{alias}": Expects arg[{list(self.inputs).index(alias)}'
                f"] to be {self.inputs[alias].dtype_name} but "
                f"{dtype_name(dtype)} is provided"
            )

    def run(self, inputs: Arrays) -> Arrays:
        """Runs the graph on all inputs, which have the signature's dtypes."""
        values = self.function(*(inputs[alias] for alias in self.inputs))
        outputs = {}
        for (alias, tensor), value in zip(
            self.outputs.items(), values, strict=True
        ):
            # The session returns a scalar string as bytes.
            text = tensor.dtype == types_pb2.DT_STRING
            outputs[alias] = np.asarray(value, object if text else None)
        return outputs


class LoadedModel:
    """A SavedModel in a session, as TF Serving loads it.

    Args:
      folder: the version folder, which holds saved_model.pb.
      session: configuration of the session's threads.
      tags: tags of the MetaGraphDef.

    Raises:
      LoadError: the folder holds no complete SavedModel.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        session: tf.compat.v1.ConfigProto,
        tags: tuple[str, ...],
    ) -> None:
        if not (folder / "saved_model.pb").is_file():
            raise LoadError(f"{folder} has no file saved_model.pb")
        # The loader would block forever on a named pipe.
        for path in folder.rglob("*"):
            try:
                demand_regular(path)
            except UserError as error:
                raise LoadError(str(error)) from None
        graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph, config=session)
        try:
            with graph.as_default():
                self._feeds = _feeds(folder, tags)
                self.meta_graph: meta_graph_pb2.MetaGraphDef = (
                    tf.compat.v1.saved_model.loader.load(
                        self._session,
                        list(tags),
                        str(folder),
                        input_map=self._feeds,
                    )
                )
            self.signatures = self._signatures()
        except _LOAD_ERRORS as error:
            self._session.close()
            text = getattr(error, "message", None) or str(error)
            raise LoadError(" ".join(f"{folder}: {text}".split())) from error

    def _signatures(self) -> dict[str, Signature]:
        signatures = {}
        for name, definition in self.meta_graph.signature_def.items():
            if name == "__saved_model_init_op":
                continue
            inputs, outputs = dict(definition.inputs), dict(definition.outputs)
            signatures[name] = Signature(
                name,
                {alias: _tensor(info) for alias, info in inputs.items()},
                {alias: _tensor(info) for alias, info in outputs.items()},
                self._session.make_callable(
                    [self._tensor(name, info) for info in outputs.values()],
                    [self._tensor(name, info) for info in inputs.values()],
                ),
                {
                    alias: tf.make_ndarray(tensor)
                    for alias, tensor in definition.defaults.items()
                },
            )
        return signatures

    def _tensor(self, name: str, info: meta_graph_pb2.TensorInfo) -> tf.Tensor:
        """Returns the tensor of the graph for an input or output."""
        tensor_name = info.name if ":" in info.name else f"{info.name}:0"
        try:
            tensor = self._session.graph.get_tensor_by_name(tensor_name)
        except (KeyError, ValueError) as error:
            raise ValueError(
                f'signature "{name}" names the tensor {info.name}, which is '
                "not in the graph"
            ) from error
        return self._feeds.get(tensor_name, tensor)

    def signature(self, name: str) -> Signature | None:
        """Returns the signature of a name; the empty name is the default."""
        return self.signatures.get(name or DEFAULT_SIGNATURE)

    def close(self) -> None:
        """Closes the session, which must not be running."""
        self._session.close()


def free_memory() -> None:
    """Frees the memory of closed models and returns it to the system.

    A graph and its session are a reference cycle, which Python would collect
    late.
    """
    gc.collect()
    give_memory_back()


def _feeds(folder: pathlib.Path, tags: Collection[str]) -> dict[str, tf.Tensor]:
    """Creates a placeholder of any shape for each input of the signatures.

    Python's session rejects other shapes than the placeholder's. TensorFlow
    Serving feeds them and leaves the check to the graph.
    """
    model = saved_model_pb2.SavedModel.FromString(
        (folder / "saved_model.pb").read_bytes()
    )
    feeds = {}
    for meta_graph in model.meta_graphs:
        # The loader selects the MetaGraphDef by equal tags too.
        if set(meta_graph.meta_info_def.tags) != set(tags):
            continue
        placeholders = {
            f"{node.name}:0"
            for node in meta_graph.graph_def.node
            if node.op == "Placeholder"
        }
        for definition in meta_graph.signature_def.values():
            for info in definition.inputs.values():
                if info.name in placeholders and info.name not in feeds:
                    feeds[info.name] = tf.compat.v1.placeholder(
                        info.dtype, name=f"any_shape/{info.name[:-2]}"
                    )
    return feeds


def _tensor(info: meta_graph_pb2.TensorInfo) -> Tensor:
    shape = None
    if not info.tensor_shape.unknown_rank:
        sizes = (dim.size for dim in info.tensor_shape.dim)
        shape = tuple(None if size < 0 else size for size in sizes)
    return Tensor(info.name, info.dtype, shape)


def rows_of(inputs: Arrays) -> int:
    """Returns the number of rows of inputs; 0 if they have no common one.

    A scalar has no rows.
    """
    rows = {len(array) if array.ndim else 0 for array in inputs.values()}
    return rows.pop() if len(rows) == 1 else 0
