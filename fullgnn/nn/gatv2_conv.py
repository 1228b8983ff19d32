"""The graph attention layer of Brody, Alon and Yahav (2022)."""

import torch
from torch import Tensor

from fullgnn.graph import EdgeSet
from fullgnn.nn.dropout import Dropout
from fullgnn.nn.dynamic_attention import DynamicAttention
from fullgnn.nn.linear import Linear, glorot
from fullgnn.schemes.block import Block


class GATv2Conv(torch.nn.Module):
    """Z_i = sum_j p_ij x_j + b, head by head, where p_ij is the softmax over the neighbours j of node i of

        a . LeakyReLU(x_j + y_i)        x = H W_source + b_source        y = H W_target + b_target

    The results of the K heads stand side by side, or their mean is taken. Edge weights are not read. One exchange
    brings the rows x_j; the rows y_i stay with their targets.

    In PyTorch Geometric's ``GATv2Conv``, ``source`` is ``lin_l``, ``target`` is ``lin_r``, and ``att_vector`` is
    ``att[0]``; its weights are transposed.

    Args:
        out_channels: columns of the result, K * D if the heads stand side by side.
        generator: CPU generator from which the weights are drawn, Glorot-uniform.
        heads: K.
        concat: whether the heads stand side by side; otherwise their mean is the result.
        slope: negative slope of the LeakyReLU.
        attention_dropout: drops weights p_ij while training; None: drops none.
        self_loops: whether every node attends to itself too.
        bias: whether there are b_source, b_target and b.

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
        self.source = Linear(in_channels, heads * per_head, generator, bias)
        self.target = Linear(in_channels, heads * per_head, generator, bias)
        self.att_vector = torch.nn.Parameter(glorot(heads, per_head, generator))
        self.bias = torch.nn.Parameter(torch.zeros(out_channels)) if bias else None
        self.attention_dropout = attention_dropout

    def forward(self, x: Tensor, block: Block) -> Tensor:
        """Return Z."""
        attention = DynamicAttention(self.edge_set, self.heads, self.slope, self.attention_dropout)
        out = attention(self.source(x), self.target(block.at_targets(x)), self.att_vector, block)
        if not self.concat:
            out = out.unflatten(1, (self.heads, -1)).mean(1)
        return out if self.bias is None else out + self.bias
