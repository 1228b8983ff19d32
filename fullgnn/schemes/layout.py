"""Cut the prepared matrix for 1.5D: list the products, and build the arrays that each rank needs for them.

These functions use only the grid and rank 0's data, and no process group: ``one_and_half_d.py`` sends their results
to the ranks, and the cost model (``fullgnn/costs``) counts the bytes and non-zeros that follow from the layout.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from fullgnn.errors import PartitionError
from fullgnn.partition.counts import imbalance
from fullgnn.schemes.base import Balance, Needs, PreparedGraph
from fullgnn.schemes.nodes import GraphFacts, node_arrays
from fullgnn.schemes.rows import RowDistribution, slice_rows
from fullgnn.schemes.stages import assign_stages, rank_sums, stage_nnz
from fullgnn.schemes.traffic import HALO, DistributedProduct, Halos, choose_transports, find_halos


@dataclass(frozen=True)
class Grid:
    """The (b, r) mesh, and the options of 1.5D that decide what each of its ranks holds and receives."""

    num_parts: int  # block rows b
    replication: int  # ranks that share a block row, r
    split_rows: bool  # whether each replica holds 1/r of its block's rows; otherwise it holds all of them
    stage_order: str  # diagonal or broadcast
    exchange: str  # auto, broadcast or needed_rows
    fetch: str = "auto"  # auto, stages or whole; auto is stages

    @property
    def num_ranks(self) -> int:
        return self.num_parts * self.replication

    @property
    def fetches_whole(self) -> bool:
        """Whether all rows of other ranks arrive in one exchange instead of stage by stage."""
        return self.fetch == "whole" and self.num_ranks > 1

    @property
    def num_slices(self) -> int:
        """Number of slices into which the rows of a block are cut."""
        return self.replication if self.split_rows else 1

    def place(self, rank: int) -> tuple[int, int]:
        """Block row and replica of ``rank``."""
        return divmod(rank, self.replication)


@dataclass(frozen=True)
class Layout:
    """Which rank holds and multiplies what, as every rank knows it. The keys of ``products`` name the matrices:

    adj, adj_t      A and A^T
    loss, loss_t    A[train, :] and its transpose, if requested

    A is any of the matrices that the model multiplies by: they have the same entries, but for the diagonal.
    """

    grid: Grid
    rows: RowDistribution
    products: dict[str, DistributedProduct]
    symmetric: bool  # whether the stored adjacency equals its transpose
    weighted: bool  # whether it has weights
    facts: GraphFacts
    balance: Balance


def lay_out(prepared: PreparedGraph, grid: Grid, needs: Needs) -> tuple[Layout, dict[str, Halos]]:
    """Return the layout of ``prepared`` on ``grid`` and, for each product, the rows that each block row reads."""
    graph, nnz = prepared.graph, prepared.block_nnz
    if nnz.max() >= 2**31:
        raise PartitionError(f"a block of the adjacency has {nnz.max()} non-zeros, 2^31 or more: use more processes")
    symmetric = prepared.stored_t is None
    rows = slice_rows(prepared.partition, grid.num_slices)
    forward_nnz, backward_nnz = stage_nnz(nnz, grid.stage_order), stage_nnz(nnz.T, grid.stage_order)
    forward_stages = assign_stages(forward_nnz, grid.replication)
    backward_stages = forward_stages if symmetric else assign_stages(backward_nnz, grid.replication)

    needs_halos = grid.exchange != "broadcast" and grid.num_ranks > 1
    halos: dict[str, Halos] = {}
    train_rows = rows.restrict(graph.train_mask) if needs.loss_rows else rows
    if needs_halos:
        halos["adj"] = _halos(prepared.stored, rows, needs.self_loops)
        halos["adj_t"] = halos["adj"] if symmetric else _halos(prepared.stored_t, rows, needs.self_loops)
        if needs.loss_rows:
            halos["loss"] = _halos(prepared.stored, rows, needs.self_loops, graph.train_mask)
            halos["loss_t"] = halos["adj_t"].restrict(graph.train_mask, train_rows)

    def product(
        name: str, in_rows: RowDistribution, out_rows: RowDistribution, stages: list[list[int]]
    ) -> DistributedProduct:
        counts = halos[name].counts if needs_halos else None
        transports = choose_transports(in_rows, counts, grid.stage_order, grid.exchange)
        return DistributedProduct(in_rows, out_rows, stages, grid.stage_order, transports, grid.fetches_whole)

    products = {"adj": product("adj", rows, rows, forward_stages)}
    products["adj_t"] = product("adj_t", rows, rows, backward_stages)
    if needs.loss_rows:
        products["loss"] = product("loss", rows, train_rows, forward_stages)
        products["loss_t"] = product("loss_t", train_rows, rows, backward_stages)
    layout = Layout(
        grid,
        rows,
        products,
        symmetric,
        graph.weight is not None,
        GraphFacts.of(prepared),
        _balance(forward_nnz, forward_stages),
    )
    return layout, halos


def _halos(matrix: csr_array, rows: RowDistribution, self_loops: bool, mask: np.ndarray | None = None) -> Halos:
    found = find_halos(matrix, rows, mask)
    return found.with_own_rows(mask) if self_loops else found


def rank_arrays(
    prepared: PreparedGraph, layout: Layout, halos: dict[str, Halos], needs: Needs, rank: int
) -> dict[str, np.ndarray]:
    """Return the arrays of ``rank``: its rows of the features and labels, the CSR arrays of each stored block that it
    multiplies, and the indices of its boundary rows, the rows of its own that other block rows read."""
    grid = layout.grid
    part, replica = grid.place(rank)
    graph, block = prepared.graph, layout.rows.block(part)
    own = layout.rows.own(part, replica)
    rows = slice(block.start + own.start, block.start + own.stop)
    arrays = node_arrays(prepared, rows)
    if needs.loss_rows:
        arrays["train_mask"] = graph.train_mask
    if not (needs.propagations or needs.edges):
        return arrays
    stored = {"adj": prepared.stored} | ({} if prepared.stored_t is None else {"adj_t": prepared.stored_t})
    read = {part}  # block rows whose row sums the rank needs
    for name, matrix in stored.items():
        block_row, product = matrix[block], layout.products[name]
        for stage in product.stages[replica]:
            source = product.source(part, stage)
            cut = block_row[:, layout.rows.block(source)] if grid.num_parts > 1 else block_row
            arrays[f"{name}.{stage}.indptr"] = cut.indptr.astype(np.int32)
            arrays[f"{name}.{stage}.indices"] = cut.indices.astype(np.int32)
            if layout.weighted:
                arrays[f"{name}.{stage}.values"] = cut.data
            if layout.weighted or not needs.fold:
                read.add(source)
    for self_loops, row_sum in prepared.row_sums.items():
        for source in read:
            arrays[f"row_sum.{self_loops}.{source}"] = row_sum[layout.rows.block(source)]
    for name, product in layout.products.items():
        boundary = [np.empty(0, np.int64)] * grid.num_parts
        if (product.transports[:, part] == HALO).any():
            boundary = halos[name].boundary(part, product.in_rows.own(part, replica))
        arrays[f"{name}.boundary"] = np.concatenate(boundary)
        arrays[f"{name}.num_boundary"] = np.array([len(index) for index in boundary])
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
