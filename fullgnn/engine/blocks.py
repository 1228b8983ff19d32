"""What the layers of a model ask of their blocks, and the blocks that its ``forward`` reads."""

import torch
from torch import Tensor

from fullgnn.config import OptimizationConfig
from fullgnn.nn.contract import contract_of, contracts_of
from fullgnn.schemes.base import Needs, ShardedGraph


def needs_of(model: torch.nn.Module, optimizations: OptimizationConfig) -> Needs:
    """Collect what the modules of ``model`` ask of their blocks, each thing once, in the order of ``model.modules()``.

    Every rank builds its blocks in this order, and some of them by collectives.
    """
    contracts = [*contracts_of(model)]
    return Needs(
        propagations=tuple(dict.fromkeys(one for contract in contracts for one in contract.propagations)),
        loss_rows=bool(optimizations.loss_rows_only),  # an ``auto`` that is not decided yet counts as true
        edges=tuple(dict.fromkeys(one for contract in contracts for one in contract.edge_sets)),
        fold=optimizations.fold_normalization,
        joins_rows=any(contract.joins_rows for contract in contracts),
        num_blocks=contract_of(model).num_blocks or 1,  # a layer, which is no model, reads one
    )


def all_logits(model: torch.nn.Module, graph: ShardedGraph) -> Tensor:
    """Compute the (num_local_nodes, num_classes) logits of all rows of this rank."""
    return model(graph.features, graph.blocks)


def loss_logits(model: torch.nn.Module, graph: ShardedGraph) -> Tensor:
    """Compute the (num_local_train, num_classes) logits of the rows with loss, and if possible of no other rows."""
    if graph.loss_block is None:
        return all_logits(model, graph).index_select(0, graph.train_index)
    return model(graph.features, graph.loss_blocks)
