"""The operations that files of other runtimes are written with."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.layers.attention import MASKED_SCORE


class Operations(abc.ABC):
    """The operations of a format on its own kind of tensors.

    Tensors are float32 where nothing else is said.
    """

    @abc.abstractmethod
    def constant(self, array: np.ndarray, name: str) -> Any:
        """A tensor of an array, float32 or int32, under a name of its own."""

    @abc.abstractmethod
    def positions(self, row: Any) -> Any:
        """0 to S-1 for a tensor [B, S]: int32 [S]."""

    @abc.abstractmethod
    def rows(self, table: Any, ids: Any) -> Any:
        """The rows of a table [R, H] for int32 ids [...]: [..., H]."""

    @abc.abstractmethod
    def to_float(self, values: Any) -> Any:
        """Whole numbers, or booleans as 0 and 1, as float32."""

    @abc.abstractmethod
    def less(self, left: Any, right: Any) -> Any:
        """left < right, bool."""

    @abc.abstractmethod
    def add(self, left: Any, right: Any) -> Any:
        """left + right."""

    @abc.abstractmethod
    def multiply(self, left: Any, right: Any) -> Any:
        """left * right, element by element."""

    @abc.abstractmethod
    def largest(self, values: Any) -> Any:
        """The largest along the last axis, which stays."""

    @abc.abstractmethod
    def matmul(self, left: Any, right: Any) -> Any:
        """The products of the matrices in the last two axes."""

    @abc.abstractmethod
    def reshape(self, values: Any, shape: tuple[int, ...]) -> Any:
        """Another shape; 0 keeps the size of the axis, -1 takes the rest."""

    @abc.abstractmethod
    def transpose(self, values: Any, order: tuple[int, ...]) -> Any:
        """The axes in another order."""

    @abc.abstractmethod
    def part(self, values: Any, axis: int, begin: int, end: int) -> Any:
        """Places `begin` to `end` of an axis, which stays."""

    @abc.abstractmethod
    def normalise(
        self, values: Any, gamma: Any, beta: Any, epsilon: float
    ) -> Any:
        """Layer normalisation over the last axis."""

    @abc.abstractmethod
    def softmax(self, values: Any) -> Any:
        """Softmax over the last axis."""

    @abc.abstractmethod
    def activate(self, hidden_act: str, values: Any) -> Any:
        """An activation of `bert_tf.config.ACTIVATIONS`."""

    @abc.abstractmethod
    def power(self, values: Any, exponent: float) -> Any:
        """values ** exponent, element by element."""

    @abc.abstractmethod
    def join(self, parts: Sequence[Any], axis: int) -> Any:
        """Tensors behind each other along an axis."""


def number(ops: Operations, value: float) -> Any:
    """A number as a tensor."""
    return ops.constant(np.array(value, np.float32), f"number_{value}")


def hiding(ops: Operations, kept: Any) -> Any:
    """0 where `kept` is 1, `MASKED_SCORE` where it is 0."""
    minus = ops.multiply(kept, number(ops, -MASKED_SCORE))
    return ops.add(minus, number(ops, MASKED_SCORE))


def last_token(ops: Operations, hidden: Any, kept: Any) -> Any:
    """The last token of each row of [B, S, H], [B, 1, H]."""
    place = ops.to_float(ops.positions(kept))
    last = ops.largest(ops.multiply(kept, place))
    elsewhere = ops.add(
        ops.to_float(ops.less(place, last)),
        ops.to_float(ops.less(last, place)),
    )
    chosen = ops.add(
        ops.multiply(elsewhere, number(ops, -1.0)), number(ops, 1.0)
    )
    # A product with ones and zeros, exact.
    return ops.matmul(ops.reshape(chosen, (0, 1, -1)), hidden)
