"""The graph attention layer of Velickovic et al. (2018)."""

import torch
from torch import Tensor

from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.nn.attention import Attention
from fullgnn.nn.attention_conv import AttentionConv
from fullgnn.nn.contract import EdgeReads, RowReads
from fullgnn.nn.linear import glorot, linear
from fullgnn.schemes.block import Block


class GATConv(AttentionConv):
    """An ``AttentionConv`` with the rows x = H W and, head by head, the logits

        LeakyReLU(a_source . x_j + a_target . x_i)

    The logits are columns of the same dense product as H W, since a . (H W)_j = (W a) . H_j: one exchange brings both.

    Args, Shapes: see ``AttentionConv``.
    """

    def make_parameters(self, in_channels: int, per_head: int, generator: torch.Generator, bias: bool) -> None:
        """See ``AttentionConv``."""
        self.weight = torch.nn.Parameter(glorot(in_channels, self.heads * per_head, generator))
        self.att_source = torch.nn.Parameter(glorot(self.heads, per_head, generator))
        self.att_target = torch.nn.Parameter(glorot(self.heads, per_head, generator))

    def edge_reads(self) -> EdgeReads:
        """See ``AttentionConv``. A source sends its row and its logits. Of a target, the backward pass reads its
        logits, its largest logits, its sums, the gradient and the products of gradient and result, see ``_Attend``."""
        width, num_heads = self.weight.shape[1], self.heads
        return EdgeReads(
            forward=RowReads(sources=width + num_heads),
            backward=RowReads(sources=width + num_heads, targets=width + 4 * num_heads),
        )

    def attend(self, x: Tensor | SparseRows, block: Block) -> Tensor:
        """See ``AttentionConv``."""
        by_head = self.weight.unflatten(1, (self.heads, -1))
        logits = [(by_head * vector).sum(-1) for vector in (self.att_source, self.att_target)]
        attention = Attention(self.edge_set, self.heads, self.slope, self.attention_dropout)
        return attention(linear(x, torch.cat([self.weight, *logits], dim=1)), block)
