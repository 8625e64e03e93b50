"""Writes ONNX files that take token ids, in float32 or int8.

Opset 20 (ONNX 1.15, 2023) is the first with GELU; layer normalisation exists
since opset 17.
"""

import logging
import pathlib
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bert_tf.errors import UserError
from bert_tf.features import INPUT_MASK
from bert_tf.runtimes.graph import (
    BATCH,
    LENGTH,
    Arrays,
    Graph,
    Shape,
    Size,
    Value,
    unsupported,
)

FILE = "model.onnx"
# Whether rows have a fixed length.
PADDED = False
_OPSET, _IR_VERSION = 20, 9
_OF_TOKENS = (Size(1, (BATCH,)), Size(1, (LENGTH,)))
# protobuf messages are limited to 2 GB.
_LARGEST_BYTES = 2**31 - 2**20


class _Writer:
    """Adds a node for each operation; tensors are names.

    Args:
      graph: the traced model.
      source: name of the model, for errors.
      int8: whether products with kernels will be quantized.
    """

    def __init__(self, graph: Graph, source: str, int8: bool):
        self._source, self._int8 = source, int8
        self._mask = ""
        self._without: dict[str, str] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self._names: dict[Value, str] = {v: v.name for v in graph.inputs}
        self._symbols: dict[str, str] = {}
        self._first = graph.inputs[0].name

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator}_{len(self.nodes)}"
        node = helper.make_node(operator, inputs, [name], name, **attributes)
        self.nodes.append(node)
        return name

    def _numbers(self, array: np.ndarray) -> str:
        """Adds a small constant, named by its value."""
        values = "_".join(map(str, array.reshape(-1)))
        return self._constant(array, f"{array.dtype}_{array.ndim}_{values}")

    def _constant(self, array: np.ndarray, name: str) -> str:
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def _whole_numbers(self, *numbers: int) -> str:
        return self._numbers(np.array(numbers, np.int64))

    def name(self, value: Value) -> str:
        """Returns the name of a value's tensor."""
        if value not in self._names:
            self._names[value] = self._written(value)
        return self._names[value]

    def _written(self, value: Value) -> str:
        operation, attributes = value.operation, value.attributes
        if value.array is not None:
            if value.array.size < 8:
                return self._numbers(value.array)
            count = len(self.constants)
            name = value.name or "constant"
            return self._constant(value.array, f"{name}_{count}")
        if value.sizes is not None:
            sizes = self._sizes(value.sizes)
            if not value.shape:
                sizes = self.node("Squeeze", sizes)
            return self.node("Cast", sizes, to=_type(value.dtype))
        inputs = [self.name(each) for each in value.inputs]
        if operation == "Reshape":
            return self.node(
                operation, *inputs, self._target(value.inputs[0], value.shape)
            )
        if operation == "Slice":
            begin, axis = attributes["begin"], attributes["axis"]
            return self.node(
                operation,
                *inputs,
                self._whole_numbers(begin),
                self._sizes((attributes["end"],)),
                self._whole_numbers(axis),
            )
        if operation == "Range":
            step = self._numbers(np.array(1, value.dtype))
            return self.node(operation, *inputs, step)
        if operation.startswith("Reduce"):
            return self.node(
                operation,
                *inputs,
                self._whole_numbers(*attributes["axes"]),
                keepdims=attributes["keepdims"],
            )
        if operation == "ArgMax":
            found = self.node(operation, *inputs, keepdims=0, **attributes)
            return self.node("Cast", found, to=_type(value.dtype))
        if operation == "Cast":
            return self.node(operation, *inputs, to=_type(value.dtype))
        if not onnx.defs.has(operation):
            raise unsupported(self._source, operation)
        if operation == "MatMul" and self._int8:
            left, right = value.inputs
            if right.array is not None and left.shape[:2] == _OF_TOKENS:
                inputs[0] = self._without_padding(inputs[0])
        return self.node(operation, *inputs, **attributes)

    def _without_padding(self, name: str) -> str:
        """Sets [B, S, H] at padding to 0, which does not widen its range."""
        if not self._mask:
            mask = self.node("Cast", INPUT_MASK.name, to=onnx.TensorProto.FLOAT)
            axis = self._whole_numbers(2)
            self._mask = self.node("Unsqueeze", mask, axis)
        if name not in self._without:
            self._without[name] = self.node("Mul", name, self._mask)
        return self._without[name]

    def _symbol(self, symbol: str) -> str:
        """Adds the size of an axis of the first input."""
        if symbol not in self._symbols:
            axis = (BATCH, LENGTH).index(symbol)
            self._symbols[symbol] = self.node(
                "Shape", self._first, start=axis, end=axis + 1
            )
        return self._symbols[symbol]

    def _sizes(self, sizes: Shape) -> str:
        """Adds an int64 vector of sizes."""
        if not any(size.symbols for size in sizes):
            return self._whole_numbers(*(size.number for size in sizes))
        parts = []
        for size in sizes:
            factors = [self._symbol(symbol) for symbol in size.symbols]
            if size.number != 1 or not factors:
                factors.insert(0, self._whole_numbers(size.number))
            part, *others = factors
            for factor in others:
                part = self.node("Mul", part, factor)
            if size.added:
                added = self._whole_numbers(size.added)
                part = self.node("Add", part, added)
            parts.append(part)
        return (
            parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=0)
        )

    def _target(self, value: Value, shape: Shape) -> str:
        """Adds the second input of Reshape: 0 keeps an axis, -1 is inferred."""
        found = [
            0
            if axis < len(value.shape) and size == value.shape[axis]
            else -1
            if size.symbols
            else size.number
            for axis, size in enumerate(shape)
        ]
        if found.count(-1) > 1:
            return self._sizes(shape)
        return self._whole_numbers(*found)


def _type(dtype: np.dtype) -> int:
    return helper.np_dtype_to_tensor_dtype(dtype)


def write_model(
    path: pathlib.Path, graph: Graph, source: str, int8: bool = False
) -> None:
    """Writes a model that takes any number of rows of any length.

    With `int8`, kernels are quantized per column, embedding tables per tensor
    and inputs dynamically, by their range without padding; everything else
    stays float32. Kernels use 7 bits,
    since CPUs without VNNI add pairs of products in 16 bits, so that the
    measured score holds on those CPUs too.

    Args:
      path: the file.
      graph: the traced model.
      source: name of the model, for errors.
      int8: whether to quantize.

    Raises:
      UserError: the model is too large for the format, or the format has no
        operator for an operation of the model.
    """
    model = onnx_model(graph, source, int8)
    if not int8:
        path.write_bytes(model.SerializeToString())
        return
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # It suggests a pre-processing that has no effect on this graph.
    logging.disable(logging.WARNING)
    try:
        quantize_dynamic(
            model,
            path,
            op_types_to_quantize=["MatMul", "Gather"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
        )
    finally:
        logging.disable(logging.NOTSET)


def onnx_model(
    graph: Graph, source: str, int8: bool = False
) -> onnx.ModelProto:
    """Converts a traced model; see `write_model`, which quantizes it."""
    writer = _Writer(graph, source, int8)
    for name, value in graph.outputs.items():
        node = helper.make_node("Identity", [writer.name(value)], [name])
        writer.nodes.append(node)
    size = sum(len(each.raw_data) for each in writer.constants.values())
    if size > _LARGEST_BYTES:
        raise UserError(
            f"`file_format`=onnx: the model has {size / 1e9:.1f} GB, and such "
            "a file takes 2; give saved_model."
        )

    def info(name: str, value: Value) -> onnx.ValueInfoProto:
        axes = [
            size.symbols[0] if size.symbols else size.number
            for size in value.shape
        ]
        return helper.make_tensor_value_info(name, _type(value.dtype), axes)

    model = helper.make_model(
        helper.make_graph(
            writer.nodes,
            "bert",
            [info(value.name, value) for value in graph.inputs],
            [info(name, value) for name, value in graph.outputs.items()],
            list(writer.constants.values()),
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="bert_tf",
    )
    onnx.checker.check_model(model, full_check=True)
    return model


class Runner:
    """Runs a file with ONNX Runtime on the CPU.

    Args:
      path: the file.
      cores: cores that compute a batch; 0 takes all.

    Attributes:
      shapes: the shapes of the outputs by name; None where it depends on the
        inputs.
    """

    def __init__(self, path: pathlib.Path, cores: int = 0):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # Hides warnings about quantized graphs.
        options.log_severity_level = 3
        options.intra_op_num_threads = cores
        self._session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        self.shapes = {
            each.name: tuple(
                size if isinstance(size, int) else None for size in each.shape
            )
            for each in self._session.get_outputs()
        }

    def __call__(self, inputs: Arrays) -> Arrays:
        """Maps int32 [B, S] inputs by name to outputs by name."""
        found = self._session.run(None, inputs)
        return dict(zip(self.shapes, found, strict=True))
