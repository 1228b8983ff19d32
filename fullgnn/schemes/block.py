"""What one layer reads on one rank.

A rank reads the rows of H that its rows of the adjacency have entries for (its *sources*), and computes new rows for
its *targets*. A layer sees only this ``Block``; it never learns how many ranks there are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from fullgnn.errors import UnsupportedError
from fullgnn.graph import Propagation
from fullgnn.kernels.dense.host_rows import HostRows
from fullgnn.kernels.spmm import NO_EPILOGUE, Epilogue
from fullgnn.kernels.support.aligned import select_rows


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

    def release(self) -> None:
        """Free the buffers that earlier products allocated. Every rank calls it."""

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""


class FusedProduct:
    """The product of a propagation matrix A with H, and the product of A^T with a gradient.

    Both fuse what surrounds them: a scale of their input, and on the output a bias, a ReLU and a dropout. A convolution
    that is linear in H, such as ``GCNConv``, asks a block for it.
    """

    def __init__(self, forward: Multiplication, backward: Multiplication):
        self.multiply, self.multiply_t = forward, backward

    def spmm(self, x: Tensor) -> Tensor:
        """Return A @ X, differentiable: (num_sources, F) own sources to (num_own_targets, F)."""
        return _SpMM.apply(x, self)

    def release(self) -> None:
        """Free the buffers that earlier products allocated. Every rank calls it."""
        self.multiply.release()
        self.multiply_t.release()

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        return [*self.multiply.tensors(), *self.multiply_t.tensors()]


@dataclass(frozen=True, eq=False)
class Block:
    """The part of a graph that one layer reads on one rank. Its targets are some of its sources, or all of them.

    Raises:
        UnsupportedError: from ``product``, see there.
    """

    source_id: Tensor  # (num_sources,) int64, original ids of this rank's own sources: the rows of x
    products: Mapping[Propagation, FusedProduct]  # those that the layers of the model ask for
    target_index: Tensor | None = None  # (num_own_targets,) int64, this rank's sources that are targets; None: all

    @property
    def own_id(self) -> Tensor:
        """(num_own_targets,) int64, original ids of this rank's own targets: the rows of a layer's output."""
        return self.source_id if self.target_index is None else self.source_id.index_select(0, self.target_index)

    def at_targets(self, x: Tensor) -> Tensor:
        """Pick the rows of ``x`` that are this rank's own targets: (num_sources, F) to (num_own_targets, F)."""
        return x if self.target_index is None else x.index_select(0, self.target_index)

    def product(self, propagation: Propagation) -> FusedProduct:
        """The product with the matrix of ``propagation``.

        Raises:
            UnsupportedError: the block was built without it.
        """
        if propagation not in self.products:
            raise UnsupportedError(
                f"this block has no product for {propagation}: a layer that calls block.product states its"
                " propagation in an attribute of this name, before the graph is distributed"
            )
        return self.products[propagation]

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        index = [] if self.target_index is None else [self.target_index]
        return [self.source_id, *index, *(tensor for product in self.products.values() for tensor in product.tensors())]

    def release(self) -> None:
        """Free the buffers that earlier products allocated. Every rank calls it."""
        for product in self.products.values():
            product.release()


@dataclass(frozen=True, eq=False)
class PropagatedInput:
    """A constant model input H0 of which only A @ H0 is kept, so that the first convolution needs no sparse product."""

    block: Block  # has every row as a target
    propagation: Propagation  # A
    product: Tensor | HostRows  # (num_sources, F), this rank's rows of A @ H0, on its device or on the host

    def rows(self, block: Block, propagation: Propagation) -> Tensor | HostRows:
        """The rows of A @ H0 that are the own targets of ``block``, which has the same sources: (num_own_targets, F).

        Raises:
            UnsupportedError: another propagation, or a block of another graph, is asked for.
        """
        if propagation != self.propagation or block.source_id is not self.block.source_id:
            raise UnsupportedError(f"only the product for {self.propagation} is kept of the input")
        if block.target_index is None:
            return self.product
        if isinstance(self.product, HostRows):
            return self.product.index_select(0, block.target_index)
        return select_rows(self.product, block.target_index)

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        return self.product.tensors() if isinstance(self.product, HostRows) else [self.product]


Input = Tensor | PropagatedInput
"""What the first layer of a model reads: the rows of the features, or what is kept of them."""


class _SpMM(torch.autograd.Function):
    """Y = A X. The gradient of X is A^T times the gradient of Y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, product: FusedProduct) -> Tensor:
        ctx.product = product
        return product.multiply(x.detach())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return ctx.product.multiply_t(grad), None
