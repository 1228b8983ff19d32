"""Graph isomorphism network (Xu et al., 2019)."""

from dataclasses import replace
from functools import partial
from typing import Any

from fullgnn.config.options import takes_options
from fullgnn.graph import Propagation
from fullgnn.models.stack import NORM_OF_ALL_ROWS, Stack, StackOptions
from fullgnn.nn import Contract, GINConv


class GIN(Stack):
    """``num_layers`` ``GINConv`` layers with dropout on the input of each one and ReLU between them.

    Args:
        eps: the first value of eps of every layer.
        train_eps: whether eps is a parameter.
        in_channels, out_channels: see ``Stack``; options: see ``StackOptions``, whose ``norm`` stands inside the MLP of
            every layer too.

    Raises:
        ConfigError: a width, depth or probability is out of range.
    """

    input_powers = (0, 1)

    @takes_options(StackOptions)
    def __init__(self, in_channels: int, out_channels: int, eps: float = 0.0, train_eps: bool = False, **options: Any):
        chosen = StackOptions(**options)
        conv = partial(GINConv, eps=eps, train_eps=train_eps, norm=chosen.norm, bias=chosen.bias)
        super().__init__(conv, in_channels, out_channels, chosen, propagation=Propagation("none", self_loops=False))

    def contract(self) -> Contract:
        """See ``Contract``. A norm over all nodes inside the last layer needs all rows."""
        contract = super().contract()
        disables = {**contract.disables, "loss_rows_only": NORM_OF_ALL_ROWS}
        return replace(contract, restricts_output=self._options.norm != "batch", disables=disables)
