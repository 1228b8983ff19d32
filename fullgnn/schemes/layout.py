"""Cut a prepared graph for 1.5D: list the products, and build the arrays that a rank needs for them.

These functions use only the grid and the prepared graph, and no process group: each rank calls them for itself, and the
cost model (``fullgnn/costs``) counts the bytes and non-zeros that follow from the layout.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.sparse import csr_array

from fullgnn.errors import PartitionError
from fullgnn.partition.partition import imbalance
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.schemes.base import Balance, BlockRequest
from fullgnn.schemes.nodes import LocalArrays, node_arrays
from fullgnn.schemes.options import Grid
from fullgnn.schemes.product_layout import (
    HALO,
    Halos,
    ProductLayout,
    RowDistribution,
    assign_stages,
    rank_sums,
    slice_rows,
    stage_nnz,
)


@dataclass(frozen=True)
class Layout:
    """Which rank holds and multiplies what, as every rank knows it. The keys of ``products`` name the matrices:

    adj, adj_t      A and A^T
    loss, loss_t    A[train, :] and its transpose, if requested

    A is any of the matrices that the model multiplies by: they have the same entries, but for the diagonal.
    """

    grid: Grid
    rows: RowDistribution
    products: dict[str, ProductLayout]
    symmetric: bool  # whether the stored adjacency equals its transpose
    weighted: bool  # whether it has weights
    dtype: torch.dtype  # of the entries that are multiplied
    balance: Balance


def lay_out(source: PreparedGraph, grid: Grid, request: BlockRequest) -> tuple[Layout, dict[str, Halos]]:
    """Return the layout of a graph on ``grid`` and, for each product, the rows that each block row reads.

    Every rank computes the same layout, from facts that all of them have and from what all parts read.

    Raises:
        PartitionError: a block is too large for int32 indices.
    """
    facts = source.facts
    nnz = facts.block_nnz(request.self_loops)
    if nnz.max() >= 2**31:
        raise PartitionError(f"a block of the adjacency has {nnz.max()} non-zeros, 2^31 or more: use more processes")
    rows = slice_rows(facts.partition, grid.num_slices)
    forward_nnz, backward_nnz = stage_nnz(nnz, grid.stage_order), stage_nnz(nnz.T, grid.stage_order)
    forward_stages = assign_stages(forward_nnz, grid.replication)
    backward_stages = forward_stages if facts.symmetric else assign_stages(backward_nnz, grid.replication)

    needs_halos = grid.exchange != "broadcast" and grid.num_ranks > 1
    halos: dict[str, Halos] = {}
    mask = source.train_mask() if request.loss_rows else None
    train_rows = rows if mask is None else rows.restrict(mask)
    if needs_halos:
        halos["adj"] = _halos(source, "reads", rows, request.self_loops)
        halos["adj_t"] = halos["adj"] if facts.symmetric else _halos(source, "columns_reads", rows, request.self_loops)
        if mask is not None:
            halos["loss"] = _halos(source, "reads_train", rows, request.self_loops, mask)
            halos["loss_t"] = halos["adj_t"].restrict(mask, train_rows)

    wanted = {"adj": (rows, rows, forward_stages), "adj_t": (rows, rows, backward_stages)}
    if request.loss_rows:
        wanted |= {"loss": (rows, train_rows, forward_stages), "loss_t": (train_rows, rows, backward_stages)}
    products = {
        name: grid.product(*distributed, halos[name].counts if needs_halos else None)
        for name, distributed in wanted.items()
    }
    balance = _balance(forward_nnz, forward_stages)
    return Layout(grid, rows, products, facts.symmetric, facts.weighted, request.dtype, balance), halos


def _halos(
    source: PreparedGraph, name: str, rows: RowDistribution, self_loops: bool, mask: np.ndarray | None = None
) -> Halos:
    halos = Halos(lambda part: source.part(part).arrays[name], rows)
    return halos.with_own_rows(mask) if self_loops else halos


@dataclass(frozen=True, eq=False)
class RankArrays:
    """What a rank reads of the prepared graph."""

    nodes: LocalArrays  # see ``node_arrays``
    codes: np.ndarray | None  # its features as a codec keeps them
    train_mask: np.ndarray | None  # (num_nodes,) bool; None: not requested
    matrices: dict[str, list[csr_array]] = field(default_factory=dict)
    """By product, the stored block of each stage of this rank: for ``adj``, and for ``adj_t`` unless A is symmetric."""
    halo: dict[str, list[np.ndarray]] = field(default_factory=dict)
    """By product and stage, the rows of the source block that this rank reads."""
    boundary: dict[str, list[np.ndarray]] = field(default_factory=dict)
    """By product and block row, the boundary rows: the rows of this rank that the block row reads."""


def rank_arrays(
    source: PreparedGraph, layout: Layout, halos: dict[str, Halos], request: BlockRequest, rank: int
) -> RankArrays:
    """Read the part of ``rank``, and cut what it multiplies."""
    grid, facts = layout.grid, source.facts
    number, replica = grid.place(rank)
    part, own = source.part(number), layout.rows.own(number, replica)
    codes = None if request.codec is None else np.array(part.features[own])
    arrays = RankArrays(node_arrays(part, own, request), codes, source.train_mask() if request.loss_rows else None)
    if not (request.propagations or request.edges):
        return arrays
    from fullgnn.graph._csr_cpu import cut_columns  # imported here, since it imports numba

    for name, stored in {"adj": part.rows, "adj_t": part.columns}.items():
        if stored is None:
            continue
        block_row, sources = stored.matrix(facts.num_nodes), layout.products[name].sources(number, replica)
        ranges = {block: layout.rows.block(block) for block in sorted(sources)}
        cut = [block_row] if grid.num_parts == 1 else cut_columns(block_row, [*ranges.values()])
        by_source = dict(zip(ranges, cut))
        arrays.matrices[name] = [by_source[block] for block in sources]
    nothing = np.empty(0, np.int64)
    for name, product in layout.products.items():
        arrays.boundary[name] = [nothing] * grid.num_parts
        if (product.transports[:, number] == HALO).any():
            arrays.boundary[name] = halos[name].boundary(number, product.in_rows.own(number, replica))
        sources = product.sources(number, replica)
        arrays.halo[name] = [halos[name].of_block(number, block) if name in halos else nothing for block in sources]
    return arrays


def _balance(nnz: np.ndarray, shares: list[list[int]]) -> Balance:
    """The balance of a product.

    Args:
        nnz: (b, b) non-zeros of each block row (first index) in each stage (second).
        shares: the stages of each replica.
    """
    load = rank_sums(nnz, shares)
    if not nnz.any():
        return Balance(1.0, 1.0, (0,) * load.size)
    steps = [[stages[step] for stages in shares if step < len(stages)] for step in range(max(map(len, shares)))]
    waiting = sum(nnz[:, stages].max() for stages in steps)
    return Balance(imbalance(load), float(waiting / load.mean()), tuple(load.ravel().tolist()))
