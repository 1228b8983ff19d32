"""The sizes of a generated graph, asked before it is generated."""

from fullgnn.graph.checks import check_num_nodes
from fullgnn.telemetry.machine import check_fits


def check_size(name: str, num_nodes: int, num_entries: int, num_features: int) -> None:
    """Refuse a graph with more nodes than any graph may have, or whose arrays do not fit into this machine's memory.

    Raises:
        DataError: one line with the numbers.
    """
    check_num_nodes(num_nodes, name)
    num_bytes = 4 * num_nodes * num_features + 4 * num_entries + 8 * num_nodes
    what = f"{name} with {num_nodes} nodes, {num_entries} non-zeros and {num_features} features"
    check_fits(num_bytes, what, "choose smaller sizes, or take a machine with more memory")
