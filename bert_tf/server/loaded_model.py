"""One version of a model in memory: its signatures, ready to run."""

import dataclasses
import gc
import pathlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 - registers the ops of text models
from google.protobuf.message import DecodeError
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from bert_tf.processes import give_memory_back
from bert_tf.server.status import invalid

DEFAULT_SIGNATURE = "serving_default"
_LOAD_ERRORS = (tf.errors.OpError, DecodeError, OSError, RuntimeError)
_LOAD_ERRORS += (ValueError, TypeError)

Arrays = dict[str, np.ndarray]


class LoadError(Exception):
    """A version folder that could not be loaded."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Name and kind of an input or output, as its signature has them."""

    name: str
    dtype: int
    shape: tuple[int | None, ...] | None

    @property
    def dtype_name(self) -> str:
        """The name of the dtype, such as float."""
        return types_pb2.DataType.Name(self.dtype)[3:].lower()

    @property
    def has_open_batch(self) -> bool:
        """Whether the first dimension may have any size."""
        return self.shape is None or (
            len(self.shape) > 0 and self.shape[0] is None
        )

    def check(self, alias: str, array: np.ndarray) -> None:
        """Raises RequestError where an array does not fit."""
        given = tf.as_dtype(array.dtype).as_datatype_enum
        if given != self.dtype:
            name = types_pb2.DataType.Name(given)[3:].lower()
            raise invalid(
                f'input "{alias}" is expected to be {self.dtype_name} but is '
                f"{name}"
            )
        if self.shape is None:
            return
        fits = len(self.shape) == array.ndim and all(
            size is None or size == have
            for size, have in zip(self.shape, array.shape, strict=True)
        )
        if not fits:
            want = ", ".join(str(-1 if s is None else s) for s in self.shape)
            raise invalid(
                f'input "{alias}" is expected to have shape [{want}] but has '
                f"[{', '.join(map(str, array.shape))}]"
            )


@dataclasses.dataclass(frozen=True)
class Signature:
    """One signature: inputs and outputs by alias, and its computation."""

    name: str
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    function: Callable[..., list[np.ndarray]]

    @property
    def can_batch(self) -> bool:
        """Whether rows of several requests may run together."""
        tensors = [*self.inputs.values(), *self.outputs.values()]
        return bool(self.inputs) and all(t.has_open_batch for t in tensors)

    def check(self, inputs: Arrays) -> None:
        """Raises RequestError where the inputs do not fit the signature."""
        if inputs.keys() != self.inputs.keys():
            extra = ",".join(sorted(inputs.keys() - self.inputs.keys()))
            missing = ",".join(sorted(self.inputs.keys() - inputs.keys()))
            raise invalid(
                f"input size does not match signature: {len(inputs)}!="
                f"{len(self.inputs)} len({{{','.join(sorted(inputs))}}}) != "
                f"len({{{','.join(sorted(self.inputs))}}}). Sent extra: "
                f"{{{extra}}}. Missing but required: {{{missing}}}."
            )
        for alias, array in inputs.items():
            self.inputs[alias].check(alias, array)
        if self.can_batch:
            self._check_rows(inputs)

    def _check_rows(self, inputs: Arrays) -> None:
        rows = {alias: len(array) for alias, array in inputs.items()}
        if len(set(rows.values())) > 1:
            raise invalid(
                "the inputs have different numbers of rows: "
                + ", ".join(f"{a} {n}" for a, n in sorted(rows.items()))
            )
        if 0 in rows.values():
            raise invalid("the batch is empty: give at least one row")

    def run(self, inputs: Arrays) -> Arrays:
        """Runs the graph on inputs that `check` has passed."""
        values = self.function(*(inputs[alias] for alias in self.inputs))
        return {
            alias: np.asarray(value)
            for alias, value in zip(self.outputs, values, strict=True)
        }


class LoadedModel:
    """A SavedModel, loaded by the loader that TF Serving uses too.

    Args:
      folder: the version folder, which holds saved_model.pb.
      session_config: threads of the session.

    Raises:
      LoadError: the folder holds no whole SavedModel.
    """

    def __init__(
        self, folder: pathlib.Path, session_config: tf.compat.v1.ConfigProto
    ) -> None:
        if not (folder / "saved_model.pb").is_file():
            raise LoadError(f"{folder} has no file saved_model.pb")
        graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph, config=session_config)
        try:
            with graph.as_default():
                self.meta_graph: meta_graph_pb2.MetaGraphDef = (
                    tf.compat.v1.saved_model.loader.load(
                        self._session,
                        [tf.saved_model.SERVING],
                        str(folder),
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
                    [info.name for info in outputs.values()],
                    [info.name for info in inputs.values()],
                ),
            )
        return signatures

    def signature(self, name: str) -> Signature | None:
        """The signature of that name; the empty name means the default."""
        return self.signatures.get(name or DEFAULT_SIGNATURE)

    def close(self) -> None:
        """Ends the session; nothing may be running."""
        self._session.close()


def free_memory() -> None:
    """Frees what closed models held and gives it back to the system.

    A graph and its session refer to each other, so they would stay until
    Python looks for such circles, which it rarely does.
    """
    gc.collect()
    give_memory_back()


def _tensor(info: meta_graph_pb2.TensorInfo) -> Tensor:
    shape = None
    if not info.tensor_shape.unknown_rank:
        sizes = (dim.size for dim in info.tensor_shape.dim)
        shape = tuple(None if size < 0 else size for size in sizes)
    return Tensor(info.name, info.dtype, shape)


def rows_of(inputs: Arrays) -> int:
    """The number of rows in the first input."""
    first = next(iter(inputs.values()))
    return len(first) if first.ndim else 1
