"""Widths and dropout rates of a stack of layers."""

from fullgnn.errors import ConfigError


def channels(in_channels: int, hidden_channels: int, out_channels: int, num_layers: int) -> list[int]:
    """The num_layers + 1 widths from input to output."""
    for key, value in (("hidden_channels", hidden_channels), ("num_layers", num_layers)):
        if value < 1:
            raise ConfigError(f"model.{key}={value} is too small: it must be at least 1")
    return [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]


def dropout_rates(dropout: float, input_dropout: float | None, num_layers: int) -> list[float]:
    """The rate of each layer's input; ``input_dropout`` None takes ``dropout``."""
    rates = [dropout if input_dropout is None else input_dropout, *[dropout] * (num_layers - 1)]
    for key, rate in (("dropout", dropout), ("input_dropout", rates[0])):
        if not 0 <= rate < 1:
            raise ConfigError(f"model.{key}={rate} is not a dropout rate: it must lie in [0, 1)")
    return rates
