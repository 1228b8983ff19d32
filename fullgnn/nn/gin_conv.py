"""The graph isomorphism layer of Xu et al. (2019)."""

import torch
from torch import Tensor

from fullgnn.graph import Propagation
from fullgnn.kernels.epilogue.epilogue import IDENTITY, Activation
from fullgnn.nn.contract import Contract
from fullgnn.nn.linear import Linear, linear
from fullgnn.nn.norms import make_norm
from fullgnn.nn.product_order import WIDTH, asked_order, propagates_first
from fullgnn.schemes.block import Block
from fullgnn.schemes.inputs import Input, InputRows, PropagatedInput


class GINConv(torch.nn.Module):
    """Z_i = MLP((1 + eps) H_i + sum over the neighbours j of node i of H_j). In a graph with edge weights, the sum is
    weighted by them.

    The MLP is a dense layer, a norm if there is one, a ReLU, and a second dense layer. Its first product and the one
    with the adjacency A may be computed in either order, (A H) W or A (H W), which ``product_order.py`` chooses.

    Args:
        generator: CPU generator from which the weights are drawn.
        eps: the first value of eps.
        train_eps: whether eps is a parameter.
        norm: norm inside the MLP, see ``make_norm``; None: no norm.
        bias: whether the dense layers have a bias.

    Shapes:
        x: (num_sources, in_channels), output: (num_own_targets, out_channels).

    Raises:
        ConfigError: an unknown norm.
    """

    spmm_order = WIDTH

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        generator: torch.Generator,
        eps: float = 0.0,
        train_eps: bool = False,
        norm: str | None = None,
        bias: bool = True,
    ):
        super().__init__()
        self.propagation = Propagation("none", self_loops=False)
        self.eps: Tensor
        if train_eps:
            self.eps = torch.nn.Parameter(torch.tensor(float(eps)))
        else:
            self.register_buffer("eps", torch.tensor(float(eps)))
        self.first = Linear(in_channels, out_channels, generator, bias)
        self.norm = None if norm is None else make_norm(norm, out_channels)
        self.second = Linear(out_channels, out_channels, generator, bias)

    def contract(self) -> Contract:
        """See ``Contract``."""
        return Contract(
            propagations=(self.propagation,), orders_products=True, fuses_activation=True, reads_sparse_rows=True
        )

    def forward(self, x: Input, block: Block, activation: Activation = IDENTITY) -> Tensor:
        """Return ``activation`` of Z."""
        weight, bias = self.first.weight, self.first.bias
        x = x.copied() if isinstance(x, InputRows) else x
        if isinstance(x, PropagatedInput):
            own, neighbors = (x.rows(block, self.propagation, power) for power in (0, 1))
            h = self._sum(linear(neighbors, weight, bias), linear(own, weight))
        elif isinstance(x, Tensor) and self._propagates_first(x, block):
            h = linear(self._sum(block.product(self.propagation).spmm(x), block.at_targets(x)), weight, bias)
        else:
            transformed = linear(x, weight)
            h = self._sum(block.product(self.propagation).spmm(transformed), block.at_targets(transformed))
            h = h if bias is None else h + bias
        if self.norm is not None:
            h = self.norm(h, block)
        return self.second(torch.relu(h), block, activation)

    def _sum(self, of_neighbors: Tensor, own: Tensor) -> Tensor:
        """``of_neighbors`` + (1 + eps) ``own``."""
        return torch.addcmul(of_neighbors, own, 1 + self.eps)

    def _propagates_first(self, x: Tensor, block: Block) -> bool:
        weight, needs_gradient = self.first.weight, x.requires_grad
        f, g = weight.shape
        asked = asked_order(self.spmm_order, weight, block.product(self.propagation), needs_gradient)
        return propagates_first(self.spmm_order, weight, asked, (f if needs_gradient else 0, g))
