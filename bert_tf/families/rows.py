"""Rows of token ids, which of them a batch has, and the answers to them."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.text.layout import EncodedRows

EXAMPLE_WEIGHTS = "example_weights"
CHOICE_MASK = "choice_mask"

# Batches that are counted in rows count those of so many tokens.
_ROW_TOKENS = 128

# A model's outputs by name.
Outputs = dict[str, np.ndarray]


class Rows(Protocol):
    """Rows of token ids, of which batches are made."""

    @property
    def lengths(self) -> "np.ndarray | tf.Tensor":
        """Tokens of each row, whole numbers [R]."""

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What decides every batch, for digests."""

    def batch(
        self, chosen: "tf.Tensor", width: "tf.Tensor | int" = 0
    ) -> "dict[str, tf.Tensor]":
        """Makes a batch of some rows, by TensorFlow operations.

        Args:
          chosen: whole numbers [B], rows by number.
          width: S, the tokens that rows are padded to; 0 for the longest.

        Returns:
          Tensors by name, each [B, ...]. The names, types and number of axes
          are the same for all batches; with a width, the sizes too but for B.
        """

    def __len__(self) -> int: ...


class ExampleRows(Rows, Protocol):
    """Rows of examples, which know how to put outputs to them together."""

    def gather(self, batches: Iterable[tuple[np.ndarray, Outputs]]) -> Outputs:
        """A model's outputs to all rows, in the order of the examples.

        Args:
          batches: rows by number, int64 [B], and the model's outputs to them,
            [B or more, ...]; together every row once, in any order.
        """


class RowsAround:
    """Rows that are others with something besides; see `Rows`.

    Attributes:
      rows: the others.
    """

    rows: Rows

    @property
    def lengths(self) -> "np.ndarray | tf.Tensor":
        """Tokens of each row, whole numbers [R]."""
        return self.rows.lengths

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What decides every batch, for digests."""
        return self.rows.arrays

    def batch(
        self, chosen: "tf.Tensor", width: "tf.Tensor | int" = 0
    ) -> "dict[str, tf.Tensor]":
        """A batch of some rows, as the others have it."""
        return self.rows.batch(chosen, width)

    def __len__(self) -> int:
        return len(self.rows)


@dataclasses.dataclass(frozen=True)
class TextRows(RowsAround):
    """Rows of one text or a pair, or of the windows on a long one.

    Attributes:
      rows: the rows of N examples.
    """

    rows: "EncodedRows"

    @property
    def example(self) -> "tf.Tensor":
        """The example that each row is of, int32 [R], ascending."""
        return self.rows.example

    def gather(self, batches: Iterable[tuple[np.ndarray, Outputs]]) -> Outputs:
        """The logits of each example, those of its windows averaged."""
        import tensorflow as tf

        logits = None
        for chosen, outputs in batches:
            found = outputs["logits"][: len(chosen)]
            if logits is None:
                logits = np.zeros((len(self.rows), found.shape[1]), np.float32)
            logits[chosen] = found
        means = tf.math.segment_mean(logits, self.rows.example)
        return {"logits": means.numpy()}


@dataclasses.dataclass(frozen=True)
class LabelledRows(RowsAround):
    """Rows and the answers to them.

    Attributes:
      rows: R rows.
      weights: float32 [R], how much a row counts.
      labels: answers by their name in a batch, each [R, ...].
    """

    rows: Rows
    weights: np.ndarray
    labels: Mapping[str, np.ndarray]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What decides every batch, for digests."""
        return *self.rows.arrays, self.weights, *self.labels.values()

    def batch(
        self, chosen: "tf.Tensor", width: "tf.Tensor | int" = 0
    ) -> "dict[str, tf.Tensor]":
        """Inputs, example_weights and labels of some rows; see `Rows`."""
        # TensorFlow takes seconds to import, and scoring a file needs none.
        import tensorflow as tf

        values = {EXAMPLE_WEIGHTS: self.weights, **self.labels}
        return self.rows.batch(chosen, width) | {
            name: tf.gather(each, chosen) for name, each in values.items()
        }


def few_widths(lengths: np.ndarray) -> np.ndarray:
    """The width that each row is padded to where there may be only a few.

    Args:
      lengths: int64 [R], tokens of each row.

    Returns:
      int64 [R]: a power of two, 32 or more, but no more than the longest row.
    """
    powers = 2 ** np.ceil(np.log2(np.maximum(lengths, 32))).astype(np.int64)
    return np.minimum(powers, np.max(lengths))


def batches_by_length(
    lengths: np.ndarray, batch_size: int, multiple: int = 1
) -> Iterator[np.ndarray]:
    """Batches of rows of like length that take about as much memory each.

    Args:
      lengths: int64 [R], tokens of each row.
      batch_size: rows of 128 tokens that a batch may be as large as, padding
        included; of longer rows it has fewer, of shorter ones more.
      multiple: a batch has a multiple of so many rows, at least one, but for
        the last.

    Yields:
      int64 [B], rows by number, together each once. The longest come first,
      so that memory falls short early.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = rows_that_fit(int(lengths[order[start]]), batch_size, multiple)
        yield order[start : start + size]
        start += size


def rows_that_fit(length: int, batch_size: int, multiple: int) -> int:
    """The rows of a batch whose longest has `length` tokens, see above."""
    fitting = batch_size * _ROW_TOKENS // length
    return max(fitting // multiple, 1) * multiple
