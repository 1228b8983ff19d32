"""The base of the graph attention layers."""

import torch
from torch import Tensor

from fullgnn.graph import EdgeSet
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.nn.contract import Contract, EdgeReads
from fullgnn.nn.dropout import Dropout
from fullgnn.schemes.block import Block


class AttentionConv(torch.nn.Module):
    """Z_i = sum_j w_ij p_ij x_j + b, head by head, where p_ij is a softmax over the neighbours j of node i.

    The weight w_ij of an edge is 1 in a graph without weights, and for the self-loops that are added. The results of
    the K heads stand side by side, or their mean is taken. A layer that derives from this one says how the rows x and
    the logits of the softmax are computed.

    Args:
        out_channels: columns of the result, K * D if the heads stand side by side.
        generator: CPU generator from which the weights are drawn, Glorot-uniform.
        heads: K.
        concat: whether the heads stand side by side; otherwise their mean is the result.
        slope: negative slope of the LeakyReLU of the logits.
        attention_dropout: drops weights p_ij while training; None: drops none.
        self_loops: whether every node attends to itself too.
        bias: whether there is a b, and a bias of each dense product of the derived layer.

    Shapes:
        x: (num_sources, in_channels), output: (num_own_targets, out_channels).
    """

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
        self.make_parameters(in_channels, out_channels // heads if concat else out_channels, generator, bias)
        self.bias = torch.nn.Parameter(torch.zeros(out_channels)) if bias else None
        self.attention_dropout = attention_dropout

    def contract(self) -> Contract:
        """See ``Contract``."""
        return Contract(edge_sets=(self.edge_set,), edge_reads=self.edge_reads(), reads_sparse_rows=True)

    def make_parameters(self, in_channels: int, per_head: int, generator: torch.Generator, bias: bool) -> None:
        """Draw the parameters of the layer but b, for heads of ``per_head`` columns."""
        raise NotImplementedError

    def edge_reads(self) -> EdgeReads:
        """What ``attend`` reads for each edge."""
        raise NotImplementedError

    def attend(self, x: Tensor | SparseRows, block: Block) -> Tensor:
        """Return the weighted sums of the neighbours' rows: (num_own_targets, K * D)."""
        raise NotImplementedError

    def forward(self, x: Tensor | SparseRows, block: Block) -> Tensor:
        """Return Z."""
        out = self.attend(x, block)
        if not self.concat:
            out = out.unflatten(1, (self.heads, -1)).mean(1)
        return out if self.bias is None else out + self.bias
