"""Tables as pandas and polars have them, which are not installed here."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass
class Frame:
    """What is asked of a DataFrame, which iterates over its columns' names."""

    data: Mapping[str, Sequence[Any]]

    @property
    def columns(self) -> np.ndarray:
        """The names."""
        return np.array([*self.data])

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __getitem__(self, column: str) -> np.ndarray:
        return np.array(self.data[column], object)
