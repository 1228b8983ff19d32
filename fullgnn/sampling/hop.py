"""The bipartite graph of one hop: which sources each target reads. A sampler makes one for each layer of a model."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

PADDING = 32
"""Elements behind the last one of ``Hop.indices``, which the product of ``kernels/spmm`` may read."""


@dataclass(frozen=True, eq=False)
class Hop:
    """One hop, on the host. Edges have LOCAL ids, in no order within a row."""

    sources: np.ndarray  # (num_sources,) int32 GLOBAL ids, ascending; the targets are among them
    target_index: np.ndarray  # (num_targets,) int32, for each target its LOCAL id among the sources
    indptr: np.ndarray  # (num_targets + 1,) int32
    indices: np.ndarray  # (num_edges,) int32, LOCAL ids among the sources
    places: np.ndarray | None = None  # (num_edges,) int64, places of the edges in the graph's ``indices``
    factors: np.ndarray | None = None  # (num_edges,) float64, see ``Draw``; None: equal within a row
    sums: np.ndarray | None = None
    """(2, num_sources) float64, the row sums of an induced subgraph, without and with self-loops, by which its entries
    are normalised; its edges all count once. None: the hop is a sample of the full graph's edges."""

    @property
    def num_targets(self) -> int:
        return len(self.target_index)

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    def copy(self) -> "Hop":
        """The same hop in memory of its own."""
        indices = np.empty(self.num_edges + PADDING, np.int32)[: self.num_edges]
        indices[:] = self.indices
        own = (None if array is None else array.copy() for array in (self.places, self.factors, self.sums))
        return Hop(self.sources.copy(), self.target_index.copy(), self.indptr.copy(), indices, *own)


@dataclass(frozen=True, eq=False)
class HopTensors:
    """The fields of a ``Hop`` as tensors, on the device on which its blocks are computed."""

    sources: Tensor
    target_index: Tensor
    indptr: Tensor
    indices: Tensor
    places: Tensor | None = None
    factors: Tensor | None = None
    sums: Tensor | None = None
    num_loops: int | None = None
    """How many edges lead from a target to itself, which a host need not wait for then; None: nobody has counted."""

    @classmethod
    def of(cls, hop: Hop) -> "HopTensors":
        """Tensors on the memory of ``hop``. Those of ``indices`` have the padding behind them."""
        made = {name: None if array is None else torch.from_numpy(array) for name, array in vars(hop).items()}
        padded = np.lib.stride_tricks.as_strided(hop.indices, (hop.num_edges + PADDING,), (hop.indices.itemsize,))
        return cls(**made | {"indices": torch.from_numpy(padded)[: hop.num_edges]})  # type: ignore[arg-type]

    @property
    def num_targets(self) -> int:
        return len(self.target_index)

    @property
    def num_edges(self) -> int:
        return len(self.indices)
