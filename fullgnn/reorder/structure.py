"""Counts of the non-zeros of a graph by position, before and after reordering, for a heat map."""

from dataclasses import dataclass

import numpy as np

from fullgnn.partition import Partition

MAX_CELLS = 64
"""Cells along each side of the map."""


@dataclass(frozen=True, eq=False)
class Structure:
    """Counts of non-zeros in cells and blocks; the size of the arrays does not depend on that of the graph.

    ``cell_nnz_*`` count the entries of the graph as it was loaded, without the self-loops that a run sets;
    ``block_nnz`` counts the entries of the normalised adjacency, which the ranks multiply.

    Raises:
        ValueError: the shapes of the arrays do not fit each other, as in a damaged file.
    """

    cell_bounds: np.ndarray  # (cells + 1,) int64, GLOBAL node ids
    cell_nnz_before: np.ndarray  # (cells, cells) int64, by cell of row and of column, in the order of the dataset
    cell_nnz_after: np.ndarray  # (cells, cells) int64, in the order of the run
    part_bounds: np.ndarray  # (b + 1,) int64, GLOBAL node ids of the block rows in the order of the run
    block_nnz: np.ndarray  # (b, b) int64

    def __post_init__(self) -> None:
        cells, parts = len(self.cell_bounds) - 1, len(self.part_bounds) - 1
        shapes = self.cell_nnz_before.shape, self.cell_nnz_after.shape, self.block_nnz.shape
        if shapes != ((cells, cells), (cells, cells), (parts, parts)):
            raise ValueError("the arrays of the structure do not fit each other")
        arrays = vars(self).values()
        if any(array.dtype.kind not in "iu" or array.size == 0 or array.min() < 0 for array in arrays):
            raise ValueError("the arrays of the structure hold something else than counts")
        if any((np.diff(bounds) < 0).any() for bounds in (self.cell_bounds, self.part_bounds)):
            raise ValueError("the bounds of the structure do not ascend")


def cells(num_nodes: int) -> Partition:
    """The nodes cut into cells whose sizes differ by one at most."""
    return Partition.equal(num_nodes, min(num_nodes, MAX_CELLS))
