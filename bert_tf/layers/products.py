"""Matrix products and activations with memory-saving gradients."""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bert_tf.compat import custom_gradient
from bert_tf.errors import UserError

# sqrt(2 / pi) and its product with the coefficient of the cubic term.
_LINEAR = math.sqrt(2 / math.pi)
_CUBIC = 0.044715 * _LINEAR
_ROOT_HALF = math.sqrt(0.5)
_ROOT_PI_INVERSE = 1 / math.sqrt(math.pi)


def sizes(array: Any, first: int, last: int | None = None) -> tuple[Any, ...]:
    """The sizes of an array's axes `first` to `last`, for a reshape.

    A single dynamic size is -1, because reading it takes five operations.
    """
    static = array.shape[first:last]
    if sum(size is None for size in static) > 1:
        return tuple(ops.shape(array)[first:last])
    return tuple(-1 if size is None else size for size in static)


def choose(condition: Any, then: Any, otherwise: Any) -> Any:
    """Selects a number; a tensor if the condition is known at run time only."""
    if isinstance(condition, bool):
        return then if condition else otherwise
    return ops.where(condition, then, otherwise)


def in_rows(function: Callable[[Any], Any], inputs: Any) -> Any:
    """Applies a function from [M, I] to [M, O] to float [..., I]."""
    if len(inputs.shape) == 2:
        return function(inputs)
    rows = function(ops.reshape(inputs, (-1, inputs.shape[-1])))
    return ops.reshape(rows, (*sizes(inputs, 0, -1), rows.shape[-1]))


def in_backward_pass(tensor: Any, upstream: Any) -> Any:
    """Returns the tensor, made to depend on the upstream gradient.

    Otherwise TensorFlow computes functions of forward tensors during the
    forward pass, or shares them with it, and stores the results.

    Args:
      tensor: of any dtype and shape.
      upstream: float, the upstream gradient.
    """
    # False, but no graph optimizer can know it.
    is_nan = ops.isnan(ops.sum(ops.reshape(upstream, (-1,))[:1]))
    return tensor + ops.cast(is_nan, tensor.dtype)


@custom_gradient
def gelu(inputs: Any) -> Any:
    """Computes the tanh approximation of the Gaussian error linear unit.

    0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); Hendrycks and Gimpel
    2016, section 2. The gradient stores only the input in float32, otherwise
    only the derivative, computed in float32 and rounded: automatic
    differentiation stores seven arrays of the size of the feed-forward layer
    per block, most of a model's memory.

    Args:
      inputs: float tensor of any shape.

    Returns:
      A tensor of the same shape and dtype.
    """
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    if dtype == "float32":
        # TensorFlow fuses its own form with a product.
        return (
            ops.gelu(inputs, approximate=True),
            lambda upstream: upstream * _gelu(inputs)[1],
        )
    outputs, derivative = _gelu(ops.cast(inputs, "float32"))
    derivative = ops.cast(derivative, dtype)
    return ops.cast(outputs, dtype), lambda upstream: upstream * derivative


def _gelu(x: Any) -> tuple[Any, Any]:
    """The tanh form and its derivative, float32.

    x s and s + x s (1 - s) 2 du/dx, where u is the argument of tanh and
    s = sigmoid(2 u) = (1 + tanh(u)) / 2.
    """
    square = ops.square(x)
    gate = ops.sigmoid(x * (2 * _CUBIC * square + 2 * _LINEAR))
    outputs = x * gate
    slope = 6 * _CUBIC * square + 2 * _LINEAR
    return outputs, gate + outputs * (1.0 - gate) * slope


@custom_gradient
def gelu_erf(inputs: Any) -> Any:
    """Computes the exact Gaussian error linear unit, x Phi(x).

    Hendrycks and Gimpel 2016, section 2. The gradient stores only the
    derivative, computed in float32 and rounded to the dtype of the input.

    Args:
      inputs: float tensor of any shape.

    Returns:
      A tensor of the same shape and dtype.
    """
    x = ops.cast(inputs, "float32")
    z = x * _ROOT_HALF
    probability = 0.5 * ops.erf(z) + 0.5
    derivative = ops.cast(probability + _density_term(z), inputs.dtype)
    outputs = ops.cast(x * probability, inputs.dtype)
    return outputs, lambda upstream: upstream * derivative


def _density_term(z: Any) -> Any:
    """x phi(x) at x = sqrt(2) z, where phi is the normal density."""
    # TensorFlow fuses consecutive unary operations into one pass.
    density = ops.exp(ops.negative(ops.square(z)))
    return (_ROOT_PI_INVERSE * z) * density


def activate(hidden_act: str, inputs: Any) -> Any:
    """Applies the activation of a configuration.

    "gelu" is the tanh approximation, as in google-research/bert, modeling.py;
    "gelu_erf" is the exact form.

    Args:
      hidden_act: a name of `bert_tf.config.ACTIVATIONS`.
      inputs: float tensor of any shape.

    Raises:
      UserError: the name is unknown.
    """
    if hidden_act == "gelu":
        return gelu(inputs)
    if hidden_act == "gelu_erf":
        return gelu_erf(inputs)
    if hidden_act == "relu":
        return ops.relu(inputs)
    if hidden_act == "tanh":
        return ops.tanh(inputs)
    if hidden_act == "linear":
        return inputs
    raise UserError(f"hidden_act is {hidden_act!r}, which is unknown.")


def column_sums(rows: Any) -> Any:
    """Sums float [M, O] over its rows: float [O].

    A product with ones: on a CPU, TensorFlow's gradient of a bias accumulates
    bfloat16 in bfloat16, with a tenth of error after two thousand rows, and
    its sum over the first axis takes up to three times as long.
    """
    ones = ops.ones((1, ops.shape(rows)[0]), rows.dtype)
    return ops.reshape(ops.matmul(ones, rows), (-1,))


def _gradients(rows: Any, kernel: Any, upstream: Any) -> tuple[Any, Any, Any]:
    """The gradients of rows @ kernel + bias."""
    return (
        ops.matmul(upstream, ops.transpose(kernel)),
        ops.matmul(ops.transpose(rows), upstream),
        column_sums(upstream),
    )


def _sum(rows: Any, kernel: Any, bias: Any) -> Any:
    # TensorFlow fuses the bias of ops.add, unlike that of +, with the product
    # and with an activation that follows directly.
    return ops.add(ops.matmul(rows, kernel), bias)


@custom_gradient
def product(rows: Any, kernel: Any, bias: Any) -> Any:
    """Computes rows @ kernel + bias.

    Args:
      rows: float [M, I].
      kernel: float [I, O], like `bias` of the dtype of `rows`.
      bias: float [O].

    Returns:
      float [M, O].
    """

    def gradient(upstream: Any) -> tuple[Any, Any, Any]:
        return _gradients(rows, kernel, upstream)

    return _sum(rows, kernel, bias), gradient


@custom_gradient
def table_product(rows: Any, table: Any) -> Any:
    """Computes rows @ table^T.

    The gradient of the table has its own layout; TensorFlow would transpose
    that of the transposed table, a pass over the whole table.

    Args:
      rows: float [M, E].
      table: float [V, E], of the dtype of `rows`.

    Returns:
      float [M, V].
    """

    def gradient(upstream: Any) -> tuple[Any, Any]:
        return (
            ops.matmul(upstream, table),
            ops.matmul(ops.transpose(upstream), rows),
        )

    return ops.matmul(rows, ops.transpose(table)), gradient


def gelu_product(rows: Any, kernel: Any, bias: Any, hidden_act: str) -> Any:
    """Computes gelu or gelu_erf of rows @ kernel + bias for 16-bit dtypes.

    TensorFlow fuses product, bias and activation, and rounds once. The
    gradient recomputes the product; for training, storing it is faster.

    Args:
      rows: float [M, I].
      kernel: float [I, O], like `bias` of the dtype of `rows`.
      bias: float [O].
      hidden_act: "gelu" or "gelu_erf".

    Returns:
      float [M, O].
    """
    tanh_form = hidden_act == "gelu"

    @custom_gradient
    def activated(rows: Any, kernel: Any, bias: Any) -> Any:
        def gradient(upstream: Any) -> tuple[Any, Any, Any]:
            late = in_backward_pass(kernel, upstream)
            if tanh_form:
                x = ops.cast(_sum(rows, late, bias), "float32")
                _, derivative = _gelu(x)
            else:
                # The argument of the error function.
                z = _sum(rows, late * _ROOT_HALF, bias * _ROOT_HALF)
                z = ops.cast(z, "float32")
                derivative = (0.5 * ops.erf(z) + 0.5) + _density_term(z)
            inner = ops.cast(upstream, "float32") * derivative
            return _gradients(rows, kernel, ops.cast(inner, rows.dtype))

        inner = _sum(rows, kernel, bias)
        return ops.gelu(inner, approximate=tanh_form), gradient

    return activated(rows, kernel, bias)
