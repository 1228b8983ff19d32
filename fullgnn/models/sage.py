"""GraphSAGE (Hamilton, Ying and Leskovec, 2017) with the mean over all neighbours."""

from fullgnn.models.stack import Stack
from fullgnn.nn import SAGEConv


class SAGE(Stack):
    """``num_layers`` ``SAGEConv`` layers with dropout on the input of each one and ReLU between them.

    Args, Raises: see ``Stack``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.5,
        input_dropout: float | None = None,
        seed: int = 0,
        embedding_channels: int | None = None,
    ):
        sizes = in_channels, out_channels, hidden_channels, num_layers
        super().__init__(SAGEConv, *sizes, dropout, input_dropout, seed, embedding_channels)
