"""A trainable vector for each node of the graph, whose rows follow the nodes over the ranks."""

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedParameter

from fullgnn.kernels.dropout.philox import uniform
from fullgnn.nn.contract import Contract
from fullgnn.schemes.block import Block

_STREAM = 1 << 31
"""The first random stream of embeddings. Dropouts draw from the same generator, and their layers count from 0."""


class NodeEmbedding(torch.nn.Module):
    """A trainable row for each node: a *sharded* parameter, of which each rank holds the rows of its own nodes.

    The gradient of a row is complete on the rank that holds the row, so sharded parameters are not summed over the
    ranks; replicas that hold the same rows compute the same bits. The first values are normal numbers that depend only
    on (seed, number, original node id, column), so they are the same on any number of ranks, in any order.

    Args:
        channels: columns.
        seed: seed of the run.
        number: number of the embedding in its model; embeddings of different numbers have independent values.
        std: standard deviation of the first values; None: ``channels ** -0.5``, so that a row has a length of about 1.
    """

    def __init__(self, channels: int, seed: int, number: int = 0, std: float | None = None):
        super().__init__()
        self.channels, self.seed, self.number = channels, seed, number
        self.std = channels**-0.5 if std is None else std
        self.weight = UninitializedParameter(dtype=torch.get_default_dtype())  # type: ignore[call-arg]
        self.node_id: Tensor | None
        self.register_buffer("node_id", None, persistent=False)

    def contract(self) -> Contract:
        """See ``Contract``."""
        return Contract(sharded=("weight",))

    @torch.no_grad()
    def place(self, node_id: Tensor) -> None:
        """See ``PlacesRows``."""
        drawn = uniform(node_id.cpu(), self.channels, self.seed, _STREAM + self.number)
        rows = torch.special.ndtri(drawn).mul_(self.std)
        self.weight.materialize((len(node_id), self.channels))
        self.weight.copy_(rows)
        self.node_id = node_id.to(self.weight.device)

    def forward(self, block: Block) -> Tensor:
        """The (num_sources, channels) rows of the sources of ``block``, which are the nodes of this rank."""
        return self.weight

    def extra_repr(self) -> str:
        return f"channels={self.channels}"
