"""Simplified graph convolution (Wu et al., 2019)."""

import torch
from torch import Tensor

from fullgnn.graph import Propagation
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.models.stack import Model, check_sizes
from fullgnn.nn import Contract, Linear
from fullgnn.nn.linear import linear
from fullgnn.nn.product_order import WIDTH, propagates_first
from fullgnn.nn.propagate import propagate
from fullgnn.schemes.block import Block
from fullgnn.schemes.inputs import Input, PropagatedInput


class SGC(Model):
    """A^K X W + b, a linear model.

    A^K X is computed once, before the first epoch; an epoch then reads no edge. Where the input is trainable, or
    ``optimizations.cache_aggregation`` is off, every epoch multiplies K times by A, the narrower one of X and X W.

    Args:
        num_hops: K.
        normalization, self_loops: what A is, see ``Propagation``.
        bias: whether there is a b.
        in_channels, embedding_channels, seed: see ``Model``.

    Raises:
        ConfigError: a width or ``num_hops`` is out of range.
    """

    spmm_order = WIDTH

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_hops: int = 2,
        normalization: str = "sym",
        self_loops: bool = True,
        bias: bool = True,
        embedding_channels: int | None = None,
        seed: int = 0,
    ):
        super().__init__(in_channels, embedding_channels, seed)
        check_sizes(num_hops=num_hops)
        self.propagation, self.num_hops = Propagation(normalization, self_loops), num_hops
        self.linear = Linear(self.in_channels, out_channels, torch.Generator().manual_seed(seed), bias)

    def contract(self) -> Contract:
        """See ``Contract``."""
        varies = self.why_input_varies()
        return Contract(
            num_blocks=self.num_hops,
            propagations=(self.propagation,),
            input_propagation=None if varies else self.propagation,
            input_powers=(self.num_hops,),
            restricts_output=True,
            orders_products=True,
            reads_sparse_rows=self.embedding is None,
            disables={"cache_aggregation": varies},
        )

    def forward(self, x: Input, blocks: list[Block]) -> Tensor:
        """Map (num_sources, in_channels) to the (num_own_targets, out_channels) logits of the last block's targets."""
        if isinstance(x, PropagatedInput):
            return self.linear(x.rows(blocks[-1], self.propagation, self.num_hops))
        h = self.with_embedding(x, blocks[0])
        assert isinstance(h, (Tensor, SparseRows))
        weight, bias = self.linear.weight, self.linear.bias
        if isinstance(h, Tensor) and propagates_first(self.spmm_order, weight):
            return self.linear(propagate(h, blocks, self.propagation))
        h = propagate(linear(h, weight), blocks, self.propagation)
        return h if bias is None else h + bias
