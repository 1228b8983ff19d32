"""Sampled hops as the ``Block`` of each layer, so that the models of full-batch training serve sampled training too.

A block of a sample is rectangular: its sources are the sources of a hop, its targets some of them. Layers multiply by
the matrix A of the whole graph, of which a hop has some entries in each row. An entry that was drawn counts with its
factor (``Draw``), so that the product has the expected value of the product with A: normalisation reads the degrees of
the whole graph. Self-loops that a layer adds are never left out. So with all neighbours, a block is exact.

A layer that reads edges one by one sees the drawn edges. A sum of messages, as in ``MessageConv``, counts each with its
factor; means, maxima and softmaxes are those over the drawn edges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fullgnn.graph import EdgeSet, Propagation
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.neighbors import PADDING, Hop
from fullgnn.sampling.products import SampledProduct, ScaledMatrix, Transposition
from fullgnn.schemes.base import Needs
from fullgnn.schemes.block import Block
from fullgnn.schemes.edges import Stage
from fullgnn.schemes.local import LocalMovements

NOTHING = np.empty(0, np.float64)


class BlockMaker:
    """Makes the blocks of a model with some ``needs`` from the hops of a sample.

    Args:
        dtype: of the rows that are multiplied.
        num_row_blocks: how many of the model's first blocks only name its rows.
        sums_rows: whether a layer may add over all rows of a block: there is one rank.
    """

    def __init__(
        self,
        graph: HostGraph,
        needs: Needs,
        dtype: torch.dtype,
        device: torch.device,
        num_row_blocks: int = 0,
        sums_rows: bool = True,
    ):
        self.graph, self.needs, self.dtype, self.device = graph, needs, dtype, device
        self._num_row_blocks, self._add_up = num_row_blocks, _same if sums_rows else None
        self._scales = {one: one.scales(graph.row_sums.get(one.self_loops)) for one in needs.propagations}

    def blocks(self, hops: Sequence[Hop], targets: np.ndarray) -> list[Block]:
        """The blocks of all layers, the first layer's first.

        Args:
            hops: from the targets outwards.
            targets: (num_targets,) GLOBAL ids, the targets of the first hop.
        """
        inputs = hops[-1].sources if hops else targets
        rows = [self._row_block(inputs)] * self._num_row_blocks
        made: dict[int, Block] = {id(hop): self.block(hop) for hop in {id(hop): hop for hop in hops}.values()}
        return [*rows, *(made[id(hop)] for hop in reversed(hops))]

    def _row_block(self, ids: np.ndarray) -> Block:
        """A block that names the rows with these ``ids``, and reads no neighbours."""
        source_id = torch.from_numpy(ids.astype(np.int64)).to(self.device)
        return Block(source_id, movements=LocalMovements(len(ids), len(ids)), add_up=self._add_up)

    def block(self, hop: Hop) -> Block:
        """The block of one layer."""
        edges = _HopEdges(self.graph, hop, self.device)
        products = {one: self._product(one, edges) for one in self.needs.propagations}
        stages = {one: (self._stage(one, edges),) for one in self.needs.edges}
        every = hop.num_targets == len(hop.sources)  # both are ascending, and the targets are among the sources
        return Block(
            torch.from_numpy(hop.sources.astype(np.int64)).to(self.device),
            products,
            None if every else torch.from_numpy(hop.target_index.astype(np.int64)).to(self.device),
            movements=LocalMovements(len(hop.sources), hop.num_targets),
            edges=stages,
            add_up=self._add_up,
        )

    def _product(self, propagation: Propagation, edges: "_HopEdges") -> SampledProduct:
        hop, rows = edges.hop, edges.rows(propagation.self_loops)
        if hop.sums is not None:
            return self._of_subgraph(propagation, edges)
        row, col = self._scales[propagation]
        row = None if row is None else row[edges.target_ids]
        col = None if col is None else col[hop.sources]
        if propagation.self_loops or self.graph.weight is not None or hop.factors is not None:
            values = rows.entries(self.dtype, edges.weights, hop.factors, edges.row_factor, row, col)
            matrix = rows.matrix(values)
            return SampledProduct(ScaledMatrix(matrix, None, None, self.dtype), Transposition(matrix))
        row = edges.row_factor if row is None else row * edges.row_factor
        scaled = ScaledMatrix(rows.pattern, self._vector(row), self._vector(col), self.dtype)
        return SampledProduct(scaled, rows.transposition)

    def _of_subgraph(self, propagation: Propagation, edges: "_HopEdges") -> SampledProduct:
        """The product with the matrix of an induced subgraph, normalised by its own row sums."""
        hop, rows = edges.hop, edges.rows(propagation.self_loops)
        assert hop.sums is not None
        row, col = propagation.scales(hop.sums[int(propagation.self_loops)])
        row = None if row is None else row[hop.target_index]
        if self.graph.weight is not None:
            matrix = rows.matrix(rows.entries(self.dtype, edges.weights, row_scale=row, col_scale=col))
            return SampledProduct(ScaledMatrix(matrix, None, None, self.dtype), Transposition(matrix))
        scaled = ScaledMatrix(rows.pattern, self._vector(row), self._vector(col), self.dtype)
        return SampledProduct(scaled, rows.transposition)

    def _vector(self, numbers: np.ndarray | None) -> Tensor | None:
        return None if numbers is None else torch.from_numpy(numbers).to(self.device, self.dtype)

    def _stage(self, edge_set: EdgeSet, edges: "_HopEdges") -> Stage:
        rows = edges.rows(edge_set.self_loops)
        values = rows.entries(self.dtype, edges.weights) if self.graph.weight is not None else None

        def count() -> Tensor:
            factors = rows.entries(self.dtype, factors=edges.hop.factors, row_factor=edges.row_factor)
            return torch.from_numpy(factors).to(self.device)

        return Stage(rows.matrix(values), count)


def _same(tensor: Tensor) -> Tensor:
    """The sum over the rows of one rank, which has all rows."""
    return tensor


@dataclass(frozen=True, eq=False)
class _HopEdges:
    """The edges of a hop, and what is computed from them, each at most once."""

    graph: HostGraph
    hop: Hop
    device: torch.device

    @cached_property
    def target_ids(self) -> np.ndarray:
        """(num_targets,) GLOBAL ids."""
        return self.hop.sources[self.hop.target_index]

    @cached_property
    def weights(self) -> np.ndarray | None:
        """(num_edges,) float64 weights of the edges; None: all 1."""
        if self.graph.weight is None:
            return None
        assert self.hop.places is not None
        return self.graph.weight[self.hop.places].astype(np.float64)

    @cached_property
    def row_factor(self) -> np.ndarray:
        """(num_targets,) float64, how often the drawn edges of each target count: the number of its neighbours over
        that of its drawn edges, and once in an induced subgraph."""
        if self.hop.sums is not None:
            return np.ones(self.hop.num_targets)
        degree = self.graph.indptr[self.target_ids + 1] - self.graph.indptr[self.target_ids]
        return degree / np.maximum(np.diff(self.hop.indptr), 1)

    def rows(self, self_loops: bool) -> "_Rows":
        """The drawn edges, or those with one from each target to itself."""
        return self._with_self_loops if self_loops else self._drawn

    @cached_property
    def _drawn(self) -> "_Rows":
        return _Rows(self.hop.indptr, self.hop.indices, None, len(self.hop.sources), self.device)

    @cached_property
    def _with_self_loops(self) -> "_Rows":
        from fullgnn.sampling._blocks_cpu import with_self_loops  # imports numba

        hop, most = self.hop, self.hop.num_edges + self.hop.num_targets
        indptr, indices = np.empty(hop.num_targets + 1, np.int32), np.empty(most + PADDING, np.int32)
        edge = np.empty(most, np.int64)
        count = with_self_loops(hop.indptr, hop.indices, hop.target_index, indptr, indices, edge)
        return _Rows(indptr, indices[:count], edge[:count], len(hop.sources), self.device)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Edges of a hop in compressed sparse rows."""

    indptr: np.ndarray  # (num_targets + 1,) int32
    indices: np.ndarray  # (E,) int32
    edge: np.ndarray | None  # (E,) int64 numbers of the edges in the hop, -1 for added ones; None: 0, 1, ...
    num_sources: int
    device: torch.device

    @cached_property
    def pattern(self) -> LocalCSR:
        """The matrix of these edges, without values."""
        return self.matrix(None)

    @cached_property
    def transposition(self) -> Transposition:
        """The transpose of the pattern."""
        return Transposition(self.pattern)

    def matrix(self, values: np.ndarray | None) -> LocalCSR:
        """The matrix of these edges."""
        indptr, indices = (torch.from_numpy(array).to(self.device) for array in (self.indptr, self.indices))
        entries = None if values is None else torch.from_numpy(values).to(self.device)
        return LocalCSR(indptr, indices, entries, len(self.indptr) - 1, self.num_sources)

    def entries(
        self,
        dtype: torch.dtype,
        weights: np.ndarray | None = None,
        factors: np.ndarray | None = None,
        row_factor: np.ndarray | None = None,
        row_scale: np.ndarray | None = None,
        col_scale: np.ndarray | None = None,
    ) -> np.ndarray:
        """(E,) entries, computed in float64 and rounded to ``dtype``; see ``_blocks_cpu.entries``."""
        from fullgnn.sampling._blocks_cpu import entries  # imports numba

        given = weights, factors, row_factor, row_scale, col_scale
        edge = np.arange(len(self.indices)) if self.edge is None else self.edge
        values = np.empty(len(self.indices), torch.empty(0, dtype=dtype).numpy().dtype)
        arrays = [NOTHING if one is None else one for one in given]
        entries(self.indptr, self.indices, edge, *arrays, values)  # type: ignore[call-arg]
        return values
