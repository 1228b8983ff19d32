"""Weights of PyTorch Geometric's layers and models in ours, and back. PyG itself is not needed.

    from_pyg(model, theirs.state_dict())                 # theirs: torch_geometric.nn.GCN, GraphSAGE, GAT or GIN
    from_pyg(lightgcn, theirs.state_dict())              # on several ranks: each takes the rows of its own nodes
    from_pyg(model.layers[0].conv, conv.state_dict())    # conv: GCNConv, SAGEConv, GATConv, GATv2Conv, GINConv ...
    theirs.load_state_dict(to_pyg(model))

PyG stores the matrix of a dense layer transposed, (out_channels, in_channels), as ``torch.nn.Linear`` does. ``GINConv``
of PyG takes any MLP: here it is ``torch.nn.Sequential(Linear, ReLU, Linear)``, with a ``BatchNorm1d`` before the ReLU
if there is a norm; in PyG's model ``GIN`` it is PyG's own ``MLP``.
"""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor

from fullgnn.errors import DataError, UnsupportedError
from fullgnn.models.lightgcn import LightGCN
from fullgnn.models.sgc import SGC
from fullgnn.models.stack import Stack
from fullgnn.nn import BatchNorm, GATConv, GATv2Conv, GCN2Conv, GCNConv, GINConv, Linear, SAGEConv

_COUNTER = "num_batches_tracked"
"""What torch's batch norm counts, and ours does not."""


class _Pair(NamedTuple):
    """The names of one tensor, and the shape that PyG gives it."""

    ours: str
    theirs: str
    shape: tuple[int, ...]
    transposed: bool = False

    def within(self, ours: str, theirs: str) -> "_Pair":
        """The same tensor of a module that has these prefixes."""
        return self._replace(ours=ours + self.ours, theirs=theirs + self.theirs)


@torch.no_grad()
def from_pyg(module: torch.nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy the ``state_dict`` of a layer or model of PyG into ``module``, its counterpart.

    ``LightGCN`` takes it after its rows have been placed, as they are in a run before its first epoch.

    Raises:
        UnsupportedError: ``module`` has no counterpart in PyG.
        DataError: a weight is missing or left over, or has another shape.
    """
    if isinstance(module, LightGCN):
        _take_vectors(module, state)
        return
    ours, name, left = module.state_dict(), type(module).__name__, set(state)
    for pair in _pairs(module):
        if pair.theirs not in state:
            raise DataError(f"the weights of PyG lack {pair.theirs}: build both {name} with the same options")
        value = state[pair.theirs]
        if tuple(value.shape) != pair.shape:
            shapes = f"{tuple(value.shape)} in PyG and would be {pair.shape} here"
            raise DataError(f"{pair.theirs} is {shapes}: build both {name} with the same widths")
        ours[pair.ours].copy_((value.T if pair.transposed else value).reshape(ours[pair.ours].shape))
        left.remove(pair.theirs)
    unused = [key for key in state if key in left and not key.endswith(_COUNTER)]
    if unused:
        raise DataError(f"the weights of PyG have {unused[0]} too: build both {name} with the same options")


def to_pyg(module: torch.nn.Module) -> dict[str, Tensor]:
    """The ``state_dict`` of the layer or model of PyG whose counterpart is ``module``.

    Raises:
        UnsupportedError: ``module`` has no counterpart in PyG, or is a ``LightGCN`` of which this rank has some rows.
    """
    if isinstance(module, LightGCN):
        return _all_vectors(module)
    ours, theirs = module.state_dict(), dict[str, Tensor]()
    for pair in _pairs(module):
        value = ours[pair.ours]
        theirs[pair.theirs] = (value.T if pair.transposed else value).reshape(pair.shape).clone()
        if pair.theirs.endswith("running_var"):
            theirs[pair.theirs.replace("running_var", _COUNTER)] = torch.tensor(0)
    return theirs


def _take_vectors(module: LightGCN, state: Mapping[str, Tensor]) -> None:
    weight, node_id = module.embedding.weight, module.embedding.node_id
    assert node_id is not None, "the rows are placed before weights are loaded"
    if state["embedding.weight"].shape[1] != weight.shape[1]:
        shapes = f"{state['embedding.weight'].shape[1]} columns in PyG and would have {weight.shape[1]} here"
        raise DataError(f"embedding.weight has {shapes}: build both LightGCN with the same widths")
    wanted = _factors(module)
    if state["alpha"].shape != wanted.shape or not torch.allclose(state["alpha"].to(wanted), wanted):
        raise DataError(
            f"alpha of PyG is {state['alpha'].tolist()} and would be {wanted.tolist()} here: a mean of layers"
        )
    weight.copy_(state["embedding.weight"].to(weight.device).index_select(0, node_id))


def _all_vectors(module: LightGCN) -> dict[str, Tensor]:
    weight, node_id = module.embedding.weight.detach(), module.embedding.node_id
    assert node_id is not None, "the rows are placed before weights are read"
    if len(node_id) and int(node_id.max()) >= len(node_id):
        raise UnsupportedError(
            "this rank has the vectors of some nodes alone: gather them with scheme.gather(model.embedding.weight)"
        )
    return {"alpha": _factors(module), "embedding.weight": weight[node_id.argsort()].clone()}


def _factors(module: LightGCN) -> Tensor:
    """(L + 1,) factors of the layers in their mean."""
    return torch.full((module.num_layers + 1,), 1 / (module.num_layers + 1))


def _pairs(module: torch.nn.Module, of_model: bool = False) -> Iterator[_Pair]:
    """The tensors of ``module``.

    Args:
        of_model: whether it is a layer of a model of PyG.
    """
    for ours, theirs in _names(module, of_model):
        part = attrgetter(ours)(module)
        if isinstance(part, torch.nn.Module):
            yield from (pair.within(f"{ours}.", f"{theirs}.") for pair in _pairs(part, isinstance(module, Stack)))
        elif part is not None:
            transposed = ours == "weight" and isinstance(module, (Linear, GATConv))
            shape = tuple(reversed(part.shape) if transposed else part.shape)
            yield _Pair(ours, theirs, (1, *shape) if ours in _WITH_ONE_ROW else shape, transposed)


_WITH_ONE_ROW = ("att_source", "att_target", "att_vector", "eps")
"""Tensors to whose shape PyG adds a first dimension."""

_NAMES: dict[type[torch.nn.Module], dict[str, str]] = {
    Linear: {"weight": "weight", "bias": "bias"},
    GCNConv: {"linear": "lin", "bias": "bias"},
    GATConv: {"weight": "lin.weight", "att_source": "att_src", "att_target": "att_dst", "bias": "bias"},
    GATv2Conv: {"source": "lin_l", "target": "lin_r", "att_vector": "att", "bias": "bias"},
    GCN2Conv: {"weight": "weight1", "initial_weight": "weight2"},
    BatchNorm: {name: name for name in ("weight", "bias", "running_mean", "running_var")},
    SGC: {"linear": "lin"},
}
"""The tensors and the modules with tensors that a module has, and what PyG calls them."""


def _names(module: torch.nn.Module, of_model: bool) -> Iterator[tuple[str, str]]:
    """Our names and those of PyG, of tensors and modules in ``module``."""
    if isinstance(module, SAGEConv):
        if isinstance(module.neighbors, Linear):
            yield "neighbors", "lin_l"
        else:
            yield from (("neighbors.linear", "lin_l"), ("neighbors.bias", "lin_l.bias"))
        yield "root", "lin_r"
    elif isinstance(module, GINConv):
        first, norm, second = (
            ("lins.0", "norms.0.module", "lins.1") if of_model else ("0", "1", "3" if module.norm else "2")
        )
        yield from (("eps", "eps"), ("first", f"nn.{first}"), ("norm", f"nn.{norm}"), ("second", f"nn.{second}"))
    elif isinstance(module, Stack) and module.embedding is None:
        for number, layer in enumerate(module.layers):
            yield from (
                (f"layers.{number}.conv", f"convs.{number}"),
                (f"layers.{number}.norm", f"norms.{number}.module"),
            )
            if layer.skip is not None:
                raise UnsupportedError("PyG's models have no residual connections: leave out model.residual")
        yield "joined", "lin"
    else:
        names = next((names for kind, names in _NAMES.items() if isinstance(module, kind)), None)
        if names is None:
            raise UnsupportedError(
                f"{type(module).__name__} has no counterpart in PyG that it could share weights with"
            )
        yield from names.items()
