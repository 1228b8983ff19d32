"""The graph attention layer of Velickovic et al. (2018)."""

import torch
from torch import Tensor

from fullgnn.graph import EdgeSet
from fullgnn.nn.attention import Attention
from fullgnn.nn.dropout import Dropout
from fullgnn.nn.linear import glorot, linear
from fullgnn.schemes.block import Block


class GATConv(torch.nn.Module):
    """Z_i = sum_j p_ij (H W)_j + b, head by head, where p_ij is the softmax over the neighbours j of node i of

        LeakyReLU(a_source . (H W)_j + a_target . (H W)_i)

    The results of the K heads stand side by side, or their mean is taken. Edge weights are not read. The logits are
    columns of the same dense product as H W, since a . (H W)_j = (W a) . H_j: one exchange brings both.

    Args:
        out_channels: columns of the result, K * D if the heads stand side by side.
        generator: CPU generator from which the weights are drawn, Glorot-uniform.
        heads: K.
        concat: whether the heads stand side by side; otherwise their mean is the result.
        slope: negative slope of the LeakyReLU.
        attention_dropout: drops weights p_ij while training; None: drops none.
        self_loops: whether every node attends to itself too.
        bias: whether there is a b.

    Shapes:
        x: (num_sources, in_channels), output: (num_own_targets, out_channels).
    """

    states_edge_reads = True  # by ``Movements.edge_pass``, for the planner

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        generator: torch.Generator,
        heads: int = 1,
        concat: bool = True,
        slope: float = 0.2,
        attention_dropout: Dropout | None = None,
        self_loops: bool = True,
        bias: bool = True,
    ):
        super().__init__()
        self.heads, self.concat, self.slope = heads, concat, slope
        self.edge_set = EdgeSet(self_loops)
        per_head = out_channels // heads if concat else out_channels
        self.weight = torch.nn.Parameter(glorot(in_channels, heads * per_head, generator))
        self.att_source = torch.nn.Parameter(glorot(heads, per_head, generator))
        self.att_target = torch.nn.Parameter(glorot(heads, per_head, generator))
        self.bias = torch.nn.Parameter(torch.zeros(out_channels)) if bias else None
        self.attention_dropout = attention_dropout

    def forward(self, x: Tensor, block: Block) -> Tensor:
        """Return Z."""
        by_head = self.weight.unflatten(1, (self.heads, -1))
        logits = [(by_head * vector).sum(-1) for vector in (self.att_source, self.att_target)]
        attention = Attention(self.edge_set, self.heads, self.slope, self.attention_dropout)
        out = attention(linear(x, torch.cat([self.weight, *logits], dim=1)), block)
        if not self.concat:
            out = out.unflatten(1, (self.heads, -1)).mean(1)
        return out if self.bias is None else out + self.bias
