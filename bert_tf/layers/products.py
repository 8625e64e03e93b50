"""Products of rows with a kernel, and activations, with cheap gradients."""

import math
from typing import Any

from keras import ops

from bert_tf.errors import UserError

# sqrt(2 / pi) and its product with the coefficient of the cubic term.
_LINEAR = math.sqrt(2 / math.pi)
_CUBIC = 0.044715 * _LINEAR
_ROOT_HALF = math.sqrt(0.5)
_ROOT_PI_INVERSE = 1 / math.sqrt(math.pi)


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


@ops.custom_gradient
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

    def gradient(*args: Any, upstream: Any = None) -> Any:
        # TensorFlow hands the gradient over by position, JAX by name.
        upstream = args[0] if upstream is None else upstream
        slope = _gelu_slope(ops.cast(inputs, "float32"))
        return ops.cast(ops.cast(upstream, "float32") * slope, inputs.dtype)

    return ops.gelu(inputs, approximate=True), gradient


def _gelu_slope(x: Any) -> Any:
    """The derivative of `gelu`, float32.

    With s = sigmoid(2 u), of u = sqrt(2 / pi) (x + 0.044715 x^3), gelu is x s
    and its derivative s (1 + (1 - s) x 2 du/dx).
    """
    square = ops.square(x)
    share = ops.sigmoid(x * (2 * _CUBIC * square + 2 * _LINEAR))
    steepness = x * (6 * _CUBIC * square + 2 * _LINEAR)
    return share * (1.0 + (1.0 - share) * steepness)


@ops.custom_gradient
def gelu_erf(inputs: Any) -> Any:
    """The exact Gaussian error linear unit, x Phi(x).

    Hendrycks and Gimpel 2016, section 2. The gradient, in float32, takes the
    input and Phi(x) of the forward pass.

    Args:
      inputs: float tensor of any shape.

    Returns:
      A tensor of the same shape and dtype.
    """
    x = ops.cast(inputs, "float32")
    z = x * _ROOT_HALF
    probability = 0.5 * ops.erf(z) + 0.5

    def gradient(*args: Any, upstream: Any = None) -> Any:
        upstream = args[0] if upstream is None else upstream
        slope = probability + _tilt(z)
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
    return ops.matmul(ones, rows)[0]


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


@ops.custom_gradient
def product(rows: Any, kernel: Any, bias: Any) -> Any:
    """rows @ kernel + bias.

    Args:
      rows: float [M, I].
      kernel: float [I, O], like `bias` of the dtype of `rows`.
      bias: float [O].

    Returns:
      float [M, O].
    """

    def gradient(*args: Any, upstream: Any = None) -> tuple[Any, Any, Any]:
        # TensorFlow hands the gradient over by position, JAX by name.
        upstream = args[0] if upstream is None else upstream
        return _gradients(rows, kernel, upstream)

    return _sum(rows, kernel, bias), gradient


def gelu_product(rows: Any, kernel: Any, bias: Any, hidden_act: str) -> Any:
    """gelu or gelu_erf of rows @ kernel + bias, for dtypes of half a float32.

    The gradient computes the product again, so that TensorFlow fuses product,
    bias and activation in training too, and keeps nothing of them: products in
    bfloat16 are so fast that passes over their results cost more than they do.
    In float32 it is the other way round.

    Args:
      rows: float [M, I].
      kernel: float [I, O], like `bias` of the dtype of `rows`.
      bias: float [O].
      hidden_act: "gelu" or "gelu_erf".

    Returns:
      float [M, O].
    """
    tanh_form = hidden_act == "gelu"

    @ops.custom_gradient
    def activated(rows: Any, kernel: Any, bias: Any) -> Any:
        def gradient(*args: Any, upstream: Any = None) -> tuple[Any, Any, Any]:
            upstream = args[0] if upstream is None else upstream
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
