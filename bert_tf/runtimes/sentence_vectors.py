"""One vector a text over the operations of a format.

The same as `families.sentence_vectors`, for rows whose prompt is pooled.
"""

from typing import Any

import numpy as np

from bert_tf.checkpoints.sentence_modules import (
    CLS,
    LAST_TOKEN,
    MAX,
    MEAN_SQRT_LEN,
    WEIGHTED_MEAN,
    Dense,
    SentenceModules,
)
from bert_tf.config import ACTIVATIONS
from bert_tf.errors import UserError
from bert_tf.runtimes.operations import Operations, hiding, last_token, number


def check_modules(modules: SentenceModules, source: str) -> None:
    """Refuses modules that such a file cannot hold.

    Raises:
      UserError: the tokens of prompts are not pooled, which token ids do not
        tell, or a format has no such activation.
    """
    if modules.leaves_prompts_out:
        raise UserError(
            f"{source}: include_prompt is false, and a file that takes token "
            "ids cannot tell which are the prompt's; give `file_format` "
            "saved_model."
        )
    for step in modules.steps:
        if isinstance(step, Dense) and step.activation not in ACTIVATIONS:
            raise UserError(
                f"{source}: has a Dense module with the activation "
                f"{step.activation}, which such a file is not written with; "
                "give `file_format` saved_model."
            )


def sentence_vector(
    ops: Operations, modules: SentenceModules, hidden: Any, kept: Any
) -> Any:
    """The vectors of rows.

    Args:
      ops: of the format.
      modules: see `check_modules`.
      hidden: float32 [B, S, H].
      kept: float32 [B, S], 1 of tokens and 0 of padding.

    Returns:
      float32 [B, D].
    """
    pooled = [_pool(ops, mode, hidden, kept) for mode in modules.pooling]
    vectors = pooled[0] if len(pooled) == 1 else ops.join(pooled, 2)
    for place, step in enumerate(modules.steps):
        if isinstance(step, Dense):
            vectors = _dense(ops, step, vectors, f"sentence/dense_{place}")
        else:
            vectors = _normalised(ops, vectors)
    if modules.truncate_dim is not None:
        vectors = ops.part(vectors, 2, 0, modules.truncate_dim)
    return ops.reshape(vectors, (0, -1))


def _pool(ops: Operations, mode: str, hidden: Any, kept: Any) -> Any:
    """The tokens of each row pooled, [B, 1, H]."""
    if mode == CLS:
        return ops.part(hidden, 1, 0, 1)
    if mode == LAST_TOKEN:
        return last_token(ops, hidden, kept)
    row = ops.reshape(kept, (0, 1, -1))
    if mode == MAX:
        shown = ops.add(ops.transpose(hidden, (0, 2, 1)), hiding(ops, row))
        return ops.reshape(ops.largest(shown), (0, 1, -1))
    if mode == WEIGHTED_MEAN:
        place = ops.add(ops.to_float(ops.positions(kept)), number(ops, 1.0))
        row = ops.reshape(ops.multiply(kept, place), (0, 1, -1))
    # Products with the mask are sums over the tokens.
    weight = ops.matmul(row, ops.reshape(kept, (0, -1, 1)))
    exponent = -0.5 if mode == MEAN_SQRT_LEN else -1.0
    return ops.multiply(ops.matmul(row, hidden), ops.power(weight, exponent))


def _dense(ops: Operations, dense: Dense, vectors: Any, name: str) -> Any:
    def product(kernel: np.ndarray, part: str) -> Any:
        return ops.matmul(vectors, ops.constant(kernel, f"{name}/{part}"))

    found = product(dense.kernel, "kernel")
    if dense.bias is not None:
        found = ops.add(found, ops.constant(dense.bias, f"{name}/bias"))
    found = ops.activate(dense.activation, found)
    if not dense.use_residual:
        return found
    if dense.residual_kernel is None:
        return ops.add(found, vectors)
    return ops.add(found, product(dense.residual_kernel, "residual"))


def _normalised(ops: Operations, vectors: Any) -> Any:
    """Vectors [B, 1, D] of length one; zeros stay zeros."""
    squares = ops.matmul(vectors, ops.transpose(vectors, (0, 2, 1)))
    # The square of the least length, 1e-12.
    squares = ops.add(squares, number(ops, 1e-24))
    return ops.multiply(vectors, ops.power(squares, -0.5))
