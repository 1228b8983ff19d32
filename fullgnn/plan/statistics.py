"""What is planned: the numbers of a graph, and how its non-zeros and reads fall on the ranks of a run.

For a prepared graph these are counted, so the bytes of a plan are those of a run. A graph given by its numbers is taken
to be random: every non-zero off the diagonal may be anywhere, and training nodes are spread evenly.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from fullgnn.config import Config
from fullgnn.config.keys import check_minima
from fullgnn.errors import ConfigError
from fullgnn.partition import Partition
from fullgnn.partition.counts import block_nnz
from fullgnn.schemes.base import PreparedGraph
from fullgnn.schemes.blocks import Grid, lay_out
from fullgnn.schemes.options import SchemeOptions
from fullgnn.schemes.rows import RowDistribution, slice_rows
from fullgnn.schemes.stages import assign_stages, rank_sums, stage_nnz
from fullgnn.schemes.traffic import DistributedProduct, choose_ways


@dataclass(frozen=True)
class GraphStatistics:
    """The numbers of a graph, as it is multiplied.

    Raises:
        ConfigError: a number is out of range.
    """

    name: str
    num_nodes: int
    nnz: int  # of the normalised adjacency, self-loops included
    num_features: int
    num_classes: int
    num_train: int
    symmetric: bool = True
    pattern: bool = True  # no value is stored for an edge
    locality: float = 0.0
    """Fraction of random-order cache misses that the node order turns into hits."""

    def __post_init__(self) -> None:
        check_minima(self, {"num_nodes": 1, "nnz": 0, "num_features": 1, "num_classes": 1, "num_train": 0})
        if self.num_train > self.num_nodes:
            raise ConfigError(f"num_train={self.num_train} is more than the {self.num_nodes} nodes")


@dataclass(frozen=True, eq=False)
class PlannedJob:
    """One run on so many ranks: its products, named as in ``Layout``, and what falls on their blocks."""

    cfg: Config  # ``with_supported_optimizations``
    graph: GraphStatistics
    grid: Grid
    rows: RowDistribution
    products: dict[str, DistributedProduct]
    halo: dict[str, np.ndarray | None]  # (b, b, m) int64 as ``Halos.counts``; None: only whole blocks travel
    nnz: dict[str, np.ndarray]  # (b, b) non-zeros of the blocks
    local: bool = True  # all ranks are on one machine

    @cached_property
    def options(self) -> SchemeOptions:
        return SchemeOptions.of(self.cfg.scheme)

    @property
    def dtype(self) -> torch.dtype:
        return getattr(torch, self.cfg.runtime.dtype)

    @property
    def folded(self) -> bool:
        """Whether rows are scaled before and after a product, because no values are stored for the edges."""
        return self.graph.pattern and self.cfg.normalization != "none"

    def rank_nnz(self, name: str) -> np.ndarray:
        """(b, r) non-zeros that each rank multiplies in product ``name``."""
        product = self.products[name]
        return rank_sums(stage_nnz(self.nnz[name], product.stage_order), product.stages)

    def num_own_rows(self) -> np.ndarray:
        """(b, r) rows of H that each rank holds."""
        own = np.diff(self.rows.bounds, axis=1)
        return own if own.shape[1] > 1 else np.repeat(own, self.grid.replication, axis=1)

    def scaled(self, factor: float) -> "PlannedJob":
        """The same job with ``factor`` times the rows, and the reads in proportion; its non-zeros are not scaled."""

        def rows(given: RowDistribution) -> RowDistribution:
            return RowDistribution(np.rint(given.bounds * factor).astype(np.int64))

        products, halo = {}, dict(self.halo)
        for name, product in self.products.items():
            products[name] = replace(product, in_rows=rows(product.in_rows), out_rows=rows(product.out_rows))
            if (counts := halo[name]) is not None:
                room = np.diff(products[name].in_rows.bounds, axis=1)
                halo[name] = np.minimum(np.rint(counts * factor).astype(np.int64), room)
        return replace(self, rows=rows(self.rows), products=products, halo=halo)


def counted_job(cfg: Config, world_size: int, prepared: PreparedGraph, locality: float = 0.0) -> PlannedJob:
    """The job of ``world_size`` ranks on a prepared graph, whose non-zeros and reads are counted.

    Raises:
        ConfigError: the replication of ``cfg.scheme`` does not divide ``world_size``.
    """
    grid, graph, adj = SchemeOptions.of(cfg.scheme).grid(world_size), prepared.graph, prepared.adj
    layout, halos = lay_out(prepared, grid, cfg.optimizations.loss_rows_only)
    nnz = {"adj": prepared.block_nnz, "adj_t": prepared.block_nnz.T}
    if cfg.optimizations.loss_rows_only:
        of_train = Partition(np.concatenate([[0], np.cumsum(graph.train_mask)])[prepared.partition.bounds])
        nnz["loss"] = block_nnz(adj.matrix[np.flatnonzero(graph.train_mask)], of_train, prepared.partition)
        nnz["loss_t"] = nnz["loss"].T
    halo = {name: halos[name].counts if name in halos else None for name in layout.products}
    statistics = GraphStatistics(
        graph.name,
        graph.num_nodes,
        adj.nnz,
        graph.num_features,
        graph.num_classes,
        int(graph.train_mask.sum()),
        adj.symmetric,
        adj.pattern,
        locality,
    )
    return PlannedJob(cfg, statistics, grid, layout.rows, layout.products, halo, nnz)


def estimated_job(cfg: Config, world_size: int, graph: GraphStatistics) -> PlannedJob:
    """The job of ``world_size`` ranks on a random graph with the numbers of ``graph``, in block rows of equal size.

    Raises:
        ConfigError: the replication of ``cfg.scheme`` does not divide ``world_size``.
    """
    grid, n = SchemeOptions.of(cfg.scheme).grid(world_size), graph.num_nodes
    rows = slice_rows(Partition.equal(n, grid.num_parts), grid.num_slices)
    train = RowDistribution(rows.bounds * graph.num_train // n)
    diagonal = min(n, graph.nnz)

    def nnz_of(out_rows: RowDistribution, in_rows: RowDistribution) -> np.ndarray:
        out, into = (np.diff(one.bounds[:, [0, -1]])[:, 0] for one in (out_rows, in_rows))
        anywhere = (graph.nnz - diagonal) * np.outer(out / n, into / n)
        return np.rint(anywhere + np.diag(diagonal * np.minimum(out, into) / n)).astype(np.int64)

    stages = assign_stages(stage_nnz(nnz_of(rows, rows), grid.stage_order), grid.replication)
    products, halo, nnz = {}, {}, {}
    kinds = {"adj": (rows, rows), "adj_t": (rows, rows)}
    if cfg.optimizations.loss_rows_only:
        kinds |= {"loss": (train, rows), "loss_t": (rows, train)}
    for name, (out_rows, in_rows) in kinds.items():
        nnz[name] = nnz_of(out_rows, in_rows)
        halo[name] = _distinct(nnz[name], in_rows) if grid.exchange != "broadcast" else None
        ways = choose_ways(in_rows, halo[name], grid.stage_order, grid.exchange)
        products[name] = DistributedProduct(in_rows, out_rows, stages, grid.stage_order, ways)
    return PlannedJob(cfg, graph, grid, rows, products, halo, nnz)


def _distinct(nnz: np.ndarray, in_rows: RowDistribution) -> np.ndarray:
    """(b, b, m) int64 rows that are read if every non-zero of a block is in a random column of it."""
    sizes = np.diff(in_rows.bounds, axis=1)  # (b, m)
    per_row = nnz / np.maximum(sizes.sum(axis=1), 1)
    return np.rint(sizes * -np.expm1(-per_row[:, :, None])).astype(np.int64)
