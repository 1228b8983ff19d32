"""Choose the edges of a block for tensor cores: dense 32 x 32 tiles, or columns that occur repeatedly in a panel.

A panel is 32 consecutive rows. One sort of the edges finds each distinct (panel, column) or (panel, tile) pair
and counts its edges; the count decides. The chosen edges become ``Panels``: groups of 32 columns of one panel, and a
word for each row of the panel with a bit for each column. The other edges stay a ``LocalCSR``.

The split consists of tensor operations on the device of the block, for a stretch of panels at a time.

Sources: Miao et al. 2023, section 4.3 and Algorithm 3, for tiles; Wang, Feng and Ding, "TC-GNN", ATC'23, for columns
condensed within a panel.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fullgnn.kernels.spmm.base import LocalCSR

GROUP = 32  # columns of a group: the bits of a word
PANEL = TILE = 32  # rows of a panel, and rows and columns of a tile
CHUNK_EDGES = 1 << 24  # edges that are sorted at a time: about 1 GB of temporaries
MIN_COUNT = 2  # entries of a column in a panel for which it is worth a place in a group
COUNTERS_PER_EDGE = 8  # with up to 8 tiles per edge, a counter for every tile costs less than a sort
DENSITY_BOUNDS = (0.01, 0.03, 0.05, 0.10, 0.25)
DENSITY_BINS = ("0-1", "1-3", "3-5", "5-10", "10-25", ">25")
"""Bins of ``tile_density``, in per cent; a bound belongs to the bin below it."""


@dataclass(frozen=True, eq=False)
class Panels:
    """The 0/1 entries of a matrix that lie in groups of 32 columns of a panel of rows."""

    num_rows: int
    num_cols: int
    nnz: int
    ptr: Tensor  # (num_panels + 1,) int32: the groups of a panel
    columns: Tensor  # (num_groups, 32) int32, num_cols for no column; or (num_groups,), the first of 32 adjacent ones
    bits: Tensor  # (num_groups, 32) int32: bit k of word r is the entry of row r in column k of the group

    @property
    def adjacent(self) -> bool:
        """Whether the columns of a group are 32 consecutive ones."""
        return self.columns.dim() == 1

    @property
    def num_groups(self) -> int:
        return len(self.columns)

    def all_columns(self, groups: slice) -> Tensor:
        """(groups, 32) int64 columns."""
        columns = self.columns[groups].long()
        return columns[:, None] + torch.arange(GROUP, device=columns.device) if self.adjacent else columns

    def tensors(self) -> list[Tensor]:
        return [self.ptr, self.columns, self.bits]


Groups = tuple[Tensor, Tensor, Tensor, Tensor]
"""Groups of a stretch: the panel, columns and words of each; and a mask of the stretch's edges that they hold."""


def split_tiles(adj: LocalCSR, density_threshold: float) -> tuple[Panels, LocalCSR]:
    """The entries in tiles with more than ``density_threshold`` x 1024 entries, and the other entries."""
    tiles_across = -(-adj.num_cols // TILE)

    def groups_of(stretch: _Stretch) -> Groups:
        pair, inverse, count = _pairs(stretch.panel * tiles_across + stretch.column // TILE)
        chosen = count > density_threshold * TILE * TILE
        group = chosen.cumsum(0) - 1
        dense = chosen[inverse]
        words = _words(int(chosen.sum()), group[inverse[dense]], stretch.row[dense], stretch.column[dense] % TILE)
        columns = (pair[chosen] % tiles_across * TILE).int()
        return stretch.first_panel + pair[chosen] // tiles_across, columns, words, dense

    return _split(adj, groups_of)


def split_columns(adj: LocalCSR) -> tuple[Panels, LocalCSR]:
    """The entries in columns that occur at least ``MIN_COUNT`` times in their panel, and the other entries.

    A group holds its columns in ascending order. Columns with fewer entries fill up the last group of a panel, where
    reading a row of X costs as much as in the row kernel.
    """

    def groups_of(stretch: _Stretch) -> Groups:
        pair, inverse, count = _pairs(stretch.panel * adj.num_cols + stretch.column)
        panel = pair // adj.num_cols
        chosen = count >= MIN_COUNT
        free = -_per_panel(chosen, panel, stretch.num_panels) % GROUP
        chosen |= _place_in_panel(~chosen, panel, stretch.num_panels) < free[panel]
        place = _place_in_panel(chosen, panel, stretch.num_panels)
        num_groups = -(_per_panel(chosen, panel, stretch.num_panels) // -GROUP)
        group = (num_groups.cumsum(0) - num_groups)[panel] + place // GROUP
        total = int(num_groups.sum())
        columns = torch.full((total * GROUP,), adj.num_cols, dtype=torch.int32, device=pair.device)
        columns[(group * GROUP + place % GROUP)[chosen]] = (pair[chosen] % adj.num_cols).int()
        dense = chosen[inverse]
        of_edge = inverse[dense]
        words = _words(total, group[of_edge], stretch.row[dense], place[of_edge] % GROUP)
        panels = torch.arange(stretch.num_panels, device=pair.device).repeat_interleave(num_groups)
        return stretch.first_panel + panels, columns.view(-1, GROUP), words, dense

    return _split(adj, groups_of)


def tile_density(indptr: Tensor, indices: Tensor, num_cols: int) -> list[float]:
    """Fractions of a CSR matrix's edges by the density of their 32 x 32 tile, one for each of ``DENSITY_BINS``."""
    adj = LocalCSR(indptr, indices, None, len(indptr) - 1, num_cols)
    tiles_across = -(-num_cols // TILE)
    bounds = torch.tensor(DENSITY_BOUNDS, dtype=torch.float64, device=indices.device) * TILE * TILE
    edges = torch.zeros(len(bounds) + 1, dtype=torch.int64, device=indices.device)
    for stretch in _stretches(adj):
        tile, num_tiles = stretch.panel * tiles_across + stretch.column // TILE, stretch.num_panels * tiles_across
        if num_tiles <= COUNTERS_PER_EDGE * len(tile):
            count = torch.bincount(tile, minlength=num_tiles)
        else:
            _, _, count = _pairs(tile)
        edges.scatter_add_(0, torch.bucketize(count.double(), bounds), count)
    return (edges.double() / max(1, adj.nnz)).tolist()


@dataclass(frozen=True, eq=False)
class _Stretch:
    """The edges of some panels, in the order of the matrix."""

    first_panel: int
    num_panels: int
    panel: Tensor  # (edges,) int64, counted from the first panel
    row: Tensor  # (edges,) int64, counted from the first row of its panel
    column: Tensor  # (edges,) int64


def _stretches(adj: LocalCSR) -> Iterator[_Stretch]:
    """All panels, in stretches of about ``CHUNK_EDGES`` edges."""
    num_panels = -(-adj.num_rows // PANEL)
    starts = adj.indptr[::PANEL][:num_panels].cpu().contiguous()
    device, first = adj.indices.device, 0
    while first < num_panels:
        stop = max(first + 1, int(torch.searchsorted(starts, int(starts[first]) + CHUNK_EDGES)))
        rows = slice(first * PANEL, min(stop * PANEL, adj.num_rows))
        indptr = adj.indptr[rows.start : rows.stop + 1].long()
        row = torch.arange(rows.stop - rows.start, device=device).repeat_interleave(indptr.diff())
        column = adj.indices[int(indptr[0]) : int(indptr[-1])].long()
        yield _Stretch(first, stop - first, row // PANEL, row % PANEL, column)
        first = stop


def _pairs(key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sorted distinct keys, the index of each key among them, and the count of each distinct key."""
    return torch.unique(key, return_inverse=True, return_counts=True)


def _per_panel(chosen: Tensor, panel: Tensor, num_panels: int) -> Tensor:
    return torch.bincount(panel[chosen], minlength=num_panels)


def _place_in_panel(chosen: Tensor, panel: Tensor, num_panels: int) -> Tensor:
    """The place, from 0, of each chosen pair among those of its panel; for the other pairs, the largest int64."""
    count = _per_panel(chosen, panel, num_panels)
    place = chosen.cumsum(0) - 1 - (count.cumsum(0) - count)[panel]
    return torch.where(chosen, place, torch.iinfo(torch.int64).max)


def _words(num_groups: int, group: Tensor, row: Tensor, bit: Tensor) -> Tensor:
    """(num_groups, 32) int32 words with a bit set for each entry; the entries must be distinct."""
    words = torch.zeros(num_groups * PANEL, dtype=torch.int32, device=group.device)
    word = torch.where(bit == 31, -(2**31), 1 << bit.clamp(max=30)).int()
    return words.scatter_add_(0, group * PANEL + row, word).view(num_groups, PANEL)


def _split(adj: LocalCSR, groups_of: Callable[[_Stretch], Groups]) -> tuple[Panels, LocalCSR]:
    """The groups of all stretches, and the edges that are in none."""
    assert adj.values is None, "only a pattern has bits"
    num_panels = -(-adj.num_rows // PANEL)
    panel, columns, words, dense = map(torch.cat, zip(*map(groups_of, _stretches(adj))))
    ptr = adj.indptr.new_zeros(num_panels + 1)
    ptr[1:] = torch.bincount(panel, minlength=num_panels).cumsum(0)
    left = torch.zeros(adj.nnz + 1, dtype=torch.int32, device=dense.device)
    torch.cumsum(~dense, 0, dtype=torch.int32, out=left[1:])
    rest = LocalCSR(left[adj.indptr.long()], adj.indices[~dense], None, adj.num_rows, adj.num_cols)
    return Panels(adj.num_rows, adj.num_cols, adj.nnz - rest.nnz, ptr, columns, words), rest
