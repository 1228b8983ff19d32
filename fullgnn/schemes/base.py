"""The seam between algorithms and models.

A ``Scheme`` cuts the prepared graph and gives each rank a ``ShardedGraph``. A model sees only ``forward(x, adj)`` with
an ``adj`` that multiplies and knows the original ids of its rows; it never learns how many ranks there are.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.graph import Graph


class ShardedAdjacency(Protocol):
    """This rank's share of the normalised adjacency A."""

    node_id: Tensor  # (num_local_nodes,) int64, original ids of the local rows

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""

    def spmm(self, x: Tensor) -> Tensor:
        """Rows of A @ X that this rank holds, from its rows of X; (num_local_nodes, F) to the same. Differentiable."""


@dataclass(frozen=True, eq=False)
class ShardedGraph:
    """What one rank holds of the graph, on its device. Row i of every tensor is the node ``adj.node_id[i]``."""

    adj: ShardedAdjacency
    features: Tensor  # (num_local_nodes, num_features)
    labels: Tensor  # (num_local_nodes,) int64
    masks: Tensor  # (3, num_local_nodes) bool: train, val, test
    num_features: int
    num_classes: int
    num_split_nodes: tuple[int, int, int]  # global counts: train, val, test
    train_index: Tensor = field(init=False)  # (num_local_train,) int64, local rows with loss
    train_labels: Tensor = field(init=False)  # (num_local_train,) int64, their classes

    def __post_init__(self) -> None:
        object.__setattr__(self, "train_index", self.masks[0].nonzero().squeeze(1))
        object.__setattr__(self, "train_labels", self.labels[self.train_index])

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        return [*self.adj.tensors(), self.features, self.labels, self.train_index, self.train_labels, self.masks]


@dataclass(frozen=True, eq=False)
class PreparedGraph:
    """The whole graph, ordered and normalised, on the host of rank 0."""

    graph: Graph  # in the new order
    node_id: np.ndarray  # (num_nodes,) int64, original id of each new row
    adj: csr_array  # (num_nodes, num_nodes), normalised, int32 indices
    adj_t: csr_array | None  # its transpose, or None where A equals its transpose


class Scheme(Protocol):
    """A distributed algorithm for Y = A @ X, bound to this rank of a mesh."""

    num_parts: int  # block rows, the paper's b
    replication: int  # ranks that hold each block row, the paper's r
    nnz_imbalance: float  # most loaded rank's multiplied non-zeros / the mean, forward

    def shard(self, prepared: PreparedGraph | None) -> ShardedGraph:
        """Hand out the blocks. Rank 0 passes the prepared graph, the others None."""

    def sum_over_rows(self, tensor: Tensor) -> Tensor:
        """Add, in place, a quantity that each rank computed from its rows, counting every global row once."""

    def gather(self, rows: Tensor) -> Tensor | None:
        """All (num_nodes, F) rows in original node order on rank 0 (host), None elsewhere."""
