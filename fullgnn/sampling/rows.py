"""The edges of a hop as compressed sparse rows: as they were drawn, or with an edge from each target to itself.

On a CPU the loops are compiled (``_blocks_cpu.py``). Elsewhere, torch operations compute the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fullgnn.kernels.edges.index import edge_rows
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.room import module_on_use
from fullgnn.sampling.hop import PADDING, Hop
from fullgnn.sampling.products import transposed

if TYPE_CHECKING:
    from fullgnn.sampling import _blocks_cpu
else:
    _blocks_cpu = module_on_use("fullgnn.sampling._blocks_cpu")

NOTHING = np.empty(0, np.float64)

Put = Callable[..., Tensor]
"""Brings a tensor to the device of the matrices; a dtype may follow. See ``Packet.put``."""


@dataclass(frozen=True, eq=False)
class HopEdges:
    """The edges of a hop, and what is computed from them, each at most once.

    Args:
        graph_indptr: (num_nodes + 1,) int64 of the full graph, on the device of the hop.
        graph_weight: (num_edges of the graph,); None: all 1.
        put: brings what the matrices hold to their device, see ``Packet.put``.
    """

    hop: Hop[Tensor]
    graph_indptr: Tensor
    graph_weight: Tensor | None
    put: Put

    @cached_property
    def target_ids(self) -> Tensor:
        """(num_targets,) int32 GLOBAL ids."""
        return self.hop.sources.index_select(0, self.hop.target_index)

    @cached_property
    def weights(self) -> Tensor | None:
        """(num_edges,) float64 weights of the edges; None: all 1."""
        if self.graph_weight is None:
            return None
        assert self.hop.places is not None
        return self.graph_weight[self.hop.places].double()

    @cached_property
    def row_factor(self) -> Tensor:
        """(num_targets,) float64, how often the drawn edges of each target count: the number of its neighbours over
        that of its drawn edges, and once in an induced subgraph."""
        if self.hop.sums is not None:
            return torch.ones(self.hop.num_targets, dtype=torch.float64, device=self.hop.indptr.device)
        if self.hop.indptr.device.type == "cpu":
            factors = torch.empty(self.hop.num_targets, dtype=torch.float64)
            _blocks_cpu.row_factors(
                *(tensor.numpy() for tensor in (self.graph_indptr, self.target_ids, self.hop.indptr, factors))
            )
            return factors
        return self.row_factor_torch()

    def row_factor_torch(self) -> Tensor:
        """``row_factor`` of a sample as torch operations."""
        degree = self.graph_indptr[self.target_ids + 1] - self.graph_indptr[self.target_ids]
        return degree.double() / self.hop.indptr.diff().clamp(min=1)

    def rows(self, self_loops: bool) -> "Rows":
        """The drawn edges, or those with one from each target to itself."""
        return self._with_self_loops if self_loops else self._drawn

    @cached_property
    def _drawn(self) -> "Rows":
        return Rows(self.hop.indptr, self.hop.indices, None, len(self.hop.sources), self.put)

    @cached_property
    def _with_self_loops(self) -> "Rows":
        made = with_self_loops if self.hop.indptr.device.type == "cpu" else with_self_loops_torch
        return Rows(*made(self.hop), len(self.hop.sources), self.put)


def with_self_loops(hop: Hop[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Put an edge to itself before the other edges of each target, in place of a sampled one.

    Returns:
        the new indptr and indices, int32, and the int64 number in the ``hop`` of each new edge; -1 for added ones.
    """
    most = hop.num_edges + hop.num_targets
    indptr, indices = torch.empty_like(hop.indptr), torch.empty(most + PADDING, dtype=torch.int32)
    edge = torch.empty(most, dtype=torch.int64)
    arrays = hop.indptr, hop.indices, hop.target_index, indptr, indices, edge
    count = _blocks_cpu.with_self_loops(*(array.numpy() for array in arrays))
    return indptr, indices[:count], edge[:count]


def with_self_loops_torch(hop: Hop[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """``with_self_loops`` as torch operations, for none of which the host waits where the hop has ``num_loops``."""
    row = edge_rows(LocalCSR(hop.indptr, hop.indices, None, hop.num_targets, len(hop.sources)))
    is_kept = hop.indices != hop.target_index[row]
    num_loops = int((~is_kept).sum()) if hop.num_loops is None else hop.num_loops
    count = hop.num_edges - num_loops + hop.num_targets
    kept_before = torch.cat([row.new_zeros(1), is_kept.cumsum(0)])
    indptr = kept_before[hop.indptr] + torch.arange(hop.num_targets + 1, device=row.device)
    indices = torch.empty(count + 1, dtype=torch.int32, device=row.device)  # the last one is nobody's
    edge = torch.full_like(indices, -1, dtype=torch.int64)
    indices[indptr[:-1]] = hop.target_index
    # One added edge lies in each row up to an edge's own.
    place = torch.where(is_kept, kept_before[:-1] + row + 1, count)
    indices[place], edge[place] = hop.indices, torch.arange(hop.num_edges, device=row.device)
    return indptr.int(), indices[:count], edge[:count]


@dataclass(frozen=True, eq=False)
class Rows:
    """Edges of a hop in compressed sparse rows."""

    indptr: Tensor  # (num_targets + 1,) int32
    indices: Tensor  # (E,) int32
    edge: Tensor | None  # (E,) int64 numbers of the edges in the hop, -1 for added ones; None: 0, 1, ...
    num_sources: int
    put: Put  # see ``HopEdges``

    @cached_property
    def pattern(self) -> LocalCSR:
        """The matrix of these edges, without values."""
        return self.matrix(None)

    @cached_property
    def transposed(self) -> LocalCSR:
        """The transpose of the pattern."""
        return transposed(self.pattern)

    def matrix(self, values: Tensor | None) -> LocalCSR:
        """The matrix of these edges, on its device.

        Args:
            values: (E,); None: every entry is 1.
        """
        entries = None if values is None else self.put(values)
        return LocalCSR(*self._places, entries, len(self.indptr) - 1, self.num_sources, single_use=True)

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor]:
        """``indptr`` and ``indices`` on the device of the matrices, once for all of these."""
        return self.put(self.indptr), self.put(self.indices)

    def entries(
        self,
        dtype: torch.dtype,
        weights: Tensor | None = None,
        factors: Tensor | None = None,
        row_factor: Tensor | None = None,
        row_scale: Tensor | None = None,
        col_scale: Tensor | None = None,
    ) -> Tensor:
        """(E,) entries: the weight of each edge, times its factor, times the scales of its row and column.

        They are computed in float64 and rounded to ``dtype``. None: all 1.

        Args:
            weights, factors: float64, by the number of an edge in the hop; an added edge has 1.
            row_factor: (num_targets,) float64, the factors where ``factors`` is None.
            row_scale: (num_targets,) float64; col_scale: (num_sources,) float64.
        """
        given = weights, factors, row_factor, row_scale, col_scale
        if self.indptr.device.type != "cpu":
            return self.entries_torch(*given).to(dtype)
        values = torch.empty(len(self.indices), dtype=dtype)
        edge = np.empty(0, np.int64) if self.edge is None else self.edge.numpy()
        arrays = [NOTHING if tensor is None else tensor.numpy() for tensor in given]
        _blocks_cpu.entries(self.indptr.numpy(), self.indices.numpy(), edge, *arrays, values.numpy())
        return values

    def entries_torch(self, *given: Tensor | None) -> Tensor:
        """``entries`` of these tensors in float64, as torch operations."""
        weights, factors, row_factor, row_scale, col_scale = given
        csr = LocalCSR(self.indptr, self.indices, None, len(self.indptr) - 1, self.num_sources)
        row, edge = edge_rows(csr), self.edge

        def of_edges(numbers: Tensor) -> Tensor:
            return numbers if edge is None else torch.cat([numbers, numbers.new_ones(1)])[edge]  # edge -1 has the last

        values = torch.ones(len(row), dtype=torch.float64, device=row.device) if row_scale is None else row_scale[row]
        if col_scale is not None:
            values = values * col_scale[self.indices]
        if weights is not None:
            values = values * of_edges(weights)
        if factors is not None:
            values = values * of_edges(factors)
        elif row_factor is not None:
            factor = row_factor[row]
            values = values * (factor if edge is None else factor.masked_fill(edge < 0, 1))
        return values
