"""Builds the layers and dropouts that all layered models have in common."""

from collections.abc import Callable

import torch

from fullgnn.errors import ConfigError
from fullgnn.nn import Dropout, Layer

MakeConv = Callable[[int, int, torch.Generator], torch.nn.Module]


def stack(
    conv: MakeConv,
    in_channels: int,
    out_channels: int,
    hidden_channels: int,
    num_layers: int,
    dropout: float,
    input_dropout: float | None,
    seed: int,
    activation: Callable[[], torch.nn.Module] = torch.nn.ReLU,
    last: MakeConv | None = None,
) -> tuple[Dropout, torch.nn.ModuleList]:
    """Build the dropout of the input and ``num_layers`` layers from ``in_channels`` via ``hidden_channels`` to
    ``out_channels``. Every layer but the last one ends with ``activation`` and the dropout of the next layer's
    input.

    Args:
        conv: function or class that builds a convolution: (in_channels, out_channels, generator) -> module.
        input_dropout: dropout probability for the input of the first layer; None: the same as ``dropout``.
        seed: seed of the initial weights and of the dropout masks.
        last: builds the last convolution; None: ``conv`` does.

    Raises:
        ConfigError: a width, depth or probability is out of range.
    """
    for key, value in (("hidden_channels", hidden_channels), ("num_layers", num_layers)):
        if value < 1:
            raise ConfigError(f"model.{key}={value} is too small: it must be at least 1")
    rates = [dropout if input_dropout is None else input_dropout, *[dropout] * (num_layers - 1)]
    for key, rate in (("dropout", dropout), ("input_dropout", rates[0])):
        if not 0 <= rate < 1:
            raise ConfigError(f"model.{key}={rate} is not a dropout rate: it must lie in [0, 1)")
    widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
    generator = torch.Generator().manual_seed(seed)
    makers = [*[conv] * (num_layers - 1), last or conv]
    convs = [make(a, b, generator) for make, a, b in zip(makers, widths, widths[1:])]
    first, *others = (Dropout(rate, index, seed) for index, rate in enumerate(rates))
    inner = [Layer(one, activation(), following) for one, following in zip(convs, others)]
    return first, torch.nn.ModuleList([*inner, Layer(convs[-1])])
