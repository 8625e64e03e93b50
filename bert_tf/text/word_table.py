"""Hash tables and lists of words, by array operations."""

from collections.abc import Sequence

import numpy as np

# Odd constants of splitmix64 and xxHash; any that mix the bits suffice.
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


class WordTable:
    """Maps keys to numbers by open addressing in a table of fixed size.

    A key consists of integers of 64 bits, the first of which is not 0.

    Attributes:
      parts: the number of integers of a key.
      count: the number of keys.
    """

    def __init__(self, parts: int, slot_bits: int) -> None:
        """Creates an empty table.

        Args:
          parts: the number of integers of a key.
          slot_bits: the binary logarithm of its size, half of which is used.
        """
        self.parts = parts
        size = 1 << slot_bits
        self._shift = np.uint64(64 - slot_bits)
        self._last = size - 1
        # Ones, not zeros, allocate the memory now.
        self._keys = [np.ones(size, np.uint64) for _ in range(parts)]
        self._numbers = np.ones(size, np.int32)
        self.clear()

    def clear(self) -> None:
        """Removes all keys."""
        # A zero marks a free slot.
        self._keys[0][:] = 0
        self.count = 0

    def find(self, keys: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Looks keys up.

        Args:
          keys: the parts of all keys, each uint64 [n].

        Returns:
          The indices of the keys in the table, int64, and their numbers,
          int32.
        """
        slots = self._first_slots(keys)
        present = self._holds(slots, keys)
        left = np.flatnonzero(~present)
        left = left[self._keys[0][slots[left]] != 0]
        while len(left):
            tried = slots[left] = (slots[left] + 1) & self._last
            same = self._holds(tried, [part[left] for part in keys])
            present[left] = same
            left = left[~same & (self._keys[0][tried] != 0)]
        indices = np.flatnonzero(present)
        return indices, self._numbers[slots[indices]]

    def add(self, keys: Sequence[np.ndarray], numbers: np.ndarray) -> None:
        """Adds distinct new keys until the table is full.

        Args:
          keys: as in `find`.
          numbers: their numbers, [n].
        """
        room = max((self._last + 1) // 2 - self.count, 0)
        left = np.arange(min(len(numbers), room))
        self.count += len(left)
        slots = self._first_slots(keys)[:room]
        while len(left):
            free = np.flatnonzero(self._keys[0][slots] == 0)
            # Of several keys for a slot, one gets it.
            self._numbers[slots[free]] = left[free]
            won = free[self._numbers[slots[free]] == left[free]]
            for mine, part in zip(self._keys, keys, strict=True):
                mine[slots[won]] = part[left[won]]
            self._numbers[slots[won]] = numbers[left[won]]
            lost = np.ones(len(left), bool)
            lost[won] = False
            left, slots = left[lost], (slots[lost] + 1) & self._last

    def _holds(
        self, slots: np.ndarray, keys: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Whether slots hold these keys, bool [n]."""
        same = self._keys[0][slots] == keys[0]
        for mine, part in zip(self._keys[1:], keys[1:], strict=True):
            same &= mine[slots] == part
        return same

    def _first_slots(self, keys: Sequence[np.ndarray]) -> np.ndarray:
        """The first slot to search for each key, int64 [n]."""
        mixed = keys[-1]
        for part in keys[-2::-1]:
            mixed = part ^ (mixed * _FACTORS[1])
        return (mixed * _FACTORS[0] >> self._shift).view(np.int64)


class Lists:
    """Lists of token ids, numbered, concatenated in one array."""

    def __init__(
        self, dtype: type[np.integer], max_lists: int, max_ids: int
    ) -> None:
        """Creates an empty store.

        Args:
          dtype: of the ids.
          max_lists: the number of lists from which it counts as full.
          max_ids: the number of ids from which it counts as full.
        """
        self._limits = max_lists, max_ids
        # Ones: see WordTable. One text can add many words.
        self._ids = np.ones(max_ids + (1 << 18), dtype)
        self._starts = np.ones(max_lists + (1 << 16), np.int32)
        self.clear()

    def clear(self) -> None:
        """Removes all lists."""
        self._starts[0] = self._count = 0

    @property
    def full(self) -> bool:
        """Whether a limit is reached."""
        max_lists, max_ids = self._limits
        return self._count >= max_lists or self._starts[self._count] >= max_ids

    def add(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Adds concatenated lists and returns their numbers, int64."""
        first, end = self._count, int(self._starts[self._count])
        self._count += len(lengths)
        self._ids = _with_room(self._ids, end + len(ids))
        self._starts = _with_room(self._starts, self._count + 1)
        self._ids[end : end + len(ids)] = ids
        self._starts[first + 1 : self._count + 1] = end + np.cumsum(lengths)
        return np.arange(first, self._count)

    def gather(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids of lists, concatenated, and the end of each list."""
        starts = self._starts[numbers].astype(np.int64)
        counts = self._starts[numbers + 1] - starts
        ends = np.cumsum(counts)
        if len(ends) and ends[-1] == len(ends) and counts.all():
            return self._ids[starts], ends
        indices = np.repeat(starts - (ends - counts), counts)
        indices += np.arange(len(indices))
        return self._ids[indices], ends


def _with_room(array: np.ndarray, size: int) -> np.ndarray:
    if size <= len(array):
        return array
    larger = np.zeros(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
