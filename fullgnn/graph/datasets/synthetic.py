"""Random graphs with the sizes of well-known benchmarks and communities inside communities."""

from pathlib import Path

from fullgnn.errors import ConfigError
from fullgnn.graph.generate import check_size, hierarchical_sbm
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
    scale: float,
    degree_scale: float,
    global_share: float,
    feature_signal: float,
    label_noise: float,
    train_fraction: float,
    val_fraction: float,
    seed: int,
) -> Graph:
    """A hierarchical stochastic block model; one community per class.

    ``num_edges`` counts as benchmark tables do: both directions of every edge and one self-loop per node. The
    graph stores no self-loops, so it has ``num_edges - num_nodes`` entries at full size. ``scale`` multiplies
    the number of nodes at constant mean degree, ``degree_scale`` multiplies the mean degree.
    """
    if scale <= 0 or degree_scale <= 0:
        raise ConfigError(f"scale={scale:g} and degree_scale={degree_scale:g} must both be above 0")
    num_scaled, num_entries = scaled_sizes(num_nodes, num_edges, scale, degree_scale)
    check_size(name, num_scaled, num_entries, num_features, num_classes, scale)
    announce(f"{name}: {num_entries} non-zeros are generated", num_entries, ["generating"])
    graph = hierarchical_sbm(num_scaled, num_entries, num_classes, global_share, seed)
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


def scaled_sizes(num_nodes: int, num_edges: int, scale: float, degree_scale: float = 1.0) -> tuple[int, int]:
    """Nodes, and stored entries without self-loops, of a graph with these sizes; see :func:`load`."""
    return round(num_nodes * scale), 2 * round((num_edges - num_nodes) * scale * degree_scale / 2)
