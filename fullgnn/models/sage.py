"""GraphSAGE (Hamilton, Ying and Leskovec, 2017) over all neighbours."""

from functools import partial
from typing import Any

from fullgnn.config.options import takes_options
from fullgnn.graph import Propagation
from fullgnn.models.stack import Stack, StackOptions
from fullgnn.nn import SAGEConv


class SAGE(Stack):
    """``num_layers`` ``SAGEConv`` layers with dropout on the input of each one and ReLU between them.

    Args:
        in_channels, out_channels: see ``Stack``; options: see ``StackOptions``.

    Raises:
        ConfigError: a width, depth or probability is out of range.
    """

    input_powers = (0, 1)

    @takes_options(StackOptions)
    def __init__(self, in_channels: int, out_channels: int, **options: Any):
        chosen = StackOptions(**options)
        super().__init__(
            partial(SAGEConv, bias=chosen.bias),
            in_channels,
            out_channels,
            chosen,
            propagation=Propagation("row", self_loops=False),
        )
