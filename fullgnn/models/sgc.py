"""Simplified graph convolution (Wu et al., 2019)."""

import torch
from torch import Tensor

from fullgnn.graph import Propagation
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.models.base import Model, check_sizes
from fullgnn.nn import Linear
from fullgnn.nn.linear import linear
from fullgnn.nn.propagate import propagate
from fullgnn.schemes.block import Block, Input, PropagatedInput


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

    spmm_order = "width"

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
        self.propagation = Propagation(normalization, self_loops)
        self.num_blocks, self.input_powers = num_hops, (num_hops,)
        self.disables["cache_aggregation"] = self.why_input_varies()
        self.linear = Linear(self.in_channels, out_channels, torch.Generator().manual_seed(seed), bias)

    @property
    def input_propagation(self) -> Propagation | None:
        """A, if the input X is constant; otherwise None."""
        return self.propagation if self.embedding is None else None

    @property
    def reads_sparse_rows(self) -> bool:
        """See ``Model``."""
        return self.embedding is None

    def forward(self, x: Input, blocks: list[Block]) -> Tensor:
        """Map (num_sources, in_channels) to the (num_own_targets, out_channels) logits of the last block's targets."""
        if isinstance(x, PropagatedInput):
            return self.linear(x.rows(blocks[-1], self.propagation, self.num_blocks))
        h = self.with_embedding(x, blocks[0])
        assert isinstance(h, (Tensor, SparseRows))
        weight, bias = self.linear.weight, self.linear.bias
        narrower = self.spmm_order == "width" and weight.shape[0] < weight.shape[1]
        if isinstance(h, Tensor) and (self.spmm_order == "propagate" or narrower):
            return self.linear(propagate(h, blocks, self.propagation))
        h = propagate(linear(h, weight), blocks, self.propagation)
        return h if bias is None else h + bias
