"""The edges that a layer reads, stage by stage, and what operations on edges make of them when they first need it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from fullgnn.kernels.edges.index import Transposed, transpose
from fullgnn.kernels.spmm import LocalCSR


@dataclass(frozen=True, eq=False)
class EdgeChunk:
    """Some consecutive edges of a stage, with the targets and sources that they join."""

    edges: slice  # of the stage
    targets: slice  # of the stage
    csr: LocalCSR  # (number of targets, sources of the stage)
    source: Tensor  # (E,) int32
    by_source: LocalCSR  # (number of distinct sources, E): row u sums the edges of source ``sources[u]``
    sources: Tensor  # (number of distinct sources,) int32, ascending

    def target(self) -> Tensor:
        """(E,) int64 target of each edge, counted from the first target of the stage."""
        numbers = torch.arange(self.targets.start, self.targets.stop, device=self.source.device)
        return numbers.repeat_interleave(self.csr.indptr.diff().long(), output_size=len(self.source))


@dataclass(frozen=True, eq=False)
class Stage:
    """The edges of one stage of this rank."""

    csr: LocalCSR  # (targets of the block row, rows that arrive), with edge values if the graph has weights
    count: Callable[[], Tensor] | None = None
    """Computes ``factor``; None: every edge of the graph is there."""
    transpose: Callable[[LocalCSR], Transposed] = transpose
    """Sorts the edges by source."""
    _chunks: dict[int, list[EdgeChunk]] = field(default_factory=dict, init=False)

    @cached_property
    def factor(self) -> Tensor | None:
        """(E,), how often each edge counts in a sum over all edges of its target, of which some were drawn; None:
        once."""
        return None if self.count is None else self.count()

    @cached_property
    def transposed(self) -> Transposed:
        """The same edges sorted by source, which are made when they are first asked for."""
        return self.transpose(self.csr)

    def chunks(self, num_edges: int) -> list[EdgeChunk]:
        """The edges in chunks of at most ``num_edges``."""
        if num_edges not in self._chunks:
            self._chunks[num_edges] = list(_chunks(self.csr, num_edges))
        return self._chunks[num_edges]

    def tensors(self) -> list[Tensor]:
        """The tensors of its edges, for counting memory."""
        held = self.csr.indptr, self.csr.indices, self.csr.values, vars(self).get("factor")
        return [tensor for tensor in held if tensor is not None]


def _chunks(csr: LocalCSR, num_edges: int) -> Iterator[EdgeChunk]:
    bounds = csr.indptr.cpu()
    for first in range(0, csr.nnz, num_edges):
        last = min(first + num_edges, csr.nnz)
        ends = torch.tensor([first, last], dtype=bounds.dtype)
        begin = int(torch.searchsorted(bounds, ends[:1], right=True)) - 1
        end = int(torch.searchsorted(bounds, ends[1:]))
        indptr = csr.indptr[begin : end + 1].clamp(first, last) - first
        source = csr.indices[first:last]
        part = LocalCSR(indptr, source, None, end - begin, csr.num_cols)
        order = torch.argsort(source, stable=True)
        sources, counts = torch.unique_consecutive(source[order], return_counts=True)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()
        by_source = LocalCSR(starts, order.int(), None, len(sources), last - first)
        yield EdgeChunk(slice(first, last), slice(begin, end), part, source, by_source, sources)
