"""The interface between distributed algorithms and models.

A ``Scheme`` reads the part of a prepared graph that a rank multiplies, and makes a ``ShardedGraph`` of it. A model is
``forward(x, blocks)``: it sees the rows of its rank and one ``Block`` for each layer that reads neighbours; it never
learns how many ranks there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from fullgnn.errors import ConfigError

if TYPE_CHECKING:
    from fullgnn.codecs import Codec
    from fullgnn.graph import EdgeSet, Propagation
    from fullgnn.graph.links import LinkFacts, Lists
    from fullgnn.partition.prepared import PreparedGraph
    from fullgnn.schemes.block import Block
    from fullgnn.schemes.coded import CodedFeatures
    from fullgnn.schemes.inputs import Input


@dataclass(frozen=True)
class BlockRequest:
    """What the layers of a model need of their blocks. Every rank knows it before the graph is distributed."""

    propagations: tuple[Propagation, ...]  # the matrices of which the blocks offer the product
    loss_rows: bool = False  # whether a block whose targets are the rows with loss is needed too
    edges: tuple[EdgeSet, ...] = ()  # those that the blocks hold, for layers whose messages are not linear in H
    fold: bool = True  # whether the blocks of an unweighted graph hold its pattern instead of normalised entries
    pairs: bool = False  # whether a rank gets the ``RowPairs`` of its rows, for a task that finds links
    dtype: torch.dtype = torch.float32  # of features and of the entries that are multiplied
    codec: Codec | None = None  # that decodes the features; None: they are as they are
    sparse: bool = False  # whether the features are ``SparseRows``
    joins_rows: bool = False  # whether a layer calls ``Block.sum_over_rows`` or ``Block.gather_partial``
    num_blocks: int = 1  # that ``forward`` reads

    @property
    def self_loops(self) -> bool:
        """Whether a layer reads its targets' own rows, so that the exchange brings them."""
        in_products = any(propagation.self_loops for propagation in self.propagations)
        return in_products or any(edge_set.self_loops for edge_set in self.edges)


@dataclass(frozen=True)
class Offers:
    """What a scheme's blocks offer beyond products. ``check_offers`` compares it with what a run needs."""

    edges: bool = False  # ``Block.stages``, and the rows of neighbours themselves
    pairs: bool = False  # ``ShardedGraph.pairs``, and rows by their original ids
    loss_rows: bool = False  # ``ShardedGraph.loss_block``; without it, all rows are computed
    joins_rows: bool = False  # ``Block.sum_over_rows`` and ``Block.gather_partial``


@dataclass(frozen=True, eq=False)
class RowPairs:
    """The pairs of ``graph/links.py`` whose owners are this rank's rows, on the host, in ORIGINAL ids, by local row."""

    facts: LinkFacts
    train: Lists
    val: Lists
    test: Lists
    known: Lists  # partners of training pairs in either direction, which are no negatives; see ``LinkPairs``
    held: Lists  # the same with the partners of held-out pairs
    first: np.ndarray  # (3, num_local_nodes) int64, GLOBAL number of each row's first training, val and test pair


@dataclass(frozen=True, eq=False)
class ShardedGraph:
    """One rank's part of the graph, on its device. Row i of every tensor is the node ``block.source_id[i]``.

    A scheme may leave the features on the host: the engine then moves them, or A @ H0, to where they are multiplied.
    """

    block: Block  # its own targets are all its sources
    loss_block: (
        Block | None
    )  # the same sources; its targets are the rows with loss; None: not requested, or not offered
    features: Input  # (num_local_nodes, num_features)
    labels: Tensor  # (num_local_nodes,) or (num_local_nodes, c), as ``Graph.labels``; then as ``Task.targets``
    masks: Tensor  # (3, num_local_nodes) bool: train, val, test
    num_features: int
    num_classes: int
    num_split_nodes: tuple[int, int, int]  # global counts: train, val, test
    num_blocks: int  # that the ``forward`` of the model reads
    pairs: RowPairs | None = None  # None: not requested
    coded: CodedFeatures | None = None  # the features as they travel, if a codec keeps them and the scheme sends codes
    train_index: Tensor = field(init=False)  # (num_local_train,) int64, local rows with loss
    train_labels: Tensor = field(init=False)  # (num_local_train,) or (num_local_train, c), theirs

    def __post_init__(self) -> None:
        object.__setattr__(self, "train_index", self.masks[0].nonzero().squeeze(1))
        object.__setattr__(self, "train_labels", self.labels[self.train_index])

    @property
    def blocks(self) -> list[Block]:
        """What ``forward`` gets, if it computes all rows."""
        return [self.block] * self.num_blocks

    @property
    def loss_blocks(self) -> list[Block]:
        """What ``forward`` gets, if it computes the rows with loss alone; there is a ``loss_block``."""
        assert self.loss_block is not None
        return [*self.blocks[:-1], self.loss_block]

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        features = [self.features] if isinstance(self.features, Tensor) else self.features.tensors()
        blocks = [self.block] if self.loss_block is None else [self.block, self.loss_block]
        held = [tensor for block in blocks for tensor in block.tensors()]
        held += [] if self.block.buffers is None else self.block.buffers.tensors()
        return [*held, *features, self.labels, self.train_index, self.train_labels, self.masks]


class Scheme(Protocol):
    """A distributed algorithm for Y = A @ X, bound to this rank of a mesh."""

    offers: Offers
    num_parts: int  # block rows, the paper's b
    replication: int  # ranks that share each block row, the paper's r
    balance: Balance  # for the graph of the last ``shard``

    def shard(self, source: PreparedGraph, request: BlockRequest) -> ShardedGraph:
        """Read this rank's part of a graph with ``num_parts`` block rows, and build its blocks. Every rank calls it.

        Raises:
            FullGNNError: the graph cannot be multiplied so, or a file of it is damaged; the same on every rank.
        """

    @property
    def kernel_name(self) -> str:
        """Name of the kernel that multiplies the blocks; known after ``shard``."""

    def sum_over_rows(self, tensor: Tensor) -> Tensor:
        """Sum ``tensor``, computed from the rows of each rank, over the ranks in place. Each global row counts once."""

    def of_columns(self, rows: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply ``compute`` to whole columns: to all rows, of all ranks, of one column. Every rank calls it.

        Args:
            rows: (num_own, C, ...), some rows of this rank.
            compute: maps (num_rows, c, ...), all rows of some columns in any order, to (c,) float64.

        Returns:
            (C,) float64 on the host, the same on every rank.
        """

    def gather(self, rows: Tensor) -> Tensor | None:
        """Return all (num_nodes, F) rows in original node order on the host of rank 0; None on other ranks."""

    def gather_parts(self, rows: Mapping[str, Tensor]) -> Iterator[dict[str, np.ndarray]]:
        """Gather rows on rank 0 without holding all of them at once. Every rank iterates to the end.

        Args:
            rows: by name, (num_local_nodes, ...).

        Yields:
            on rank 0 parts of some ten megabytes, each with the original ids ``node_id`` (n,) and, by name, (n, ...)
            rows; each node is in one part. Nothing on other ranks.
        """


@dataclass(frozen=True)
class Balance:
    """Load balance of one forward product over the ranks; 1 is perfect."""

    nnz: float  # non-zeros that the most loaded rank multiplies, divided by the mean over the ranks
    stage_nnz: float  # the same if every stage waits for its most loaded rank
    rank_nnz: tuple[int, ...] = ()  # non-zeros that each rank multiplies, in rank order


CHOOSE_SCHEME = "choose scheme=1d or scheme=1.5d"
"""The cure in a message about a scheme that cannot do what is asked: both of these do all that a run can ask for."""


def check_offers(request: BlockRequest, offers: Offers, model: str, task: str, scheme: str) -> None:
    """Refuse a scheme that lacks something without which the model or the task cannot be trained.

    Args:
        model, task, scheme: the names of the choices, for the message.

    Raises:
        ConfigError: one line, the same on every rank.
    """
    lacks = {
        f"task={task} reads rows of other ranks by their ids": request.pairs and not offers.pairs,
        f"model={model} reads the edges of the graph": bool(request.edges) and not offers.edges,
        f"model={model} adds up what all ranks find for their rows": request.joins_rows and not offers.joins_rows,
    }
    for what, is_lacking in lacks.items():
        if is_lacking:
            raise ConfigError(f"{what}, and scheme={scheme} multiplies only: {CHOOSE_SCHEME}")
