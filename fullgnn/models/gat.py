"""Graph attention network (Velickovic et al., 2018)."""

from itertools import count

import torch

from fullgnn.errors import ConfigError
from fullgnn.models.stack import Stack
from fullgnn.nn import Dropout, GATConv


class GAT(Stack):
    """``num_layers`` attention layers with dropout on the input of each one and ELU between them.

    Args:
        hidden_channels: columns of each head of a hidden layer.
        heads: heads of the hidden layers; they stand side by side.
        out_heads: heads of the last layer; their mean is the result.
        attention_dropout: dropout probability of the attention weights.
        slope: negative slope of the LeakyReLU of the logits.
        self_loops: whether every node attends to itself too.
        in_channels, out_channels, dropout, input_dropout, seed, embedding_channels: see ``Stack``.

    Raises:
        ConfigError: a width, depth, number of heads or probability is out of range.
    """

    convolution: type[torch.nn.Module] = GATConv

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 8,
        num_layers: int = 2,
        heads: int = 8,
        out_heads: int = 1,
        dropout: float = 0.6,
        input_dropout: float | None = None,
        attention_dropout: float = 0.6,
        slope: float = 0.2,
        seed: int = 0,
        self_loops: bool = True,
        embedding_channels: int | None = None,
    ):
        for key, value in (("hidden_channels", hidden_channels), ("heads", heads), ("out_heads", out_heads)):
            if value < 1:
                raise ConfigError(f"model.{key}={value} is too small: it must be at least 1")
        if not 0 <= attention_dropout < 1:
            raise ConfigError(
                f"model.attention_dropout={attention_dropout} is not a dropout rate: it must lie in [0, 1)"
            )
        number = count()

        def conv(width: int, out_width: int, generator: torch.Generator) -> torch.nn.Module:
            drop = Dropout(attention_dropout, next(number), seed)
            return self.convolution(width, out_width, generator, heads, True, slope, drop, self_loops)

        def last(width: int, out_width: int, generator: torch.Generator) -> torch.nn.Module:
            drop = Dropout(attention_dropout, next(number), seed)
            return self.convolution(width, out_width, generator, out_heads, False, slope, drop, self_loops)

        sizes = in_channels, out_channels, hidden_channels * heads, num_layers
        super().__init__(conv, *sizes, dropout, input_dropout, seed, embedding_channels, torch.nn.ELU, last)
