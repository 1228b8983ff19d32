"""The graph attention layer of Brody, Alon and Yahav (2022)."""

import torch
from torch import Tensor

from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.nn.attention import Attention
from fullgnn.nn.attention_conv import AttentionConv
from fullgnn.nn.contract import EdgeReads, RowReads
from fullgnn.nn.linear import Linear, glorot
from fullgnn.schemes.block import Block


class GATv2Conv(AttentionConv):
    """An ``AttentionConv`` with the logits, head by head,

        a . LeakyReLU(x_j + y_i)        x = H W_source + b_source        y = H W_target + b_target

    One exchange brings the rows x_j; the rows y_i stay with their targets.

    In PyTorch Geometric's ``GATv2Conv``, ``source`` is ``lin_l``, ``target`` is ``lin_r``, and ``att_vector`` is
    ``att[0]``; its weights are transposed.

    Args, Shapes: see ``AttentionConv``.
    """

    def make_parameters(self, in_channels: int, per_head: int, generator: torch.Generator, bias: bool) -> None:
        """See ``AttentionConv``."""
        self.source = Linear(in_channels, self.heads * per_head, generator, bias)
        self.target = Linear(in_channels, self.heads * per_head, generator, bias)
        self.att_vector = torch.nn.Parameter(glorot(self.heads, per_head, generator))

    def edge_reads(self) -> EdgeReads:
        """See ``AttentionConv``. Of a target, the backward pass reads its row y, its largest logits, its sums, the
        gradient and the products of gradient and result, see ``_Attend``."""
        width, num_heads = self.heads * self.att_vector.shape[1], self.heads
        return EdgeReads(
            forward=RowReads(sources=width), backward=RowReads(sources=width, targets=2 * width + 3 * num_heads)
        )

    def attend(self, x: Tensor | SparseRows, block: Block) -> Tensor:
        """See ``AttentionConv``."""
        attention = Attention(self.edge_set, self.heads, self.slope, self.attention_dropout)
        return attention.dynamic(self.source(x), self.target.at_targets(x, block), self.att_vector, block)
