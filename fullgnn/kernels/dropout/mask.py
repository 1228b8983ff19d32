"""A dropout mask, described by the parameters from which ``philox.py`` computes which elements are kept."""

from dataclasses import dataclass, replace

from torch import Tensor

LOW = 0xFFFFFFFF  # the low 32 bits


@dataclass(frozen=True, eq=False)
class Mask:
    """The parameters that determine which elements of a matrix a dropout zeroes, and how it scales the others."""

    node_id: Tensor  # (num_rows,) int64, original ids of the rows
    p: float  # probability of zeroing an element, in [0, 1)
    seed: int
    epoch: Tensor  # () int64, on the device of the matrix; its value may change between two uses
    layer: int

    @property
    def scale(self) -> float:
        """Factor by which the kept elements are scaled."""
        return 1 / (1 - self.p)

    @property
    def threshold(self) -> int:
        """Smallest random word with which an element is kept."""
        return min(round(self.p * 2**32), LOW)

    def of(self, rows: slice) -> "Mask":
        """The mask of some rows."""
        return replace(self, node_id=self.node_id[rows])
