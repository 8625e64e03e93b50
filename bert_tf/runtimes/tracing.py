"""Traces a Keras model to a graph of operations that all file formats have.

The TensorFlow graph is translated operation by operation. Layer normalisation
and GELU become one operation each; they are recognised by matching the graphs
of the layers' functions. Products of flattened rows [M, I] become products of
[..., I], and the fused product of queries, keys and values becomes three, which
saves copies.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.features import ENCODER_INPUTS
from bert_tf.layers.attention import uncut_attention
from bert_tf.layers.base import normalise
from bert_tf.layers.products import activate
from bert_tf.layers.traced_once import traced_each_time
from bert_tf.runtimes.graph import (
    BATCH,
    GELU,
    INPUT,
    LAYER_NORM,
    LENGTH,
    ONE,
    ONE_HOT,
    Graph,
    Size,
    UnknownError,
    Value,
    constant,
    count,
    of_sizes,
    reshape,
    slice_axis,
    transpose,
    unsupported,
    whole_of,
)

# Element-wise operations, by their TensorFlow names; those of ONNX first.
_ONNX_NAMES = (
    *("Abs", "Add", "Cast", "Cos", "Elu", "Equal", "Erf", "Erfc", "Exp"),
    *("Greater", "LeakyRelu", "Less", "Log", "Mul", "Neg", "Pow", "Relu"),
    *("Sigmoid", "Sin", "Softplus", "Sqrt", "Sub", "Tanh"),
)
_ELEMENTWISE = dict(zip(_ONNX_NAMES, _ONNX_NAMES, strict=True)) | {
    "AddV2": "Add",
    "BiasAdd": "Add",
    "GreaterEqual": "GreaterOrEqual",
    "LessEqual": "LessOrEqual",
    "LogicalAnd": "And",
    "LogicalNot": "Not",
    "LogicalOr": "Or",
    "Maximum": "Max",
    "Minimum": "Min",
    "RealDiv": "Div",
    "SelectV2": "Where",
}
_REDUCTIONS = {"Max": "ReduceMax", "Mean": "ReduceMean", "Sum": "ReduceSum"}
# Operations that return their inputs.
_IDENTITIES = ("Identity", "IdentityN", "PreventGradient", "StopGradient")


class _Pattern(NamedTuple):
    """A subgraph that is replaced by one operation."""

    operation: str
    attributes: dict[str, Any]
    inputs: list[Value]
    output: Value


def trace(
    function: Callable[[dict[str, tf.Tensor]], Mapping[str, tf.Tensor]],
    shape: tuple[int | None, int | None],
    source: str,
) -> Graph:
    """Traces a model of token ids.

    Args:
      function: maps the encoder's inputs by name to outputs by name.
      shape: shape of each input, [B, S]; None is known only at run time.
      source: name of the model, for errors.

    Raises:
      UserError: the model has an unsupported operation.
    """
    names = [feature.name for feature in ENCODER_INPUTS]
    order: list[str] = []

    def outputs(*given: tf.Tensor) -> Mapping[str, tf.Tensor]:
        found = function(dict(zip(names, given, strict=True)))
        # TensorFlow sorts outputs by name.
        order[:] = found
        return found

    with uncut_attention(), traced_each_time():
        concrete = _concrete(
            outputs, [tf.TensorSpec(shape, tf.int32, name) for name in names]
        )
    sizes = tuple(
        Size(1, (symbol,)) if size is None else Size(size)
        for symbol, size in zip((BATCH, LENGTH), shape, strict=True)
    )
    inputs = [Value(INPUT, (), sizes, np.int32, name) for name in names]
    found = _Translation(source, _patterns()).run(concrete, inputs)
    return Graph(inputs, {name: found[name] for name in order})


def _concrete(function: Callable, signature: list[tf.TensorSpec]) -> Any:
    traced = tf.function(function, signature, autograph=False)
    return traced.get_concrete_function()


@functools.cache
def _patterns() -> list[_Pattern]:
    """Traces the functions that files have an operation for, once."""
    rows = tf.TensorSpec([None, 8], tf.float32)
    vector, number = (tf.TensorSpec(s, tf.float32) for s in ([8], []))
    functions: list[tuple[str, dict[str, Any], Callable, list]] = [
        (LAYER_NORM, {}, normalise, [rows, number, vector])
    ]
    for form, hidden_act in (("tanh", "gelu"), ("none", "gelu_erf")):
        ours = functools.partial(activate, hidden_act)
        tensorflows = functools.partial(tf.nn.gelu, approximate=form == "tanh")
        functions += [
            (GELU, {"approximate": form}, gelu, [rows])
            for gelu in (ours, tensorflows)
        ]
    found = []
    for operation, attributes, function, signature in functions:
        concrete = _concrete(lambda *x, f=function: {"": f(*x)}, signature)
        inputs = [
            Value(INPUT, (), tuple(Size(size or 1) for size in spec.shape))
            for spec in signature
        ]
        output = _Translation("", []).run(concrete, inputs)[""]
        found.append(_Pattern(operation, attributes, inputs, output))
    return found


def _matches(pattern: Value, value: Value, bound: dict[Value, Value]) -> bool:
    """Matches a value against a pattern, and binds the pattern's inputs."""
    if pattern.operation == INPUT:
        return bound.setdefault(pattern, value) is value
    if pattern.array is not None or value.array is not None:
        return np.array_equal(pattern.array, value.array)
    return (
        pattern.operation == value.operation
        and pattern.attributes == value.attributes
        and len(pattern.inputs) == len(value.inputs)
        and all(
            _matches(part, other, bound)
            for part, other in zip(pattern.inputs, value.inputs, strict=True)
        )
    )


def _known(value: Value) -> int:
    """Returns the value of a constant whole number."""
    if value.array is None:
        raise UnknownError
    return int(value.array)


class _Translation:
    """Translates a TensorFlow graph.

    Args:
      source: name of the model, for errors.
      patterns: subgraphs to replace by one operation.
    """

    def __init__(self, source: str, patterns: list[_Pattern]):
        self._source, self._patterns = source, patterns
        self._others: dict[str, Callable[..., Any]] = {
            "ArgMax": self._arg_max,
            "BatchMatMulV2": self._matmul,
            "ConcatV2": self._concat,
            "ExpandDims": self._expand,
            "GatherV2": self._gather,
            "Log1p": lambda _, value: self._elementwise(
                "Log",
                [
                    self._elementwise(
                        "Add",
                        [value, constant(np.array(1, value.dtype))],
                        value.dtype,
                    )
                ],
                value.dtype,
            ),
            "MatMul": self._matmul,
            "NotEqual": lambda _, left, right: self._elementwise(
                "Not",
                [self._elementwise("Equal", [left, right], np.bool_)],
                np.bool_,
            ),
            "OneHot": self._one_hot,
            "Pack": self._pack,
            "Prod": self._product,
            "Range": self._range,
            "Reshape": self._reshaped,
            "Rsqrt": self._rsqrt,
            "Shape": lambda _, value: of_sizes(
                value.shape, (Size(len(value.shape)),)
            ),
            "Softmax": lambda _, value: self._make(
                "Softmax", [value], value.shape
            ),
            "Square": lambda _, value: self._elementwise(
                "Mul", [value, value], value.dtype
            ),
            "Split": self._split,
            "Squeeze": self._squeeze,
            "StridedSlice": self._strided_slice,
            "Transpose": self._transposed,
            "Unpack": self._unpack,
        }

    def run(self, concrete: Any, inputs: Sequence[Value]) -> dict[str, Value]:
        """Returns the outputs of a concrete function by name."""
        values: dict[Any, Sequence[Any]] = {
            tensor.op: [value]
            for tensor, value in zip(concrete.inputs, inputs, strict=False)
        }
        for outside, tensor in concrete.graph.captures:
            values[tensor.op] = [outside]
        outputs = concrete.structured_outputs
        needed, waiting = set(), [tensor.op for tensor in outputs.values()]
        while waiting:
            operation = waiting.pop()
            if operation not in needed:
                needed.add(operation)
                waiting += [tensor.op for tensor in operation.inputs]
        for operation in concrete.graph.get_operations():
            if operation in needed and operation not in values:
                given = [values[t.op][t.value_index] for t in operation.inputs]
                values[operation] = self._translate(operation, given)
        return {
            name: values[tensor.op][tensor.value_index]
            for name, tensor in outputs.items()
        }

    def _translate(self, operation: Any, given: list[Any]) -> Sequence[Value]:
        kind = operation.type
        if kind in _IDENTITIES:
            return given
        if kind == "Const":
            array = tf.make_ndarray(operation.get_attr("value"))
            return [constant(array)]
        if kind == "ReadVariableOp":
            dtype = operation.get_attr("dtype")
            weight = tf.raw_ops.ReadVariableOp(resource=given[0], dtype=dtype)
            return [constant(weight.numpy(), operation.name)]
        attribute = operation.get_attr
        dtype = operation.outputs[0].dtype.as_numpy_dtype
        try:
            if kind in _ELEMENTWISE:
                alpha = {}
                if kind == "LeakyRelu":
                    alpha["alpha"] = attribute("alpha")
                name = _ELEMENTWISE[kind]
                return [self._elementwise(name, given, dtype, **alpha)]
            if kind in _REDUCTIONS:
                keep = attribute("keep_dims")
                value, axes = given
                return [self._reduce(_REDUCTIONS[kind], value, axes, keep)]
            if kind not in self._others:
                raise UnknownError
            result = self._others[kind](operation, *given)
        except UnknownError:
            raise unsupported(
                self._source, f"{kind} ({operation.name})"
            ) from None
        return [result] if isinstance(result, Value) else result

    def _make(
        self,
        operation: str,
        inputs: Sequence[Value],
        shape: Sequence[Size],
        dtype: Any = np.float32,
        **attributes: Any,
    ) -> Value:
        """Creates a value, or the operation that replaces a pattern."""
        value = Value(operation, inputs, tuple(shape), dtype, **attributes)
        first = inputs[0]
        if operation == "Add" and first.operation == LAYER_NORM:
            shift = inputs[1].array
            if len(first.inputs) == 2 and np.ndim(shift) == 1:
                given = [*first.inputs, inputs[1]]
                return Value(
                    LAYER_NORM,
                    given,
                    value.shape,
                    computed=value,
                    **first.attributes,
                )
        for pattern in self._patterns:
            bound: dict[Value, Value] = {}
            if not _matches(pattern.output, value, bound):
                continue
            given = [bound[each] for each in pattern.inputs]
            found = dict(pattern.attributes)
            if pattern.operation == LAYER_NORM:
                epsilon = given.pop(1)
                if any(each.array is None for each in (epsilon, *given[1:])):
                    continue
                found["epsilon"] = float(epsilon.array)
            return Value(
                pattern.operation, given, value.shape, computed=value, **found
            )
        return value

    def _elementwise(
        self,
        operation: str,
        inputs: Sequence[Value],
        dtype: Any,
        **attributes: Any,
    ) -> Value:
        if operation == "Cast":
            (value,) = inputs
            if value.dtype == dtype:
                return value
            if value.sizes is not None and np.issubdtype(dtype, np.integer):
                return of_sizes(value.sizes, value.shape, dtype)
            attributes["to"] = np.dtype(dtype).name
        if operation in ("Add", "Mul") and not any(v.shape for v in inputs):
            sizes = [size for value in inputs for size in value.sizes or ()]
            if len(sizes) == 2:
                first, second = sorted(sizes, key=lambda s: bool(s.symbols))
                if operation == "Mul":
                    return of_sizes((first.times(second),), (), dtype)
                if not first.symbols:
                    size = second.plus(first.number)
                    return of_sizes((size,), (), dtype)
        wholes = [whole_of(value) for value in inputs]
        found = [whole for whole in wholes if whole is not None]
        pairs = list(zip(inputs, wholes, strict=True))
        if found and all(
            len(value.shape) < 2
            if whole is None
            else whole.shape[:-1] == found[0].shape[:-1]
            for value, whole in pairs
        ):
            inputs = [
                value if whole is None else whole for value, whole in pairs
            ]
            return self._rows(
                self._elementwise(operation, inputs, dtype, **attributes)
            )
        rank = max(len(value.shape) for value in inputs)
        aligned = [
            (ONE,) * (rank - len(value.shape)) + value.shape for value in inputs
        ]
        shape = [
            next((size for size in sizes if size != ONE), ONE)
            for sizes in zip(*aligned, strict=True)
        ]
        return self._make(operation, inputs, shape, dtype, **attributes)

    def _rows(self, value: Value) -> Value:
        return reshape(value, (count(value.shape[:-1]), value.shape[-1]))

    def _reduce(
        self, operation: str, value: Value, axes: Value, keepdims: bool
    ) -> Value:
        if axes.array is None:
            raise UnknownError
        rank = len(value.shape)
        found = {int(axis) % rank for axis in axes.array.reshape(-1)}
        whole = whole_of(value)
        last = constant(np.array([-1], np.int32))
        if whole is not None and keepdims and found == {rank - 1}:
            return self._rows(self._reduce(operation, whole, last, True))
        kept = [
            ONE if axis in found else size
            for axis, size in enumerate(value.shape)
            if keepdims or axis not in found
        ]
        return self._make(
            operation,
            [value],
            kept,
            value.dtype,
            axes=tuple(sorted(axis - rank for axis in found)),
            keepdims=int(keepdims),
        )

    def _arg_max(self, operation: Any, value: Value, axis: Value) -> Value:
        rank = len(value.shape)
        at = _known(axis) % rank
        shape = (*value.shape[:at], *value.shape[at + 1 :])
        dtype = operation.get_attr("output_type").as_numpy_dtype
        return self._make("ArgMax", [value], shape, dtype, axis=at)

    def _matmul(self, operation: Any, left: Value, right: Value) -> Value:
        names = ("transpose_a", "transpose_b")
        if operation.type == "BatchMatMulV2":
            names = ("adj_x", "adj_y")

        def turned(value: Value, attribute: str) -> Value:
            if not operation.get_attr(attribute):
                return value
            order = list(range(len(value.shape)))
            order[-2:] = order[:-3:-1]
            return transpose(value, order)

        return self._dot(turned(left, names[0]), turned(right, names[1]))

    def _dot(self, left: Value, right: Value) -> Value:
        if len(right.shape) == 2:
            whole = whole_of(left)
            if whole is not None:
                return self._rows(self._dot(whole, right))
            if left.operation == ONE_HOT and right.array is not None:
                (ids,) = left.inputs
                if right.shape[0] == left.shape[-1]:
                    return self._row_of(right, ids)
        leading = (left if len(left.shape) >= len(right.shape) else right).shape
        shape = (*leading[:-2], left.shape[-2], right.shape[-1])
        return self._make("MatMul", [left, right], shape)

    def _row_of(self, table: Value, ids: Value) -> Value:
        shape = (*ids.shape, *table.shape[1:])
        return self._make("Gather", [table, ids], shape, table.dtype)

    def _gather(
        self, operation: Any, table: Value, ids: Value, axis: Value
    ) -> Value:
        if _known(axis) or operation.get_attr("batch_dims"):
            raise UnknownError
        if table.sizes is not None and ids.array is not None:
            found = tuple(table.sizes[n] for n in ids.array.reshape(-1))
            return of_sizes(found, ids.shape, table.dtype)
        return self._row_of(table, ids)

    def _one_hot(
        self, operation: Any, ids: Value, depth: Value, on: Value, off: Value
    ) -> Value:
        if (on.array, off.array) != (1.0, 0.0) or not depth.sizes:
            raise UnknownError
        return self._make(ONE_HOT, [ids], (*ids.shape, *depth.sizes))

    def _rsqrt(self, operation: Any, value: Value) -> Value:
        root = self._elementwise("Sqrt", [value], value.dtype)
        one = constant(np.array(1, value.dtype))
        return self._elementwise("Div", [one, root], value.dtype)

    def _reshaped(self, operation: Any, value: Value, target: Value) -> Value:
        if target.sizes is None:
            raise UnknownError
        known = [size for size in target.sizes if size.number != -1]
        rest = count(value.shape).over(count(known))
        return reshape(
            value,
            [rest if size.number == -1 else size for size in target.sizes],
        )

    def _transposed(self, operation: Any, value: Value, order: Value) -> Value:
        if order.array is None:
            raise UnknownError
        return transpose(value, order.array.tolist())

    def _expand(self, operation: Any, value: Value, axis: Value) -> Value:
        shape = list(value.shape)
        at = _known(axis)
        shape.insert(at if at >= 0 else len(shape) + 1 + at, ONE)
        return reshape(value, shape)

    def _split(self, operation: Any, axis: Value, value: Value) -> list[Value]:
        at = _known(axis) % len(value.shape)
        if value.shape[at].symbols:
            raise UnknownError
        count = operation.get_attr("num_split")
        size = value.shape[at].number // count
        whole = whole_of(value) if at == len(value.shape) - 1 else None
        source = value if whole is None else whole
        parts = [
            slice_axis(
                source,
                at if whole is None else len(source.shape) - 1,
                number * size,
                Size((number + 1) * size),
            )
            for number in range(count)
        ]
        return parts if whole is None else [self._rows(p) for p in parts]

    def _squeeze(self, operation: Any, value: Value) -> Value:
        rank = len(value.shape)
        gone = {axis % rank for axis in operation.get_attr("squeeze_dims")}
        if not gone:
            gone = {n for n, size in enumerate(value.shape) if size == ONE}
        return reshape(
            value, [s for axis, s in enumerate(value.shape) if axis not in gone]
        )

    def _product(self, operation: Any, value: Value, axes: Value) -> Value:
        if value.sizes is None:
            raise UnknownError
        return of_sizes((count(value.sizes),), (), value.dtype)

    def _range(
        self, operation: Any, start: Value, limit: Value, delta: Value
    ) -> Value:
        if all(each.array is not None for each in (start, limit, delta)):
            found = np.arange(start.array, limit.array, delta.array)
            return constant(found.astype(limit.dtype))
        begin = _known(start)
        if _known(delta) != 1:
            raise UnknownError
        if limit.sizes is None:
            raise UnknownError
        size = limit.sizes[0].plus(-begin)
        return self._make("Range", [start, limit], (size,), limit.dtype)

    def _concat(self, operation: Any, *given: Value) -> Value:
        *values, axis = given
        if len(values) == 1:
            return values[0]
        rank = len(values[0].shape)
        at = _known(axis) % rank
        if rank == 1 and all(v.sizes is not None for v in values):
            sizes = sum((v.sizes for v in values if v.sizes), ())
            return of_sizes(sizes, (Size(len(sizes)),), values[0].dtype)
        along = [value.shape[at] for value in values]
        if any(size.symbols for size in along):
            raise UnknownError
        shape = list(values[0].shape)
        shape[at] = Size(sum(size.number for size in along))
        return self._make("Concat", values, shape, values[0].dtype, axis=at)

    def _pack(self, operation: Any, *values: Value) -> Value:
        at = operation.get_attr("axis")
        if all(v.sizes is not None and not v.shape for v in values):
            sizes = sum((v.sizes for v in values if v.sizes), ())
            return of_sizes(sizes, (Size(len(sizes)),), values[0].dtype)
        shape = list(values[0].shape)
        at %= len(shape) + 1
        shape.insert(at, ONE)
        parts = [reshape(value, shape) for value in values]
        return self._concat(operation, *parts, constant(np.array(at, np.int32)))

    def _unpack(self, operation: Any, value: Value) -> list[Value]:
        at = operation.get_attr("axis") % len(value.shape)
        size = value.shape[at]
        return [
            self._columns(value, at, number) or self._picked(value, at, number)
            for number in range(size.number)
        ]

    def _picked(self, value: Value, axis: int, number: int) -> Value:
        """Selects an element of an axis and removes the axis."""
        found = slice_axis(value, axis, number, Size(number + 1))
        return reshape(found, (*value.shape[:axis], *value.shape[axis + 1 :]))

    def _columns(self, value: Value, axis: int, number: int) -> Value | None:
        """Computes `_picked` of a fused product as a product of its columns."""
        order = list(range(len(value.shape)))
        inner = value
        if inner.operation == "Transpose":
            order = list(inner.attributes["perm"])
            (inner,) = inner.inputs
        if inner.operation != "Reshape":
            return None
        split, (total,) = inner.shape, inner.inputs
        if total.operation != "Add" or total.inputs[0].operation != "MatMul":
            return None
        product, bias = total.inputs
        rows, kernel = product.inputs
        at = len(total.shape) - 1
        if (
            order[axis] != at
            or split[:at] != total.shape[:at]
            or kernel.array is None
            or kernel.array.ndim != 2
            or bias.array is None
            or bias.array.ndim != 1
        ):
            return None
        width = count(split[at + 1 :])
        ends = number * width.number, Size((number + 1) * width.number)
        found = self._elementwise(
            "Add",
            [
                self._dot(rows, slice_axis(kernel, 1, *ends)),
                slice_axis(bias, 0, *ends),
            ],
            np.float32,
        )
        found = reshape(found, (*split[:at], *split[at + 1 :]))
        order = [other - (other > at) for other in order if other != at]
        return transpose(found, order)

    def _strided_slice(
        self,
        operation: Any,
        value: Value,
        begin: Value,
        end: Value,
        step: Value,
    ) -> Value:
        begin_mask, end_mask, ellipsis_mask, new_mask, shrink_mask = (
            operation.get_attr(f"{name}_mask")
            for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
        )
        if begin.sizes is None or end.sizes is None or step.sizes is None:
            raise UnknownError
        if any(size != ONE for size in step.sizes):
            raise UnknownError
        places = range(len(begin.sizes))
        taken = [n for n in places if not (new_mask | ellipsis_mask) >> n & 1]
        shape: list[Size] = []
        axis = 0
        for n in places:
            if ellipsis_mask >> n & 1:
                skipped = len(value.shape) - len(taken)
                shape += value.shape[axis : axis + skipped]
                axis += skipped
                continue
            if new_mask >> n & 1:
                shape.append(ONE)
                continue
            size = value.shape[axis]
            low, high = (
                Size(each.number + size.number)
                if each.number < 0 and not size.symbols
                else each
                for each in (begin.sizes[n], end.sizes[n])
            )
            if begin_mask >> n & 1:
                low = Size(0)
            if end_mask >> n & 1:
                high = size
            if shrink_mask >> n & 1:
                high = Size(low.number + 1)
            if low.symbols or low.number < 0 or high.number < 0:
                raise UnknownError
            if not high.symbols and not size.symbols:
                high = min(high, size)
            if value.sizes is not None:
                found = value.sizes[low.number : high.number]
                value = of_sizes(found, (Size(len(found)),), value.dtype)
            else:
                value = slice_axis(value, axis, low.number, high)
            if not shrink_mask >> n & 1:
                shape.append(value.shape[axis])
            axis += 1
        return reshape(value, [*shape, *value.shape[axis:]])
