"""The models that ``op=epoch`` trains: their keys in a run of ours, and the shapes of their weights."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

Shapes = list[tuple[int, int]]

HEADS = 8
"""Attention heads of the hidden layer, side by side in its columns; the last layer has one."""
HOPS = 2
"""Products with the features in SGC."""
LIGHT_LAYERS = 3
"""Products with the trainable vectors in LightGCN."""
WALK = 10
"""Steps of the random walk of APPNP."""
POWERS = 3
"""Powers of A, from 0, in N-GCN."""
DEPTH = 8
"""Layers of GCNII."""

NO_DROPOUT = ["model.dropout=0", "model.input_dropout=0"]
TWO_LAYERS = ["model.num_layers=2", *NO_DROPOUT]


@dataclass(frozen=True)
class BenchModel:
    """A model of which every method has the same weights."""

    keys: Callable[[int], list[str]]
    """Number of hidden columns -> keys of a run."""
    shapes: Callable[[list[int]], Shapes]
    """Widths (features, hidden, classes) -> shapes of the weight matrices, in the order of the model's parameters."""
    finds_links: bool = False
    """Whether it learns links from trainable vectors of the nodes, which have the same first values in every method."""


def _layered(model: str, hidden: int) -> list[str]:
    return [f"model={model}", *TWO_LAYERS, f"model.hidden_channels={hidden}"]


def _per_head(model: str, hidden: int) -> list[str]:
    per_head = [f"model.heads={HEADS}", f"model.hidden_channels={max(1, hidden // HEADS)}"]
    return [f"model={model}", *TWO_LAYERS, *per_head, "model.attention_dropout=0"]


def _layers(widths: list[int]) -> Shapes:
    return list(itertools.pairwise(widths))


def _twice(widths: list[int]) -> Shapes:
    """Two matrices of the same shape in each layer."""
    return [shape for shape in _layers(widths) for _ in range(2)]


def _gat_shapes(widths: list[int]) -> Shapes:
    """Each layer has a weight matrix, and the (heads, columns) attention parameters of sources and of targets."""
    features, hidden, classes = widths
    by_head = (HEADS, hidden // HEADS)
    return [(features, hidden), by_head, by_head, (hidden, classes), (1, classes), (1, classes)]


def _gatv2_shapes(widths: list[int]) -> Shapes:
    """Each layer has the (heads, columns) attention parameters, and a weight matrix for sources and one for targets."""
    features, hidden, classes = widths
    first, last = (features, hidden), (hidden, classes)
    return [(HEADS, hidden // HEADS), first, first, (1, classes), last, last]


def _gin_shapes(widths: list[int]) -> Shapes:
    """Each layer has the two matrices of its MLP."""
    return [shape for f, g in _layers(widths) for shape in ((f, g), (g, g))]


def _gcnii_shapes(widths: list[int]) -> Shapes:
    features, hidden, classes = widths
    return [(features, hidden), *[(hidden, hidden)] * DEPTH, (hidden, classes)]


def _ngcn_shapes(widths: list[int]) -> Shapes:
    features, hidden, classes = widths
    return [*[(features, hidden)] * POWERS, *[(hidden, classes)] * POWERS, (POWERS * classes, classes)]


MODELS = {
    "gcn": BenchModel(lambda hidden: _layered("gcn", hidden), _layers),
    "sage": BenchModel(lambda hidden: _layered("sage", hidden), _twice),
    "sage-max": BenchModel(lambda hidden: [*_layered("sage", hidden), "model.aggregation=max"], _twice),
    "gin": BenchModel(lambda hidden: _layered("gin", hidden), _gin_shapes),
    "gat": BenchModel(lambda hidden: _per_head("gat", hidden), _gat_shapes),
    "gatv2": BenchModel(lambda hidden: _per_head("gatv2", hidden), _gatv2_shapes),
    "sgc": BenchModel(lambda hidden: ["model=sgc", f"model.num_hops={HOPS}"], lambda widths: [(widths[0], widths[-1])]),
    "ngcn": BenchModel(
        lambda hidden: [
            *("model=ngcn", *NO_DROPOUT, f"model.hidden_channels={hidden}"),
            *(f"model.num_powers={POWERS}", "model.num_copies=1", "model.classifier=dense", "model.bias=false"),
        ],
        _ngcn_shapes,
    ),
    "appnp": BenchModel(lambda hidden: [*_layered("appnp", hidden), f"model.num_hops={WALK}"], _layers),
    "gcnii": BenchModel(
        lambda hidden: ["model=gcnii", *NO_DROPOUT, f"model.hidden_channels={hidden}", f"model.num_layers={DEPTH}"],
        _gcnii_shapes,
    ),
    "lightgcn": BenchModel(
        lambda hidden: ["model=lightgcn", f"model.num_layers={LIGHT_LAYERS}", f"task.channels={hidden}"],
        lambda widths: [],
        finds_links=True,
    ),
}
ATTENTION = ("gat", "gatv2")
"""The models whose hidden columns are those of ``HEADS`` heads."""
