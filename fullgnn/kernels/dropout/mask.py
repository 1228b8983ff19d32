"""Which elements a dropout keeps, as data: ``philox.py`` computes it."""

from dataclasses import dataclass, replace

from torch import Tensor

LOW = 0xFFFFFFFF  # the low 32 bits


@dataclass(frozen=True, eq=False)
class Mask:
    """Which elements of a matrix a dropout zeroes, and what the others are multiplied by."""

    node_id: Tensor  # (num_rows,) int64, original ids of the rows
    p: float  # in [0, 1)
    seed: int
    epoch: Tensor  # () int64, where the matrix is: it may change between two uses
    layer: int

    @property
    def scale(self) -> float:
        """What the elements that are kept are multiplied by."""
        return 1 / (1 - self.p)

    @property
    def threshold(self) -> int:
        """An element is kept if its word is at least this."""
        return min(round(self.p * 2**32), LOW)

    def of(self, rows: slice) -> "Mask":
        """The mask of some rows."""
        return replace(self, node_id=self.node_id[rows])
