"""The bipartite graph of one hop: which sources each target reads. A sampler makes one for each layer of a model."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

PADDING = 32
"""Elements behind the last one of ``Hop.indices``, which the product of ``kernels/spmm`` may read."""

Array = TypeVar("Array", np.ndarray, Tensor)


@dataclass(frozen=True, eq=False)
class Hop(Generic[Array]):
    """One hop: arrays on the host, or tensors on the device on which its blocks are computed. Edges have LOCAL ids, in
    no order within a row."""

    sources: Array  # (num_sources,) int32 GLOBAL ids, ascending; the targets are among them
    target_index: Array  # (num_targets,) int32, for each target its LOCAL id among the sources
    indptr: Array  # (num_targets + 1,) int32
    indices: Array  # (num_edges,) int32, LOCAL ids among the sources
    places: Array | None = None  # (num_edges,) int64, places of the edges in the graph's ``indices``
    factors: Array | None = None  # (num_edges,) float64, see ``Draw``; None: equal within a row
    sums: Array | None = None
    """(2, num_sources) float64, the row sums of an induced subgraph, without and with self-loops, by which its entries
    are normalised; its edges all count once. None: the hop is a sample of the full graph's edges."""
    num_loops: int | None = None
    """How many edges lead from a target to itself, which a host need not wait for then; None: nobody has counted."""

    @property
    def num_targets(self) -> int:
        return len(self.target_index)

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    def copy(self: "Hop[np.ndarray]") -> "Hop[np.ndarray]":
        """The same hop in memory of its own."""
        indices = np.empty(self.num_edges + PADDING, np.int32)[: self.num_edges]
        indices[:] = self.indices
        own = self.places, self.factors, self.sums
        places, factors, sums = (None if array is None else array.copy() for array in own)
        arrays = self.sources.copy(), self.target_index.copy(), self.indptr.copy(), indices
        return Hop(*arrays, places, factors, sums)

    def tensors(self: "Hop[np.ndarray]") -> "Hop[Tensor]":
        """The same hop as tensors on its memory. Those of ``indices`` have the padding behind them."""
        made = {name: None if array is None else torch.from_numpy(array) for name, array in vars(self).items()}
        padded = np.lib.stride_tricks.as_strided(self.indices, (self.num_edges + PADDING,), (self.indices.itemsize,))
        return Hop(**made | {"indices": torch.from_numpy(padded)[: self.num_edges]})  # type: ignore[arg-type]
