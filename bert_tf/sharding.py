"""Which part of the work is a worker's own."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shard:
    """One of several even parts.

    Attributes:
      index: which one, counted from 0.
      count: how many there are.
    """

    index: int = 0
    count: int = 1

    def part(self, size: int) -> slice:
        """Its stretch of `size` things; the stretches of all cover them once.

        Args:
          size: how many things are shared out.
        """
        return slice(
            self.index * size // self.count,
            (self.index + 1) * size // self.count,
        )


WHOLE = Shard()
