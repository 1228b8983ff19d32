"""Graph convolutional network (Kipf and Welling, 2017)."""

from functools import partial
from typing import Any

from fullgnn.config.options import takes_options
from fullgnn.graph import Propagation
from fullgnn.models.stack import Stack, StackOptions
from fullgnn.nn import GCNConv


class GCN(Stack):
    """``num_layers`` graph convolutions with dropout on the input of each one and ReLU between them.

    Args:
        normalization, self_loops: the matrix that every layer multiplies by, see ``Propagation``.
        in_channels, out_channels: see ``Stack``; options: see ``StackOptions``.

    Raises:
        ConfigError: a width, depth or probability is out of range.
    """

    @takes_options(StackOptions)
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        normalization: str = "sym",
        self_loops: bool = True,
        **options: Any,
    ):
        chosen = StackOptions(**options)
        conv = partial(GCNConv, normalization=normalization, self_loops=self_loops, bias=chosen.bias)
        super().__init__(conv, in_channels, out_channels, chosen, propagation=Propagation(normalization, self_loops))
