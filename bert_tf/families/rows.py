"""Rows of token ids, their batches, and the outputs gathered from batches."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.text.layout import EncodedRows

EXAMPLE_WEIGHTS = "example_weights"
CHOICE_MASK = "choice_mask"

# The tokens of a row that batch sizes are counted in.
_ROW_TOKENS = 128

# A model's outputs by name.
Outputs = dict[str, np.ndarray]


class Rows(Protocol):
    """Rows of token ids that are batched."""

    @property
    def lengths(self) -> "np.ndarray | tf.Tensor":
        """The tokens of each row, whole numbers [R]."""

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays that determine every batch, for digests."""

    def batch(self, chosen: Any, width: Any = 0) -> "dict[str, tf.Tensor]":
        """Makes a batch by TensorFlow operations.

        Args:
          chosen: whole numbers [B], the indices of its rows.
          width: S, the tokens that rows are padded to; 0 for the longest.

        Returns:
          Tensors [B, ...] by name. Names, dtypes and ranks are the same for all
          batches; with a width also the shapes, except for B.
        """

    def __len__(self) -> int: ...


class ExampleRows(Rows, Protocol):
    """Rows of examples, whose outputs can be gathered by example."""

    def gather(self, batches: Iterable[tuple[np.ndarray, Outputs]]) -> Outputs:
        """Gathers a model's outputs in the order of the examples.

        Args:
          batches: the indices of the rows of a batch, int64 [B], and the
            outputs of the model, [B or more, ...]. Together they have every row
            once, in any order.
        """


class RowsAround:
    """Base of rows that wrap others; see `Rows`.

    Attributes:
      rows: the wrapped rows.
    """

    rows: Rows

    @property
    def lengths(self) -> "np.ndarray | tf.Tensor":
        """Tokens of each row, whole numbers [R]."""
        return self.rows.lengths

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays that determine every batch, for digests."""
        return self.rows.arrays

    def batch(self, chosen: Any, width: Any = 0) -> "dict[str, tf.Tensor]":
        """Makes a batch; see `Rows`."""
        return self.rows.batch(chosen, width)

    def __len__(self) -> int:
        return len(self.rows)


@dataclasses.dataclass(frozen=True)
class TextRows(RowsAround):
    """Rows of texts or pairs, or of windows on long ones.

    Attributes:
      rows: the rows of N examples.
    """

    rows: "EncodedRows"

    @property
    def example(self) -> "tf.Tensor":
        """The index of each row's example, int32 [R], ascending."""
        return self.rows.example

    def gather(self, batches: Iterable[tuple[np.ndarray, Outputs]]) -> Outputs:
        """Averages the logits of each example over its windows."""
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
class EncodedChoices:
    """The choices of N examples; see `ExampleRows`.

    Attributes:
      rows: a row for each choice, grouped by example.
      starts: int64 [N + 1], the first row of each example.
    """

    rows: "EncodedRows"
    starts: np.ndarray

    @property
    def example(self) -> np.ndarray:
        """The number of each example, int64 [N]."""
        return np.arange(len(self))

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of the longest row of each example, int64 [N]."""
        lengths = self.rows.lengths.numpy()
        return np.maximum.reduceat(lengths, self.starts[:-1])

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What determines every batch, for digests."""
        return *self.rows.arrays, self.starts

    def batch(self, chosen: Any, width: Any = 0) -> "dict[str, tf.Tensor]":
        """Makes a batch of some examples; see `Rows`.

        Returns:
          The encoder's inputs, int32 [B, C, S], padded to the longest row and
          to the most choices (with a width, to the most of all examples), and
          choice_mask, float32 [B, C], 1 for a choice. Padding repeats the
          first choice, because the encoder cannot attend to an empty row.
        """
        import tensorflow as tf

        starts = self.starts.astype(np.int32)
        counts = tf.gather(np.diff(starts), chosen)
        most = tf.where(
            tf.equal(width, 0), tf.reduce_max(counts), np.diff(starts).max()
        )
        number = tf.range(most)
        mask = number < counts[:, tf.newaxis]
        begin = tf.gather(starts, chosen)[:, tf.newaxis]
        rows = tf.reshape(begin + tf.where(mask, number, 0), [-1])
        batch = {
            name: tf.reshape(values, [-1, most, tf.shape(values)[1]])
            for name, values in self.rows.batch(rows, width).items()
        }
        batch[CHOICE_MASK] = tf.cast(mask, tf.float32)
        return batch

    def __len__(self) -> int:
        return len(self.starts) - 1

    def gather(self, batches: Iterable[tuple[np.ndarray, Outputs]]) -> Outputs:
        """Collects the logits of all choices, float32 [N, C]; -inf pads."""
        counts = np.diff(self.starts)[:, np.newaxis]
        logits = np.zeros((len(self), counts.max()), np.float32)
        for chosen, outputs in batches:
            values = outputs["logits"][: len(chosen)]
            logits[chosen, : values.shape[1]] = values
        is_choice = np.arange(logits.shape[1]) < counts
        return {"logits": np.where(is_choice, logits, np.float32(-np.inf))}


@dataclasses.dataclass(frozen=True)
class LabelledRows(RowsAround):
    """Rows with labels.

    Attributes:
      rows: R rows.
      weights: float32 [R], the weight of each row.
      labels: labels [R, ...] by their names in a batch.
    """

    rows: Rows
    weights: np.ndarray
    labels: Mapping[str, np.ndarray]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays that determine every batch, for digests."""
        return *self.rows.arrays, self.weights, *self.labels.values()

    def batch(self, chosen: Any, width: Any = 0) -> "dict[str, tf.Tensor]":
        """Makes a batch with example_weights and labels; see `Rows`."""
        # TensorFlow takes seconds to import, and scoring a file needs none.
        import tensorflow as tf

        values = {EXAMPLE_WEIGHTS: self.weights, **self.labels}
        return self.rows.batch(chosen, width) | {
            name: tf.gather(each, chosen) for name, each in values.items()
        }


def few_widths(lengths: np.ndarray) -> np.ndarray:
    """Pads row lengths, int64 [R], to powers of two of 32 or more.

    The widths, int64 [R], do not exceed the longest row.
    """
    powers = 2 ** np.ceil(np.log2(np.maximum(lengths, 32))).astype(np.int64)
    return np.minimum(powers, np.max(lengths))


def batches_by_length(
    lengths: np.ndarray, batch_size: int, multiple: int = 1
) -> Iterator[np.ndarray]:
    """Yields batches of rows of similar length that use about equal memory.

    Args:
      lengths: int64 [R], the tokens of each row.
      batch_size: the size of a batch in rows of 128 tokens, padding included;
        a batch has fewer rows if they are longer, more if they are shorter.
      multiple: every batch but the last has a multiple of this many rows.

    Yields:
      int64 [B], the indices of rows, each once. The longest rows come first, so
      that too little memory is noticed early.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = rows_that_fit(int(lengths[order[start]]), batch_size, multiple)
        yield order[start : start + size]
        start += size


def rows_that_fit(length: int, batch_size: int, multiple: int) -> int:
    """The size of a batch whose longest row has `length` tokens."""
    fitting = batch_size * _ROW_TOKENS // max(length, 1)
    return max(fitting // multiple, 1) * multiple
