"""Products of rows with a kernel, with gradients that cost little."""

from typing import Any

from keras import ops

from bert_tf.layers.activations import ROOT_HALF, gelu_erf_slope


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
        # Scaled as the error function wants it. TensorFlow would merge an
        # equal product with that of the forward pass, and unfuse that one.
        z = _sum(rows, kernel * ROOT_HALF, bias * ROOT_HALF)
        slope = gelu_erf_slope(ops.cast(z, "float32"))
        inner = ops.cast(ops.cast(upstream, "float32") * slope, rows.dtype)
        return _gradients(rows, kernel, inner)

    # This form is the one that TensorFlow fuses.
    inner = _sum(rows, kernel, bias)
    return ops.gelu(inner, approximate=False), gradient
