"""Tables of pandas, polars and datasets, which are not installed here."""

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


class DataSet:
    """What is asked of a Dataset of `datasets`."""

    def __init__(self, data: Mapping[str, Sequence[Any]]) -> None:
        self.column_names = [*data]
        self._data = data

    def __len__(self) -> int:
        return len(next(iter(self._data.values())))

    def __getitem__(self, column: str) -> Sequence[Any]:
        return self._data[column]


class RowStream:
    """What is asked of an IterableDataset of `datasets`."""

    def __init__(self, data: Mapping[str, Sequence[Any]]) -> None:
        # It may not know them.
        self.column_names = None
        self._data = data

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in zip(*self._data.values(), strict=True):
            yield dict(zip(self._data, row, strict=True))
