"""GraphSAGE (Hamilton, Ying and Leskovec, 2017) with the mean or the maximum over all neighbours."""

from functools import partial

from fullgnn.models.stack import Stack
from fullgnn.nn import SAGEConv


class SAGE(Stack):
    """``num_layers`` ``SAGEConv`` layers with dropout on the input of each one and ReLU between them.

    Args:
        aggregation: ``mean`` or ``max``, see ``SAGEConv``.
        in_channels, out_channels, hidden_channels, dropout, input_dropout, seed, embedding_channels: see ``Stack``.

    Raises:
        ConfigError: a width, depth or probability is out of range, or the aggregation is not known.
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
        aggregation: str = "mean",
        embedding_channels: int | None = None,
    ):
        sizes = in_channels, out_channels, hidden_channels, num_layers
        conv = partial(SAGEConv, aggregation=aggregation)
        super().__init__(conv, *sizes, dropout, input_dropout, seed, embedding_channels)
