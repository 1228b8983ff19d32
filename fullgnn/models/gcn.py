"""Graph convolutional network (Kipf and Welling, 2017)."""

from functools import partial

from fullgnn.graph import Propagation
from fullgnn.models.stack import Stack
from fullgnn.nn import GCNConv


class GCN(Stack):
    """``num_layers`` graph convolutions with dropout on the input of each one and ReLU between them.

    Args:
        normalization, self_loops: the matrix that every layer multiplies by, see ``Propagation``.
        in_channels, out_channels, hidden_channels, dropout, input_dropout, seed, embedding_channels: see ``Stack``.

    Raises:
        ConfigError: a width, depth or probability is out of range.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 16,
        num_layers: int = 2,
        dropout: float = 0.5,
        input_dropout: float | None = None,
        seed: int = 0,
        normalization: str = "sym",
        self_loops: bool = True,
        embedding_channels: int | None = None,
    ):
        conv = partial(GCNConv, normalization=normalization, self_loops=self_loops)
        sizes = in_channels, out_channels, hidden_channels, num_layers
        super().__init__(conv, *sizes, dropout, input_dropout, seed, embedding_channels)
        self.propagation = Propagation(normalization, self_loops)

    @property
    def input_propagation(self) -> Propagation | None:
        """A, if the input X is used only in A @ X, which may then be computed once for all epochs; otherwise None."""
        return self.propagation if self.dropout.p == 0 and self.embedding is None else None
