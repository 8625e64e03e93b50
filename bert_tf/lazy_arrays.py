"""Named arrays that are read one by one, at each access."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np


class LazyArrays(Mapping[str, np.ndarray]):
    """A mapping from names to arrays that keeps none of them in memory.

    Args:
      shapes: the shape of each array by name.
      read: reads an array by its name.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        read: Callable[[str], np.ndarray],
    ) -> None:
        self.shapes = dict(shapes)
        self._read = read

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.shapes:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        return name in self.shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def renamed(self, names: Mapping[str, str]) -> "LazyArrays":
        """Returns arrays under new names; `names` maps new to old ones."""
        shapes = {new: self.shapes[old] for new, old in names.items()}
        return LazyArrays(shapes, lambda name: self[names[name]])


def shapes_of_arrays(
    arrays: Mapping[str, np.ndarray],
) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each array without reading lazy ones."""
    if isinstance(arrays, LazyArrays):
        return dict(arrays.shapes)
    return {name: tuple(array.shape) for name, array in arrays.items()}


def changed_arrays(
    arrays: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    compute: Callable[[str], np.ndarray],
) -> LazyArrays:
    """Returns arrays of which some are computed at each access.

    `shapes` has the shapes of those that `compute` returns, by name.
    """
    return LazyArrays(
        {**shapes_of_arrays(arrays), **shapes},
        lambda name: compute(name) if name in shapes else arrays[name],
    )
