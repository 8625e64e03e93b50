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


class PolarsFrame(Frame):
    """What is asked of a DataFrame of polars."""

    def iter_rows(self, named: bool) -> Iterator[dict[str, Any]]:
        """Its rows by column."""
        assert named
        for row in zip(*self.data.values(), strict=True):
            yield dict(zip(self.data, row, strict=True))


class ClassLabel:
    """What is asked of a ClassLabel of `datasets`."""

    def __init__(self, names: list[str]) -> None:
        self.names = names


class DataSet:
    """What is asked of a Dataset of `datasets`."""

    def __init__(
        self,
        data: Mapping[str, Sequence[Any]],
        features: Mapping[str, Any] | None = None,
    ) -> None:
        self.column_names: list[str] | None = [*data]
        self.features = features
        self._data = data

    def iter(self, batch_size: int) -> Iterator[dict[str, Any]]:
        """Its rows, some at a time, as columns."""
        rows = len(next(iter(self._data.values())))
        for begin in range(0, rows, batch_size):
            chosen = slice(begin, begin + batch_size)
            yield {name: [*each][chosen] for name, each in self._data.items()}


class RowStream(DataSet):
    """What is asked of an IterableDataset of `datasets`."""

    def __init__(self, data: Mapping[str, Sequence[Any]]) -> None:
        super().__init__(data)
        # It may not know them.
        self.column_names = None
