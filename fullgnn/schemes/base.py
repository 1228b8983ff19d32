"""The interface between distributed algorithms and models.

A ``Scheme`` cuts the prepared graph and gives each rank a ``ShardedGraph``. A model sees only ``forward(x, adj)`` with
an ``adj`` that multiplies and knows the original ids of its rows; a model never learns how many ranks there are.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from torch import Tensor

from fullgnn.graph import Graph, NormalizedAdjacency
from fullgnn.kernels.dense.host_rows import HostRows
from fullgnn.kernels.spmm import NO_EPILOGUE, Epilogue
from fullgnn.kernels.support.aligned import select_rows
from fullgnn.partition import Partition
from fullgnn.partition.counts import block_nnz
from fullgnn.reorder.structure import Structure


class ShardedAdjacency(Protocol):
    """This rank's share of the normalised adjacency A, or of some rows of it."""

    node_id: Tensor  # (num_local_nodes,) int64, original ids of this rank's nodes
    row_index: Tensor | None  # (num_local_rows,) int64, the local nodes whose rows of A are here; None: all, in order
    output: "ShardedAdjacency"  # for a model's last layer: only the requested rows of A; ``self`` if all are requested
    input_scale: Tensor | None  # (num_local_nodes,) column scale, which a producer of X may pre-apply; None: no scale
    gradient_scale: Tensor | None  # (num_local_rows,) column scale of A^T, which a producer of G may pre-apply

    def spmm(self, x: Tensor) -> Tensor:
        """Return the local rows of A @ X, differentiable: (num_local_nodes, F) to (num_local_rows, F)."""

    def multiply(self, x: Tensor, epilogue: Epilogue = NO_EPILOGUE, *, scaled: bool = False) -> Tensor:
        """Return ``spmm(x)``, outside autograd, after ``epilogue``, whose ``scale`` must be None.

        Args:
            scaled: whether ``x`` is diag(input_scale) X already. A producer that fuses the scaling saves a pass over X.
        """

    def multiply_t(self, g: Tensor, *, scaled: bool = False) -> Tensor:
        """Return the local rows of A^T @ G, outside autograd: (num_local_rows, F) to (num_local_nodes, F).

        This is the conjugate of ``multiply``.

        Args:
            scaled: whether ``g`` is diag(gradient_scale) G already.
        """

    def release(self) -> None:
        """Free the buffers that earlier products allocated. Every rank calls it."""

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""


@dataclass(frozen=True, eq=False)
class Aggregated:
    """A constant model input H0, given as A @ H0, so that the first graph convolution needs no sparse product."""

    product: Tensor | HostRows  # (num_local_nodes, F), this rank's rows of A @ H0, on its device or on the host

    def rows(self, index: Tensor | None) -> Tensor | HostRows:
        """The rows ``index`` of A @ H0; None: all, in order."""
        if index is None:
            return self.product
        return (
            self.product.index_select(0, index)
            if isinstance(self.product, HostRows)
            else select_rows(self.product, index)
        )


@dataclass(frozen=True, eq=False)
class ShardedGraph:
    """One rank's part of the graph, on its device. Row i of every tensor is the node ``adj.node_id[i]``.

    A scheme may leave the features on the host: the engine then moves them, or A @ H0, to where they are multiplied.
    """

    adj: ShardedAdjacency
    train_adj: ShardedAdjacency | None  # an ``adj`` whose ``output`` has only the rows with loss; None: not requested
    features: Tensor | Aggregated  # (num_local_nodes, num_features)
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
        features = self.features.product if isinstance(self.features, Aggregated) else self.features
        inputs = features.tensors() if isinstance(features, HostRows) else [features]
        adjacencies = [self.adj] if self.train_adj is None else [self.adj, self.train_adj.output]
        held = [tensor for adj in adjacencies for tensor in adj.tensors()]
        return [*held, *inputs, self.labels, self.train_index, self.train_labels, self.masks]


@dataclass(frozen=True, eq=False)
class PreparedGraph:
    """The whole graph, ordered and normalised, on the host of rank 0."""

    graph: Graph  # in the new order
    node_id: np.ndarray  # (num_nodes,) int64, original id of each new row
    adj: NormalizedAdjacency
    partition: Partition  # block rows
    dtype: np.dtype  # of features and of the adjacency's entries
    structure: Structure | None = None  # None if the structure was not counted

    @cached_property
    def block_nnz(self) -> np.ndarray:
        """(num_parts, num_parts) int64, the non-zeros of each block of ``adj``."""
        if self.structure is not None:
            return self.structure.block_nnz
        return block_nnz(self.adj.matrix, self.partition)


class Scheme(Protocol):
    """A distributed algorithm for Y = A @ X, bound to this rank of a mesh."""

    num_parts: int  # block rows, the paper's b
    replication: int  # ranks that share each block row, the paper's r
    balance: "Balance"  # for the graph of the last ``shard``

    def shard(self, prepared: PreparedGraph | None, loss_rows: bool = False) -> ShardedGraph:
        """Distribute the blocks to the ranks. Rank 0 passes the prepared graph, the other ranks pass None.

        Args:
            loss_rows: also build ``ShardedGraph.train_adj``, which multiplies only the rows with loss.
        """

    @property
    def kernel_name(self) -> str:
        """Name of the kernel that multiplies the blocks; known after ``shard``."""

    def sum_over_rows(self, tensor: Tensor) -> Tensor:
        """Sum ``tensor``, computed from the rows of each rank, over the ranks in place. Each global row counts once."""

    def gather(self, rows: Tensor) -> Tensor | None:
        """Return all (num_nodes, F) rows in original node order on the host of rank 0; None on other ranks."""


@dataclass(frozen=True)
class Balance:
    """Load balance of one forward product over the ranks; 1 is perfect."""

    nnz: float  # non-zeros that the most loaded rank multiplies, divided by the mean over the ranks
    stage_nnz: float  # the same if every stage waits for its most loaded rank
    rank_nnz: tuple[int, ...] = ()  # non-zeros that each rank multiplies, in rank order
