"""Rows of token ids, of which batches are made, and the answers to them."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np

EXAMPLE_WEIGHTS = "example_weights"
CHOICE_MASK = "choice_mask"

# A model's outputs by name.
Outputs = dict[str, np.ndarray]


class Rows(Protocol):
    """Rows of token ids, of which batches are made."""

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, int64 [R]."""

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What decides every batch, for digests."""

    def batch(
        self, chosen: np.ndarray, width: int = 0
    ) -> dict[str, np.ndarray]:
        """A batch of some rows.

        Args:
          chosen: int64 [B], rows by number.
          width: S, the tokens that rows are padded to; 0 for the longest.

        Returns:
          Arrays by name, each [B, ...]. The names, types and number of axes
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
    def lengths(self) -> np.ndarray:
        """Tokens of each row, int64 [R]."""
        return self.rows.lengths

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What decides every batch, for digests."""
        return self.rows.arrays

    def batch(
        self, chosen: np.ndarray, width: int = 0
    ) -> dict[str, np.ndarray]:
        """A batch of some rows, as the others have it."""
        return self.rows.batch(chosen, width)

    def __len__(self) -> int:
        return len(self.rows)


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
        self, chosen: np.ndarray, width: int = 0
    ) -> dict[str, np.ndarray]:
        """Inputs, example_weights and labels of some rows; see `Rows`."""
        return {
            **self.rows.batch(chosen, width),
            EXAMPLE_WEIGHTS: self.weights[chosen],
            **{name: values[chosen] for name, values in self.labels.items()},
        }
