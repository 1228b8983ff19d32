"""SlashBurn: puts hubs at the front, and the nodes that only hubs connect to the rest at the back."""

import math

import numpy as np
from scipy import sparse

from fullgnn.errors import ConfigError
from fullgnn.partition.pattern import undirected


def slashburn(adj: sparse.csr_array, seed: int, hub_share: float = 0.005) -> np.ndarray:
    """The SlashBurn order (Lim, Kang and Faloutsos, "SlashBurn: Graph Compression and Mining beyond Caveman
    Communities", 2014).

    Each round removes the ``k = ceil(hub_share * n)`` nodes of highest degree from the giant component and puts them at
    the front, behind those of earlier rounds, in descending degree. The removal cuts off nodes (the components other
    than the largest), which go to the back, before those of earlier rounds, larger components first. The rounds end
    when the giant component has fewer than ``k`` nodes; these stay in the middle, in their order.

    The order is deterministic: ties of degree or component size go to the smallest id, so ``seed`` is not used.

    Args:
        hub_share: fraction of all nodes that one round removes as hubs, in (0, 1].
    """
    if not 0 < hub_share <= 1:
        raise ConfigError(f"reorder.method.hub_share is {hub_share}: give a fraction above 0 and at most 1.")
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.reorder._components import label_components

    num_nodes = adj.shape[0]
    pattern = undirected(adj)
    num_hubs = math.ceil(hub_share * num_nodes)
    degree = np.diff(pattern.indptr).astype(np.int64)  # inside the giant component, kept up to date
    component = np.zeros(num_nodes, dtype=pattern.indices.dtype)
    giant = np.arange(num_nodes)  # ascending, as are all its subsets below
    front: list[np.ndarray] = []
    back: list[np.ndarray] = []
    while giant.size >= num_hubs > 0:
        # One integer per node orders by descending degree, then by id; ``% num_nodes`` recovers the id.
        sort_key = giant - degree[giant] * num_nodes
        hubs = np.sort(np.partition(sort_key, num_hubs - 1)[:num_hubs]) % num_nodes
        front.append(hubs)

        degree -= np.bincount(pattern[hubs].indices, minlength=num_nodes)
        component[hubs] = -1
        giant = giant[component[giant] >= 0]
        if giant.size == 0:
            break
        label_components(pattern.indptr, pattern.indices, giant, degree, component)

        label = component[giant]
        size = np.bincount(label)
        largest = size.argmax()  # the first of equals, hence the one with the smallest id
        spokes = giant[label != largest]
        by_size = np.lexsort((component[spokes], -size[component[spokes]]))
        back.append(spokes[by_size])
        component[spokes] = -1
        giant = giant[label == largest]
    return np.concatenate([*front, giant, *reversed(back)])
