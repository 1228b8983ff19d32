"""The GraphSAGE layer of Hamilton, Ying and Leskovec (2017), with the mean or the maximum over all neighbours."""

import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.graph import EdgeSet, Propagation
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.kernels.epilogue.epilogue import IDENTITY, Activation
from fullgnn.nn.contract import Contract, EdgeReads, RowReads
from fullgnn.nn.dropout import activate
from fullgnn.nn.gcn_conv import GCNConv
from fullgnn.nn.linear import Linear, linear
from fullgnn.nn.neighbor_max import neighbor_max
from fullgnn.schemes.block import Block, copied
from fullgnn.schemes.inputs import Input, InputRows, PropagatedInput

AGGREGATIONS = ("mean", "max")
MEAN = Propagation("row", self_loops=False, without_sums="model.aggregation=max")
"""The matrix of the mean over the neighbours; the maximum does not divide by the sums of the weights."""


class SAGEConv(torch.nn.Module):
    """Z_i = H_i W_root + aggregate over the neighbours j of node i of H_j, W + b.

    Args:
        generator: CPU generator from which the weights are drawn.
        aggregation: ``mean``, which in a graph with edge weights is weighted by them; or ``max``, the elementwise
            maximum of the neighbours' rows, each times the weight of its edge. A node without neighbours gets 0.
        bias: whether there is a b.

    Shapes:
        x: (num_sources, in_channels), output: (num_own_targets, out_channels).

    Raises:
        ConfigError: another aggregation.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        generator: torch.Generator,
        aggregation: str = "mean",
        bias: bool = True,
    ):
        super().__init__()
        self.edge_set: EdgeSet | None = None
        self.neighbors: GCNConv | Linear
        if aggregation == "mean":
            self.neighbors = GCNConv(in_channels, out_channels, generator, "row", self_loops=False, bias=bias)
            self.neighbors.propagation = MEAN
        elif aggregation == "max":
            self.edge_set = EdgeSet(self_loops=False)
            self.neighbors = Linear(in_channels, out_channels, generator, bias)
        else:
            raise ConfigError(f"model.aggregation={aggregation} is not known: choose one of {', '.join(AGGREGATIONS)}")
        self.root = Linear(in_channels, out_channels, generator, bias=False)

    def contract(self) -> Contract:
        """See ``Contract``. The maximum reads the rows of the neighbours themselves."""
        width, reads_edges = self.root.weight.shape[0], self.edge_set is not None
        return Contract(
            edge_sets=() if self.edge_set is None else (self.edge_set,),
            edge_reads=EdgeReads(RowReads(sources=width), RowReads(winners=width)) if reads_edges else None,
            fuses_activation=True,
            reads_sparse_rows=self.edge_set is None,
            reads_input_rows=True,
        )

    def forward(self, x: Input, block: Block, activation: Activation = IDENTITY) -> Tensor:
        """Return ``activation`` of Z."""
        neighbors = self.neighbors
        if (
            isinstance(neighbors, GCNConv)
            and not isinstance(x, (PropagatedInput, SparseRows))
            and neighbors.asked_order(x, block)
        ):
            # One dense product for both: A H and H stand side by side.
            product = block.product(neighbors.propagation)
            weight = torch.cat([neighbors.linear.weight, self.root.weight])
            output = product.linear_beside(x, block, weight, neighbors.bias, activation)
            if output is not None:
                return output
            return linear(product.spmm_beside(copied(x), block), weight, neighbors.bias, activation)
        return activate(self._sum(x.copied() if isinstance(x, InputRows) else x, block), activation)

    def _sum(self, x: Tensor | PropagatedInput | SparseRows, block: Block) -> Tensor:
        """Return Z."""
        if isinstance(self.neighbors, GCNConv):
            of_neighbors = self.neighbors(x, block)
            if isinstance(x, PropagatedInput):
                return of_neighbors + linear(x.rows(block, self.neighbors.propagation, 0), self.root.weight)
        else:
            assert isinstance(x, Tensor) and self.edge_set is not None
            of_neighbors = self.neighbors(neighbor_max(x, block, self.edge_set))
        return of_neighbors + self.root.at_targets(x, block)
