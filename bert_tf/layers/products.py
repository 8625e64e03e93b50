"""Products of rows with a kernel, and activations, with cheap gradients."""

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
    """The sizes of an array's axes from one to before another, for a reshape.

    -1 stands for one that is known at run time only, where there is but one:
    asking for it takes five operations of a graph.
    """
    known = array.shape[first:last]
    if sum(size is None for size in known) > 1:
        return tuple(ops.shape(array)[first:last])
    return tuple(-1 if size is None else size for size in known)


def in_rows(function: Callable[[Any], Any], inputs: Any) -> Any:
    """What a function of rows, [M, I] to [M, O], gives of float [..., I]."""
    if len(inputs.shape) == 2:
        return function(inputs)
    rows = function(ops.reshape(inputs, (-1, inputs.shape[-1])))
    return ops.reshape(rows, (*sizes(inputs, 0, -1), rows.shape[-1]))


def after(tensor: Any, upstream: Any) -> Any:
    """The tensor, for what is to be computed in the backward pass alone.

    What a gradient computes from tensors of the forward pass TensorFlow
    computes there, as soon as it can, or takes from there, and keeps.

    Args:
      tensor: of any dtype and shape.
      upstream: float, the gradient that the backward pass hands over.
    """
    # False, but nothing that simplifies a graph can know it.
    unknown = ops.isnan(ops.sum(ops.reshape(upstream, (-1,))[:1]))
    return tensor + ops.cast(unknown, tensor.dtype)


@custom_gradient
def gelu(inputs: Any) -> Any:
    """The tanh form of the Gaussian error linear unit.

    0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); Hendrycks and Gimpel
    2016, section 2. The gradient is computed from the input alone, in
    float32: automatic differentiation keeps seven arrays of the size of the
    feed-forward layer for each block, which is most of a model's memory.

    Args:
      inputs: float tensor of any shape.

    Returns:
      A tensor of the same shape and dtype.
    """

    half = keras.backend.standardize_dtype(inputs.dtype) != "float32"

    def gradient(upstream: Any) -> Any:
        # A slope that is computed early is kept, in twice the size.
        x = after(inputs, upstream) if half else inputs
        slope = _gelu_slope(ops.cast(x, "float32"))
        return ops.cast(ops.cast(upstream, "float32") * slope, inputs.dtype)

    if half:
        x = ops.cast(inputs, "float32")
        share = _gelu_share(x, ops.square(x))
        return ops.cast(x * share, inputs.dtype), gradient
    return ops.gelu(inputs, approximate=True), gradient


def _gelu_share(x: Any, square: Any) -> Any:
    """sigmoid(2 u) of u = sqrt(2 / pi) (x + 0.044715 x^3), float32.

    `gelu` is x times this, as tanh(u) is 2 sigmoid(2 u) - 1.
    """
    return ops.sigmoid(x * (2 * _CUBIC * square + 2 * _LINEAR))


def _gelu_slope(x: Any) -> Any:
    """The derivative of `gelu`, float32.

    With s = sigmoid(2 u) it is s (1 + (1 - s) x 2 du/dx).
    """
    square = ops.square(x)
    share = _gelu_share(x, square)
    steepness = x * (6 * _CUBIC * square + 2 * _LINEAR)
    return share * (1.0 + (1.0 - share) * steepness)


@custom_gradient
def gelu_erf(inputs: Any) -> Any:
    """The exact Gaussian error linear unit, x Phi(x).

    Hendrycks and Gimpel 2016, section 2. The gradient, in float32, takes the
    input and, of float32, Phi(x) of the forward pass.

    Args:
      inputs: float tensor of any shape.

    Returns:
      A tensor of the same shape and dtype.
    """
    half = keras.backend.standardize_dtype(inputs.dtype) != "float32"
    x = ops.cast(inputs, "float32")
    z = x * _ROOT_HALF
    probability = 0.5 * ops.erf(z) + 0.5

    def gradient(upstream: Any) -> Any:
        share, place = probability, z
        if half:
            # What is kept in float32 would be twice as large as the input.
            late = ops.cast(after(inputs, upstream), "float32")
            place = late * _ROOT_HALF
            share = 0.5 * ops.erf(place) + 0.5
        slope = share + _tilt(place)
        return ops.cast(ops.cast(upstream, "float32") * slope, inputs.dtype)

    return ops.cast(x * probability, inputs.dtype), gradient


def _tilt(z: Any) -> Any:
    """x phi(x) at x = sqrt(2) z, phi being the normal density."""
    # Unary operations in a row, which TensorFlow does in one pass.
    bell = ops.exp(ops.negative(ops.square(z)))
    return (_ROOT_PI_INVERSE * z) * bell


def activate(hidden_act: str, inputs: Any) -> Any:
    """Applies the activation that a configuration names.

    "gelu" is the tanh form, as in google-research/bert, modeling.py;
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

    A product with ones: on a CPU, TensorFlow's own gradient of a bias adds up
    bfloat16 in bfloat16, which is off by a tenth after two thousand rows, and
    its sum over the first axis takes up to three times as long.
    """
    ones = ops.ones((1, ops.shape(rows)[0]), rows.dtype)
    return ops.reshape(ops.matmul(ones, rows), (-1,))


def _gradients(rows: Any, kernel: Any, upstream: Any) -> tuple[Any, Any, Any]:
    """The gradients of rows, kernel and bias from that of their product."""
    return (
        ops.matmul(upstream, ops.transpose(kernel)),
        ops.matmul(ops.transpose(rows), upstream),
        column_sums(upstream),
    )


def _sum(rows: Any, kernel: Any, bias: Any) -> Any:
    # ops.add, unlike +, gives TensorFlow a bias that it fuses with the
    # product, and with the activation if that follows at once.
    return ops.add(ops.matmul(rows, kernel), bias)


@custom_gradient
def product(rows: Any, kernel: Any, bias: Any) -> Any:
    """rows @ kernel + bias.

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


def gelu_product(rows: Any, kernel: Any, bias: Any, hidden_act: str) -> Any:
    """gelu or gelu_erf of rows @ kernel + bias, for dtypes of half a float32.

    TensorFlow fuses product, bias and activation, and rounds once. The gradient
    computes the product again, since nothing is kept of it; for training,
    keeping it is faster.

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
            late = after(kernel, upstream)
            if tanh_form:
                slope = _gelu_slope(ops.cast(_sum(rows, late, bias), "float32"))
            else:
                # Scaled for the error function.
                z = _sum(rows, late * _ROOT_HALF, bias * _ROOT_HALF)
                z = ops.cast(z, "float32")
                slope = (0.5 * ops.erf(z) + 0.5) + _tilt(z)
            inner = ops.cast(ops.cast(upstream, "float32") * slope, rows.dtype)
            return _gradients(rows, kernel, inner)

        # This form is the one that TensorFlow fuses.
        inner = _sum(rows, kernel, bias)
        return ops.gelu(inner, approximate=tanh_form), gradient

    return activated(rows, kernel, bias)
