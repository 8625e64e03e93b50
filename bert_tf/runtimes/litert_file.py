"""Writes LiteRT (TensorFlow Lite) files, which take rows of a fixed length.

The file is written with the flatbuffers schema of TensorFlow 2.21. TensorFlow's
converter writes the same operators, but takes half a minute and 4 GB for 23
million parameters, and supports the error function only in one form of GELU.
"""

import os
import pathlib
import threading
import warnings
from typing import Any

import flatbuffers
import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

from bert_tf.features import ENCODER_INPUTS
from bert_tf.runtimes.graph import (
    GELU,
    LAYER_NORM,
    Arrays,
    Graph,
    Value,
    is_of_tokens,
    unsupported,
)

FILE = "model.tflite"
# Whether rows have a fixed length.
PADDED = True
_SCHEMA_VERSION, _IDENTIFIER = 3, b"TFL3"
# The schema requires aligned constants.
_ALIGNMENT = 16
# Smaller constants stay float32, as in TensorFlow's converter.
_LEAST_INT8 = 1024
# Operations of graph.py that have their names in the schema, with and without
# options of their names.
_WITH_OPTIONS = (
    *("Abs", "Add", "Cast", "Cos", "Div", "Equal", "Exp", "Gather", "Greater"),
    *(GELU, "Less", "Mul", "Neg", "Pow", "Reshape", "Slice", "Softmax"),
    *("Sub", "Transpose"),
)
_WITHOUT_OPTIONS = ("Elu", "Log", "Relu", "Sin", "Sqrt", "Tanh")
# Built-in operators and their options, by operation.
_OPERATORS = {
    **{name: (name.upper(), name) for name in _WITH_OPTIONS},
    **{name: (name.upper(), "") for name in _WITHOUT_OPTIONS},
    "And": ("LOGICAL_AND", "LogicalAnd"),
    "ArgMax": ("ARG_MAX", "ArgMax"),
    "Concat": ("CONCATENATION", "Concatenation"),
    "GreaterOrEqual": ("GREATER_EQUAL", "GreaterEqual"),
    "LeakyRelu": ("LEAKY_RELU", "LeakyRelu"),
    "LessOrEqual": ("LESS_EQUAL", "LessEqual"),
    "MatMul": ("BATCH_MATMUL", "BatchMatMul"),
    "Max": ("MAXIMUM", "MaximumMinimum"),
    "Min": ("MINIMUM", "MaximumMinimum"),
    "Not": ("LOGICAL_NOT", "LogicalNot"),
    "Or": ("LOGICAL_OR", "LogicalOr"),
    "ReduceMax": ("REDUCE_MAX", "Reducer"),
    "ReduceMean": ("MEAN", "Reducer"),
    "ReduceSum": ("SUM", "Reducer"),
    "Sigmoid": ("LOGISTIC", ""),
    "Where": ("SELECT_V2", "SelectV2"),
}


class _Builder(flatbuffers.Builder):
    """A flatbuffers builder that aligns byte vectors."""

    def StartVector(self, size: int, count: int, alignment: int) -> int:  # noqa: N802
        """See `flatbuffers.Builder`."""
        if size == 1:
            alignment = _ALIGNMENT
        return super().StartVector(size, count, alignment)


def _type(dtype: np.dtype) -> int:
    return getattr(schema.TensorType, dtype.name.upper())


class _Writer:
    """Adds an operator for each operation; tensors are indices.

    Args:
      graph: the traced model.
      source: name of the model, for errors.
      int8: whether kernels and tables are stored in 8 bits.
    """

    def __init__(self, graph: Graph, source: str, int8: bool):
        self._source, self._int8 = source, int8
        self.tensors: list[Any] = []
        self.buffers = [schema.BufferT()]
        self.operators: list[Any] = []
        self.codes: dict[tuple[str, int], int] = {}
        self._numbers: dict[Any, int] = {}
        self.inputs = {value.name: self.number(value) for value in graph.inputs}
        self.outputs = {
            name: self.number(value) for name, value in graph.outputs.items()
        }

    def number(self, value: Value) -> int:
        """Returns the index of a value's tensor."""
        if value not in self._numbers:
            self._numbers[value] = self._written(value)
        return self._numbers[value]

    def _tensor(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
        array: np.ndarray | None = None,
        name: str = "",
        scales: np.ndarray | None = None,
    ) -> int:
        found = schema.TensorT(
            shape=list(shape),
            type=_type(dtype),
            name=name or f"tensor_{len(self.tensors)}",
            hasRank=True,
        )
        if array is not None:
            found.buffer = len(self.buffers)
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self.buffers.append(schema.BufferT(data))
        if scales is not None:
            found.quantization = schema.QuantizationParametersT(
                scale=scales, zeroPoint=np.zeros(len(scales), np.int64)
            )
        self.tensors.append(found)
        return len(self.tensors) - 1

    def _constant(self, array: np.ndarray) -> int:
        """Adds a small constant, unless an equal one exists."""
        key = array.dtype, array.shape, array.tobytes()
        if key not in self._numbers:
            self._numbers[key] = self._tensor(array.shape, array.dtype, array)
        return self._numbers[key]

    def _integers(self, values: Any) -> int:
        return self._constant(np.array(values, np.int32))

    def _quantized(self, array: np.ndarray, name: str, axis: int | None) -> int:
        """Adds an int8 constant with a scale for each row of axis 0, or one."""
        largest = np.abs(array).max(axis, keepdims=True)
        scales = np.where(largest, largest, 1).astype(np.float32) / 127
        array = np.rint(array / scales).astype(np.int8)
        return self._tensor(
            array.shape, array.dtype, array, name, scales.reshape(-1)
        )

    def _operator(
        self,
        builtin: str,
        options: str,
        inputs: list[int],
        output: int,
        version: int = 1,
        **attributes: Any,
    ) -> int:
        code = self.codes.setdefault((builtin, version), len(self.codes))
        found = schema.OperatorT(code, inputs, [output])
        if options:
            name = f"{options}Options"
            found.builtinOptionsType = getattr(schema.BuiltinOptions, name)
            found.builtinOptions = getattr(schema, f"{name}T")(**attributes)
        self.operators.append(found)
        return output

    def _written(self, value: Value) -> int:
        operation, attributes = value.operation, value.attributes
        shape = tuple(size.number for size in value.shape)
        if value.array is not None:
            if value.array.size < _LEAST_INT8:
                return self._constant(value.array)
            return self._tensor(shape, value.dtype, value.array, value.name)
        if not value.inputs:
            return self._tensor(shape, value.dtype, name=value.name)
        if operation == LAYER_NORM:
            return self.number(value.computed)
        product, bias = value, None
        if operation == "Add" and value.inputs[1].array is not None:
            product, bias = value.inputs[0], value.inputs[1].array
        if product.operation == "MatMul" and (bias is None or bias.ndim == 1):
            rows, kernel = product.inputs
            if kernel.array is not None and kernel.array.ndim == 2:
                return self._dense(rows, kernel.array, bias, kernel.name, shape)
        if operation == "Gather" and self._int8:
            table, ids = value.inputs
            if table.array is not None and table.array.size >= _LEAST_INT8:
                return self._rows(table, ids, shape)
        if operation not in _OPERATORS:
            raise unsupported(self._source, operation)
        inputs = [self.number(each) for each in value.inputs]
        options: dict[str, Any] = {}
        if operation == "Reshape":
            inputs.append(self._integers(shape))
            options = {"newShape": list(shape)}
        elif operation == "Transpose":
            inputs.append(self._integers(attributes["perm"]))
        elif operation == "Slice":
            begin = [0] * len(shape)
            begin[attributes["axis"]] = attributes["begin"]
            inputs += map(self._integers, (begin, shape))
        elif operation.startswith("Reduce"):
            inputs.append(self._integers(attributes["axes"]))
            options = {"keepDims": bool(attributes["keepdims"])}
        elif operation == "ArgMax":
            inputs.append(self._integers(attributes["axis"]))
            options = {"outputType": _type(value.dtype)}
        elif operation == "Cast":
            (given,) = value.inputs
            options = {
                "inDataType": _type(given.dtype),
                "outDataType": _type(value.dtype),
            }
        elif operation == "Concat":
            options = {"axis": attributes["axis"]}
        elif operation == "Softmax":
            options = {"beta": 1.0}
        elif operation == GELU:
            options = {"approximate": attributes["approximate"] == "tanh"}
        elif operation == "LeakyRelu":
            options = {"alpha": attributes["alpha"]}
        output = self._tensor(shape, value.dtype)
        return self._operator(*_OPERATORS[operation], inputs, output, **options)

    def _dense(
        self,
        rows: Value,
        kernel: np.ndarray,
        bias: np.ndarray | None,
        name: str,
        shape: tuple[int, ...],
    ) -> int:
        """Adds a product with a kernel [I, O], which is stored as [O, I]."""
        small = self._int8 and kernel.size >= _LEAST_INT8
        if small and rows.operation == LAYER_NORM and len(rows.inputs) == 3:
            # Scale and shift move into the kernel: quantizing inputs of
            # similar size loses less.
            _, gamma, beta = (each.array for each in rows.inputs)
            bias = beta @ kernel + (0 if bias is None else bias)
            kernel = kernel * gamma[:, np.newaxis]
            scaled = rows.computed.inputs[0].computed
            rows = scaled.inputs[0]
        if small:
            weights = self._quantized(kernel.T, name, 1)
        else:
            weights = self._tensor(kernel.T.shape, kernel.dtype, kernel.T, name)
        inputs = [self.number(rows), weights]
        inputs.append(-1 if bias is None else self._constant(bias))
        return self._operator(
            "FULLY_CONNECTED",
            "FullyConnected",
            inputs,
            self._tensor(shape, kernel.dtype),
            version=12 if small else 5,
            keepNumDims=True,
            asymmetricQuantizeInputs=small,
        )

    def _rows(self, table: Value, ids: Value, shape: tuple[int, ...]) -> int:
        """Adds a lookup in an int8 table with float32 results."""
        stored = self._quantized(table.array, table.name, None)
        found = self._tensor(
            shape,
            np.dtype(np.int8),
            scales=self.tensors[stored].quantization.scale,
        )
        self._operator(
            "GATHER", "Gather", [stored, self.number(ids)], found, version=2
        )
        output = self._tensor(shape, np.dtype(np.float32))
        return self._operator(
            "DEQUANTIZE", "Dequantize", [found], output, version=2
        )


def write_model(
    path: pathlib.Path, graph: Graph, source: str, int8: bool = False
) -> None:
    """Writes a model that takes one row of the length it was traced with.

    With `int8`, kernels and embedding tables are stored in 8 bits, and the
    inputs of products are quantized dynamically (dynamic range quantization);
    everything else is float32.

    Args:
      path: the file.
      graph: the model, traced with a static shape.
      source: name of the model, for errors.
      int8: whether to quantize.

    Raises:
      UserError: the format has no operator for an operation of the model.
    """
    writer = _Writer(graph, source, int8)

    def maps(numbers: dict[str, int]) -> list[Any]:
        return [
            schema.TensorMapT(name, number) for name, number in numbers.items()
        ]

    codes = []
    for builtin, version in writer.codes:
        code = getattr(schema.BuiltinOperator, builtin)
        # The one-byte code is for older readers.
        codes.append(schema.OperatorCodeT(min(code, 127), None, version, code))
    model = schema.ModelT(
        _SCHEMA_VERSION,
        codes,
        [
            schema.SubGraphT(
                writer.tensors,
                list(writer.inputs.values()),
                list(writer.outputs.values()),
                writer.operators,
                "main",
            )
        ],
        "bert_tf",
        writer.buffers,
        signatureDefs=[
            schema.SignatureDefT(
                maps(writer.inputs), maps(writer.outputs), "serving_default"
            )
        ],
    )
    size = sum(
        len(each.data) for each in writer.buffers if each.data is not None
    )
    # Large enough that the buffer never grows, which would copy it.
    builder = _Builder(size + 2**20)
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    path.write_bytes(memoryview(builder.Bytes)[builder.Head() :])


class Runner:
    """Runs a file with TensorFlow's interpreter on the CPU, row by row.

    Args:
      path: the file.
      cores: cores that compute a row; 0 takes all.

    Attributes:
      length: number of tokens of a row.
      shapes: the shapes of the outputs by name; None where it depends on the
        inputs.
    """

    def __init__(self, path: pathlib.Path, cores: int = 0):
        with warnings.catch_warnings():
            # The interpreter has moved to the package ai-edge-litert.
            warnings.simplefilter("ignore")
            interpreter = tf.lite.Interpreter(
                str(path), num_threads=cores or len(os.sched_getaffinity(0))
            )
        self._run = interpreter.get_signature_runner()
        # An interpreter computes one row at a time.
        self._lock = threading.Lock()
        details = self._run.get_input_details()
        self.length = int(details[ENCODER_INPUTS[0].name]["shape"][1])
        self.shapes: dict[str, tuple[int | None, ...]] = {}
        for name, each in self._run.get_output_details().items():
            shape = [None, *map(int, each["shape"][1:])]
            if is_of_tokens(name, len(shape)):
                shape[1] = None
            self.shapes[name] = tuple(shape)

    def __call__(self, inputs: Arrays) -> Arrays:
        """Maps int32 [B, S] inputs by name to outputs by name."""
        length = inputs[ENCODER_INPUTS[0].name].shape[1]
        missing = ((0, 0), (0, self.length - length))
        filled = {name: np.pad(rows, missing) for name, rows in inputs.items()}
        with self._lock:
            results = [
                self._run(
                    **{n: rows[row : row + 1] for n, rows in filled.items()}
                )
                for row in range(len(filled[ENCODER_INPUTS[0].name]))
            ]
        outputs = {
            name: np.concatenate([each[name] for each in results])
            for name in results[0]
        }
        return {
            name: values[:, :length]
            if None in self.shapes[name][1:]
            else values
            for name, values in outputs.items()
        }
