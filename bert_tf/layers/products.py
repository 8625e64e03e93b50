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
        x = ops.cast(inputs, "float32")
        square = ops.square(x)
        tanh = ops.tanh(x * (_LINEAR + _CUBIC * square))
        slope = 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - ops.square(tanh)) * (
            _LINEAR + 3.0 * _CUBIC * square
        )
        return ops.cast(ops.cast(upstream, "float32") * slope, inputs.dtype)

    return ops.gelu(inputs, approximate=True), gradient


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


@ops.custom_gradient
def gelu_erf_product(rows: Any, kernel: Any, bias: Any) -> Any:
    """gelu_erf(rows @ kernel + bias), for dtypes of half a float32.

    The gradient computes the product again, so that TensorFlow fuses product,
    bias and activation in training too: products in bfloat16 are so fast
    that passes over their results cost more than they do. In float32 it is
    the other way round.

    Args:
      rows: float [M, I].
      kernel: float [I, O], like `bias` of the dtype of `rows`.
      bias: float [O].

    Returns:
      float [M, O].
    """

    def gradient(*args: Any, upstream: Any = None) -> tuple[Any, Any, Any]:
        upstream = args[0] if upstream is None else upstream
        # Scaled for the error function. TensorFlow would merge an
        # equal product with that of the forward pass, and unfuse that one.
        z = _sum(rows, kernel * _ROOT_HALF, bias * _ROOT_HALF)
        z = ops.cast(z, "float32")
        slope = (0.5 * ops.erf(z) + 0.5) + _tilt(z)
        inner = ops.cast(ops.cast(upstream, "float32") * slope, rows.dtype)
        return _gradients(rows, kernel, inner)

    # This form is the one that TensorFlow fuses.
    inner = _sum(rows, kernel, bias)
    return ops.gelu(inner, approximate=False), gradient
