"""Which blocks the layers of a model read, and what they need of them."""

import torch
from torch import Tensor

from fullgnn.config import OptimizationConfig
from fullgnn.errors import ConfigError
from fullgnn.graph import EdgeSet, Propagation
from fullgnn.schemes.base import Needs, ShardedGraph


def needs_of(model: torch.nn.Module, optimizations: OptimizationConfig) -> Needs:
    """Collect what the layers of ``model`` state that they need of their blocks.

    A layer that multiplies by a matrix of the graph names it in an attribute ``propagation``. A layer that reads edges
    one by one names them in an attribute ``edge_set``.
    """
    layers = list(model.modules())
    propagations = (getattr(layer, "propagation", None) for layer in layers)
    edges = (getattr(layer, "edge_set", None) for layer in layers)
    return Needs(
        propagations=tuple(dict.fromkeys(one for one in propagations if isinstance(one, Propagation))),
        loss_rows=bool(optimizations.loss_rows_only),  # an ``auto`` that is not decided yet counts as true
        edges=tuple(dict.fromkeys(one for one in edges if isinstance(one, EdgeSet))),
        fold=optimizations.fold_normalization,
    )


def num_blocks(model: torch.nn.Module) -> int:
    """How many blocks the ``forward`` of ``model`` reads.

    Raises:
        ConfigError: the model does not say it.
    """
    found = getattr(model, "num_blocks", None)
    if not isinstance(found, int) or found < 1:
        raise ConfigError(
            f"{type(model).__name__}.num_blocks is {found}: a model states in this attribute how many blocks its"
            " forward(x, blocks) reads, at least 1"
        )
    return found


def num_row_blocks(model: torch.nn.Module) -> int:
    """How many of these blocks, the first ones, only name the rows: the model reads no neighbours through them."""
    return int(getattr(model, "num_row_blocks", 0))


def input_propagation(model: torch.nn.Module) -> Propagation | None:
    """A, if ``model`` uses its input X only as products A^k @ X; otherwise None."""
    found = getattr(model, "input_propagation", None)
    assert found is None or isinstance(found, Propagation), found
    return found


def input_powers(model: torch.nn.Module) -> tuple[int, ...]:
    """The powers k, of which it uses A^k @ X, if ``model`` has an ``input_propagation``."""
    return tuple(getattr(model, "input_powers", (1,)))


def all_logits(model: torch.nn.Module, graph: ShardedGraph) -> Tensor:
    """Compute the (num_local_nodes, num_classes) logits of all rows of this rank."""
    return model(graph.features, [graph.block] * num_blocks(model))


def loss_logits(model: torch.nn.Module, graph: ShardedGraph) -> Tensor:
    """Compute the (num_local_train, num_classes) logits of the rows with loss, and if possible of no other rows."""
    if graph.loss_block is None:
        return all_logits(model, graph).index_select(0, graph.train_index)
    return model(graph.features, [*[graph.block] * (num_blocks(model) - 1), graph.loss_block])
