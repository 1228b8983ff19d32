"""Graph attention network (Velickovic et al., 2018)."""

from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import torch

from fullgnn.config.options import takes_options
from fullgnn.models.stack import Stack, StackOptions, check_rates, check_sizes
from fullgnn.nn import AttentionConv, Dropout, GATConv


class GAT(Stack):
    """``num_layers`` attention layers with dropout on the input of each one and ELU between them.

    Args:
        heads: heads of the hidden layers; they stand side by side.
        out_heads: heads of the last layer; their mean is the result.
        attention_dropout: dropout probability of the attention weights.
        slope: negative slope of the LeakyReLU of the logits.
        self_loops: whether every node attends to itself too.
        in_channels, out_channels: see ``Stack``; options: see ``StackOptions``, where ``hidden_channels`` is the width
            of each head of a hidden layer.

    Raises:
        ConfigError: a width, depth, number of heads or probability is out of range.
    """

    convolution: type[AttentionConv] = GATConv

    @takes_options(StackOptions)
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 8,
        out_heads: int = 1,
        attention_dropout: float = 0.6,
        slope: float = 0.2,
        self_loops: bool = True,
        **options: Any,
    ):
        check_sizes(heads=heads, out_heads=out_heads)
        check_rates(attention_dropout=attention_dropout)
        chosen, number = StackOptions(**options), count()

        def conv(width: int, out_width: int, generator: torch.Generator, heads: int, concat: bool) -> torch.nn.Module:
            drop = Dropout(attention_dropout, next(number), chosen.seed)
            return self.convolution(width, out_width, generator, heads, concat, slope, drop, self_loops, chosen.bias)

        super().__init__(
            partial(conv, heads=heads, concat=True),
            in_channels,
            out_channels,
            replace(chosen, hidden_channels=chosen.hidden_channels * heads),
            torch.nn.ELU,
            partial(conv, heads=out_heads, concat=False),
        )
