"""A block: all that one layer reads on one rank.

A rank reads the rows of H that its rows of the adjacency have entries for (its *sources*), and computes new rows for
its *targets*. A layer sees only this ``Block``; it never learns how many ranks there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from fullgnn.errors import UnsupportedError
from fullgnn.graph import EdgeSet, Propagation
from fullgnn.kernels.epilogue.epilogue import NO_EPILOGUE, Activation, Epilogue, apply_epilogue_
from fullgnn.schemes.row_exchange import RowExchange, linear_map

if TYPE_CHECKING:
    from fullgnn.schemes.directory import Directory
    from fullgnn.schemes.edges import Stage
    from fullgnn.schemes.inputs import InputRows

_UNDECLARED = ", and no layer of the model says so: a layer that asks for it states Contract(joins_rows=True)"


class Multiplication(Protocol):
    """Y = M X for one distributed matrix M, outside autograd. It does not write to X."""

    @property
    def input_scale(self) -> Tensor | None:
        """(rows of X,) column scale of M, which a producer of X may pre-apply; None: no scale."""

    def __call__(self, x: Tensor, epilogue: Epilogue = NO_EPILOGUE, *, scaled: bool = False) -> Tensor:
        """Map this rank's rows of X to its rows of Y, to which it applies ``epilogue``, whose ``scale`` is None.

        Args:
            scaled: whether ``x`` is diag(input_scale) X already. A producer that fuses the scaling saves a pass over X.
        """

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""


@dataclass(frozen=True, eq=False)
class SimpleMultiplication:
    """A ``Multiplication`` by diag(after) M diag(before), from a function that multiplies by M and fuses nothing."""

    multiply: Callable[[Tensor], Tensor]  # this rank's rows of X to its rows of M X; it does not write to X
    before: Tensor | None = None  # (rows of X,); None: all 1
    after: Tensor | None = None  # (rows of Y,); None: all 1
    held: tuple[Tensor, ...] = ()  # the tensors of M, for counting memory
    input_scale = None

    def __call__(self, x: Tensor, epilogue: Epilogue = NO_EPILOGUE, *, scaled: bool = False) -> Tensor:
        """See ``Multiplication``."""
        assert not scaled
        y = self.multiply(x if self.before is None else x * self.before[:, None])
        return apply_epilogue_(y, replace(epilogue, scale=self.after))

    def tensors(self) -> list[Tensor]:
        """See ``Multiplication``."""
        return [*self.held, *(scale for scale in (self.before, self.after) if scale is not None)]


class Buffers(Protocol):
    """Memory that every product of a rank uses in turn."""

    def release(self) -> None:
        """Free all buffers. Every rank calls this function, between products."""

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, each once, for counting memory."""


class BlockProduct:
    """The product of a propagation matrix A with H, and the product of A^T with a gradient.

    Both fuse what surrounds them: a scale of their input, and on the output a bias, a ReLU and a dropout. A convolution
    that is linear in H, such as ``GCNConv``, asks a block for it.
    """

    def __init__(self, forward: Multiplication, backward: Multiplication):
        self.multiply, self.multiply_t = forward, backward

    def propagates_first(self, f: int, g: int, needs_input_gradient: bool) -> bool | None:
        """Whether (A H) W costs less than A (H W), forward and backward, for (f, g) weights W; None: the layer decides
        by the columns that A multiplies, since A has about as many rows as columns."""
        return None

    def spmm(self, x: Tensor | InputRows) -> Tensor:
        """Return A @ X, differentiable: (num_sources, F) own sources to (num_own_targets, F)."""
        return linear_map(self.multiply, lambda grad: self.multiply_t(grad), copied(x))

    def spmm_beside(self, x: Tensor, block: Block) -> Tensor:
        """Return A @ X beside the rows of X at the targets, differentiable: (num_sources, F) to (num_own_targets, 2 F).

        Args:
            block: the block of this product.
        """
        return torch.cat([self.spmm(x), block.at_targets(x)], dim=1)

    def linear_beside(
        self, x: Tensor | InputRows, block: Block, weight: Tensor, bias: Tensor | None, activation: Activation
    ) -> Tensor | None:
        """Return ``activation`` of [A @ X | X at the targets] W + b, differentiable, in one pass.

        Args:
            x: (num_sources, F).
            block: the block of this product.
            weight: (2 F, G), bias: (G,).

        Returns:
            (num_own_targets, G); None: this product has no such pass.
        """
        return None

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        return [*self.multiply.tensors(), *self.multiply_t.tensors()]


class SumsRows(Protocol):
    """What adds up the results of the ranks: a ``Scheme``, for example."""

    def sum_over_rows(self, tensor: Tensor) -> Tensor:
        """Sum ``tensor``, computed from this rank's rows, over the ranks in place. Each global row counts once, and
        every rank calls it."""


class JoinsRows(SumsRows, Protocol):
    """What also gathers results that a sum cannot join."""

    def gather_partial(self, tensor: Tensor) -> Tensor:
        """See ``Block.gather_partial``."""


@dataclass(eq=False)
class EdgeIds:
    """The original ids of the nodes that the edges of a block join. What is None was not asked for yet, and the ranks
    then exchange it."""

    targets: Tensor | None = None  # (num_targets,) int64, all targets of the block row
    sources: list[Tensor] | None = None  # for each stage (num_rows,) int64, the rows that arrive

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        return [*(self.sources or ()), *(() if self.targets is None else (self.targets,))]


@dataclass(frozen=True, eq=False)
class Block:
    """The part of a graph that one layer reads on one rank.

    The rows of x are this rank's *own sources*. A block row has several *stages*, each of which reads some rows of x,
    its own and those of other ranks. A layer computes the *targets* of the block row; this rank keeps the rows of its
    *own targets*. If the block row is shared by replicas, each of them has some of the stages, and the results of their
    stages are joined. The targets are some of the sources, or all of them.

    Without a ``row_exchange``, which not every scheme offers, a block has the products alone.
    """

    source_id: Tensor  # (num_sources,) int64, original ids of this rank's own sources: the rows of x
    products: Mapping[Propagation, BlockProduct] = field(default_factory=dict)  # those that the model asks for
    target_index: Tensor | None = None  # (num_own_targets,) int64, this rank's sources that are targets; None: all
    buffers: Buffers | None = None  # those of its products, if they use any
    row_exchange: Callable[[], RowExchange] | None = None  # called once, when a layer first reads rows of neighbours
    edges: Mapping[EdgeSet, tuple[Stage, ...]] = field(default_factory=dict)
    """The edges of each stage of this rank, for those edge sets that the model asks for."""
    directory: Callable[[], Directory] | None = (
        None  # finds nodes by their original ids; its first call is a collective
    )
    ranks: JoinsRows | None = None  # joins what they have computed from their rows: the ``Scheme``, for example
    edge_ids: EdgeIds = field(default_factory=EdgeIds)  # those that are known

    @property
    def own_id(self) -> Tensor:
        """(num_own_targets,) int64, original ids of this rank's own targets: the rows of a layer's output."""
        return self.source_id if self.target_index is None else self.source_id.index_select(0, self.target_index)

    @property
    def own(self) -> slice:
        """This rank's own targets among all targets of the block row."""
        return self.exchange.own

    @property
    def target_id(self) -> Tensor:
        """(num_targets,) int64, original ids of all targets of the block row. The first use is a collective."""
        if self.edge_ids.targets is None:
            self.edge_ids.targets = self.exchange.gather_targets(self.own_id[:, None])[:, 0]
        return self.edge_ids.targets

    @property
    def stage_source_id(self) -> list[Tensor]:
        """(num_rows,) int64 for each stage, original ids of the rows that arrive. The first use is a collective."""
        if self.edge_ids.sources is None:
            arrived = self.exchange.arrivals(self.source_id[:, None])
            self.edge_ids.sources = [rows[:, 0].clone() for rows in arrived if rows is not None]
        return self.edge_ids.sources

    def stages(self, edge_set: EdgeSet) -> tuple[Stage, ...]:
        """The edges of each stage of this rank.

        Raises:
            UnsupportedError: the block was built without them.
        """
        if edge_set not in self.edges:
            raise UnsupportedError(
                f"this block has no edges for {edge_set}: a layer that calls block.stages states them in its contract,"
                " as Contract(edge_sets=(...,)), before the graph is distributed"
            )
        return self.edges[edge_set]

    def product(self, propagation: Propagation) -> BlockProduct:
        """The product with the matrix of ``propagation``.

        Raises:
            UnsupportedError: the block was built without it.
        """
        if propagation not in self.products:
            raise UnsupportedError(
                f"this block has no product for {propagation}: a layer that calls block.product states it in its"
                " contract, as Contract(propagations=(...,)), before the graph is distributed"
            )
        return self.products[propagation]

    def at_targets(self, x: Tensor) -> Tensor:
        """Pick the rows of ``x`` that are this rank's own targets: (num_sources, F) to (num_own_targets, F)."""
        return x if self.target_index is None else x.index_select(0, self.target_index)

    def fetch(self, x: Tensor) -> Tensor:
        """Bring the rows that this rank's stages read, differentiable. Every rank calls it.

        Args:
            x: (num_sources, F), own rows.

        Returns:
            (rows of all stages, F), one stage after the other. The adjoint sends the gradients home, where the owner
            adds them.
        """
        exchange = self.exchange
        return linear_map(lambda rows: _fetched(rows, exchange), lambda grad: _pushed(grad, exchange), x)

    def fetch_targets(self, own: Tensor) -> Tensor:
        """Gather the rows of all targets of the block row from its replicas, differentiable. Every rank calls it.

        Args:
            own: (num_own_targets, F).

        Returns:
            (num_targets, F). The adjoint is ``reduce``.
        """
        return linear_map(self.exchange.gather_targets, self.exchange.reduce, own)

    def reduce(self, partial: Tensor) -> Tensor:
        """Sum the replicas' partial results, differentiable. Every rank calls it.

        Args:
            partial: (num_targets, F), what this rank's stages contribute to all targets of the block row.

        Returns:
            (num_own_targets, F). The adjoint is ``fetch_targets``.
        """
        return linear_map(self.exchange.reduce, self.exchange.gather_targets, partial)

    def fetch_rows(self, x: Tensor, ids: Tensor) -> Tensor:
        """Bring the rows of the nodes with the original ``ids``, differentiable. Every rank calls it.

        Args:
            x: (num_sources, F), own rows.
            ids: (num_ids,) int64, in any order and with repetitions; each rank may name others.

        Returns:
            (num_ids, F), in the order of ``ids``.

        Raises:
            DataError: a rank names a node that the graph does not have; the same on every rank.
        """
        assert self.exchange and self.directory is not None
        return self.directory().fetch(x, ids)

    def sum_over_rows(self, tensor: Tensor) -> Tensor:
        """Sum ``tensor``, computed from this rank's rows, over the rows of all ranks, in place. Every rank calls it.

        Each row of the graph counts once. The sum is not differentiable; the adjoint of the sum is the sum itself.

        Raises:
            UnsupportedError: the scheme offers products alone.
        """
        if self.ranks is None:
            raise UnsupportedError(f"this scheme adds nothing over all rows{_UNDECLARED}")
        return self.ranks.sum_over_rows(tensor)

    def gather_partial(self, tensor: Tensor) -> Tensor:
        """Gather what each rank has computed from its rows, for what a plain sum cannot join. Every rank calls it.

        Args:
            tensor: (...), float, of one shape on every rank. It is all zero where the rank has no rows.

        Returns:
            (num_ranks, ...), in rank order, the same bits on every rank. It is zero for a replica whose rows another
            rank counts: each row of the graph counts once. It is not differentiable.

        Raises:
            UnsupportedError: the scheme offers products alone.
        """
        if self.ranks is None:
            raise UnsupportedError(f"this scheme gathers nothing of all rows{_UNDECLARED}")
        return self.ranks.gather_partial(tensor)

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, without the buffers, for counting memory."""
        index = [] if self.target_index is None else [self.target_index]
        edges = [tensor for stages in self.edges.values() for stage in stages for tensor in stage.tensors()]
        products = [tensor for product in self.products.values() for tensor in product.tensors()]
        return [self.source_id, *index, *edges, *self.edge_ids.tensors(), *products]

    @cached_property
    def exchange(self) -> RowExchange:
        """How rows move between this block and those of other ranks.

        Raises:
            UnsupportedError: the block was built without them.
        """
        if self.row_exchange is None:
            raise UnsupportedError(
                "this block does not bring the rows of neighbours: a layer that reads them states it in its contract,"
                " as Contract(edge_sets=(...,)), before the graph is distributed"
            )
        return self.row_exchange()


def copied(x: Tensor | InputRows) -> Tensor:
    """(num_sources, F) ``x`` as a matrix of its own."""
    return x if isinstance(x, Tensor) else x.copied()


def _fetched(x: Tensor, exchange: RowExchange) -> Tensor:
    """The rows of all stages of this rank, one stage after the other: (num_sources, F) to (sum of num_rows, F)."""
    fetched = x.new_empty(sum(exchange.num_rows), x.shape[1])
    parts = fetched.split(exchange.num_rows) if exchange.num_rows else ()
    for step, rows in enumerate(exchange.arrivals(x)):
        if rows is not None:
            parts[step].copy_(rows)
    return fetched


def _pushed(grad: Tensor, exchange: RowExchange) -> Tensor:
    """The adjoint of ``_fetched``."""
    push = exchange.push(grad.shape[1], grad)
    parts = grad.split(exchange.num_rows) if exchange.num_rows else ()
    for step in range(exchange.num_steps):
        push.step(parts[step] if step < len(parts) else None)
    return push.finish()
