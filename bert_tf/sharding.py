"""Divides work evenly among workers."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shard:
    """One of several equal parts.

    Attributes:
      index: index of the part, counted from 0.
      count: number of parts.
    """

    index: int = 0
    count: int = 1

    def part(self, size: int) -> slice:
        """Returns this part of `size` items; the parts cover them once."""
        return slice(
            self.index * size // self.count,
            (self.index + 1) * size // self.count,
        )


WHOLE = Shard()
