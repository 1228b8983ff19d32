"""The rows of a block by their number of edges, for the kernels for edges on a GPU.

    bins     rows with up to 4, 16, 64 and 128 edges
    parts    a row of more than 128 edges is cut into parts of at most 128, whose results are joined in levels

As in ``triton_csr.py``, whose levels these are. The parts of a row and their order depend on the row alone, so results
have the same bits always.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from torch import Tensor

from fullgnn.kernels.spmm.base import NO_EPILOGUE, LocalCSR
from fullgnn.kernels.spmm.triton_csr import Items, rows_in_bins, sum_levels

BINS = (4, 16, 64)
PART = 128  # edges of a part, and of a row that is not cut, at most: CHAIN of them for each of 8 lanes


@dataclass(frozen=True, eq=False)
class EdgeItems:
    """Stretches of at most ``most`` edges of a block."""

    begin: Tensor  # (num_items,) int32
    end: Tensor  # (num_items,) int32
    row: Tensor | None  # (num_items,) int32 row of each one; None: 0, 1, ...
    most: int


@dataclass(frozen=True, eq=False)
class RowBins:
    """All rows of a block, those without edges included."""

    bins: list[EdgeItems]
    parts: EdgeItems | None = None  # of the rows that are cut; None: there is no such row
    levels: tuple[Items, ...] = ()  # the parts, then how their results are joined: see ``triton_csr.sum_levels``

    def add_parts(self, sums: Tensor, out: Tensor, accumulate: bool) -> None:
        """Write the sums of each row's parts, rows of ``sums``, to the row of ``out``, or add them to it."""
        sum_levels(list(self.levels[1:]), self.levels[0].target, None, sums, out, accumulate, NO_EPILOGUE)


_bins_by_block: WeakKeyDictionary[LocalCSR, RowBins] = WeakKeyDictionary()


def bins_of(edges: LocalCSR) -> RowBins:
    """The bins of a block, made when they are first asked for.

    Making them waits for the GPU. So a block of a sampled batch, which is used once, has one bin of all rows.
    """
    if edges.single_use:
        begin, end = edges.indptr[:-1], edges.indptr[1:]
        return RowBins([EdgeItems(begin, end, None, -(-edges.nnz // max(1, len(begin))))])
    if edges not in _bins_by_block:
        _bins_by_block[edges] = _make(edges.indptr)
    return _bins_by_block[edges]


def _make(indptr: Tensor) -> RowBins:
    binned, levels = rows_in_bins(indptr, (*BINS, PART))
    bins = [EdgeItems(items.begin, items.end, items.target, items.most) for items in binned]
    if not levels:
        return RowBins(bins)
    parts, rows = levels[0], levels[-1].target
    num_parts = -(indptr.diff()[rows] // -PART).long()
    of_parts = rows.repeat_interleave(num_parts, output_size=len(parts.begin))
    return RowBins(bins, EdgeItems(parts.begin, parts.end, of_parts, PART), tuple(levels))
