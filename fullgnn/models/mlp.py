"""A baseline that does not use the graph: if a GCN is more accurate than the MLP, this is due to the graph."""

from torch import Tensor

from fullgnn.models.stack import Stack
from fullgnn.nn import Linear
from fullgnn.schemes.block import Block


class MLP(Stack):
    """``num_layers`` dense layers with dropout on the input of each one and ReLU between them.

    Args, Raises: see ``Stack``.
    """

    restricts_output = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 16,
        num_layers: int = 2,
        dropout: float = 0.5,
        input_dropout: float | None = None,
        seed: int = 0,
        embedding_channels: int | None = None,
    ):
        sizes = in_channels, out_channels, hidden_channels, num_layers
        super().__init__(Linear, *sizes, dropout, input_dropout, seed, embedding_channels)
        self.num_blocks = 1  # it names the rows, whose ids the dropout needs; its edges are not read

    def forward(self, x: Tensor, blocks: list[Block]) -> Tensor:  # type: ignore[override]  # it never gets A X
        """Map (num_sources, in_channels) to the (num_own_targets, out_channels) logits of the block's targets."""
        (block,) = blocks
        h = self.with_embedding(x, block)
        assert isinstance(h, Tensor)
        h = self.dropout(block.at_targets(h), block.own_id)
        for layer in self.layers:
            h = layer(h, block)
        return h
