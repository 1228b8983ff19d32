"""GraphSAGE (Hamilton, Ying and Leskovec, 2017) with the mean or the maximum over all neighbours."""

from functools import partial
from typing import Any

from fullgnn.config.options import takes_options
from fullgnn.models.stack import Stack, StackOptions
from fullgnn.nn import SAGEConv
from fullgnn.nn.sage_conv import MEAN


class SAGE(Stack):
    """``num_layers`` ``SAGEConv`` layers with dropout on the input of each one and ReLU between them.

    Args:
        aggregation: ``mean`` or ``max``, see ``SAGEConv``.
        in_channels, out_channels: see ``Stack``; options: see ``StackOptions``.

    Raises:
        ConfigError: a width, depth or probability is out of range, or the aggregation is not known.
    """

    input_powers = (0, 1)

    @takes_options(StackOptions)
    def __init__(self, in_channels: int, out_channels: int, aggregation: str = "mean", **options: Any):
        chosen = StackOptions(**options)
        conv = partial(SAGEConv, aggregation=aggregation, bias=chosen.bias)
        propagation = MEAN if aggregation == "mean" else None
        super().__init__(conv, in_channels, out_channels, chosen, propagation=propagation)
