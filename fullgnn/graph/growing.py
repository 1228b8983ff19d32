"""An array that grows at its end, without a second one beside it where the system can move pages."""

from typing import Any

import numpy as np

_LEAST = 1 << 10


class GrowingArray:
    """Rows that are appended to one array.

    Args:
        shape: of a row.
        expected: how many rows there will be, if that is known.
    """

    def __init__(self, dtype: Any, shape: tuple[int, ...] = (), expected: int = 0):
        self.space = np.empty((expected, *shape), dtype)
        """The rows, and the room behind them."""
        self.length = 0

    @property
    def rows(self) -> np.ndarray:
        """(length, ...), valid until the array grows."""
        return self.space[: self.length]

    def reserve(self, length: int) -> None:
        """Make room for so many rows in all. Earlier views are invalid then."""
        if length > len(self.space):
            self._resize(max(length, _LEAST, len(self.space) + len(self.space) // 8))

    def add(self, count: int) -> np.ndarray:
        """Append ``count`` rows, and return them, to be written to. Earlier views are invalid then."""
        self.reserve(self.length + count)
        self.length += count
        return self.space[self.length - count : self.length]

    def taken(self) -> np.ndarray:
        """The rows as an array of their own size. The growing array is empty then."""
        self._resize(self.length)
        rows, self.space, self.length = self.space, np.empty_like(self.space[:0]), 0
        return rows

    def _resize(self, length: int) -> None:
        # Without a count of references: nobody reads earlier views. The system moves a large array without a copy.
        self.space.resize((length, *self.space.shape[1:]), refcheck=False)
