"""Which parameters of a model are sharded, that is, have one row for each node of this rank.

A module names them in its ``Contract``, and creates them in ``place(node_id)``, when the rows of the rank are known;
see ``nn/node_embedding.py``. All other parameters are replicated: every rank holds the same bits.
"""

from typing import cast

import torch
from torch import Tensor

from fullgnn.nn.contract import PlacesRows, contract_of


def place_rows(model: torch.nn.Module, node_id: Tensor) -> None:
    """Create the sharded parameters of ``model`` for the rows with the original ids ``node_id`` (num_local_nodes,)."""
    for module in model.modules():
        if contract_of(module).sharded:
            cast(PlacesRows, module).place(node_id)


def sharded_names(model: torch.nn.Module) -> list[str]:
    """The names of the sharded parameters of ``model``, as ``named_parameters`` has them."""
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        for name in contract_of(module).sharded
    ]


def split_parameters(model: torch.nn.Module) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """The replicated and the sharded parameters of ``model``."""
    names = set(sharded_names(model))
    replicated: list[torch.nn.Parameter] = []
    sharded: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (sharded if name in names else replicated).append(parameter)
    return replicated, sharded
