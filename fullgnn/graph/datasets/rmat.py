"""Random directed graphs with the skew of the web and of social networks (R-MAT)."""

from pathlib import Path

from fullgnn.errors import ConfigError
from fullgnn.graph.generate import check_size, rmat
from fullgnn.graph.graph import Graph
from fullgnn.graph.node_data import node_data
from fullgnn.telemetry.log import announce


def files() -> list[Path]:
    """None: the graph is generated."""
    return []


def load(
    name: str,
    num_nodes: int,
    num_edges: int,
    num_features: int,
    num_classes: int,
    a: float,
    b: float,
    c: float,
    feature_signal: float,
    label_noise: float,
    train_fraction: float,
    val_fraction: float,
    seed: int,
    scale: float = 1.0,
) -> Graph:
    """An R-MAT graph of exactly ``num_edges`` directed arcs, no self-loops; a class is a range of unshuffled ids.

    ``scale`` multiplies the numbers of nodes and arcs.
    """
    if not scale > 0:
        raise ConfigError(f"scale={scale:g} must be above 0")
    num_nodes, num_edges = round(num_nodes * scale), round(num_edges * scale)
    check_size(name, num_nodes, num_edges, num_features, num_classes, scale)
    announce(f"{name}: {num_edges} arcs are generated", num_edges, ["generating=rmat"])
    graph = rmat(num_nodes, num_edges, num_classes, a, b, c, seed)
    data = node_data(
        graph.groups[0],
        num_features,
        num_classes,
        feature_signal,
        label_noise,
        train_fraction,
        val_fraction,
        seed,
    )
    return Graph(graph.indptr, graph.indices, name=name, **data)
