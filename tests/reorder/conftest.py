"""Tiny graphs that every reordering must survive, and two with a structure to find."""

import numpy as np
import pytest
from scipy import sparse


def graph(num_nodes: int, edges: list[tuple[int, int]], directed: bool = False) -> sparse.csr_array:
    """Weighted CSR adjacency of an edge list; both directions are stored unless ``directed``."""
    row, column = np.array(edges, dtype=np.int32).reshape(-1, 2).T
    weight = np.arange(1, row.size + 1, dtype=np.float32)
    adj = sparse.coo_array((weight, (row, column)), shape=(num_nodes, num_nodes)).tocsr()
    return adj if directed else adj.maximum(adj.T).tocsr()


TINY = {
    "no node": graph(0, []),
    "one node": graph(1, []),
    "one self-loop": graph(1, [(0, 0)]),
    "no edge": graph(5, []),
    "only self-loops": graph(4, [(i, i) for i in range(4)]),
    "path": graph(6, [(i, i + 1) for i in range(5)]),
    "star": graph(7, [(3, i) for i in (0, 1, 2, 4, 5, 6)]),
    "isolated nodes": graph(8, [(1, 4), (4, 6)]),
    "path with self-loops": graph(5, [(i, i + 1) for i in range(4)] + [(2, 2), (4, 4)]),
    "directed cycle": graph(6, [(i, (i + 1) % 6) for i in range(6)], directed=True),
    "directed star": graph(6, [(i, 5) for i in range(5)], directed=True),
    "two cliques": graph(8, [(i + s, j + s) for s in (0, 4) for i in range(4) for j in range(i)]),
    "csr_matrix": sparse.csr_matrix(graph(6, [(0, 5), (5, 2), (1, 3)])),
}


@pytest.fixture(params=TINY.values(), ids=TINY.keys())
def tiny_graph(request: pytest.FixtureRequest) -> sparse.csr_array:
    return request.param


@pytest.fixture
def grid() -> sparse.csr_array:
    """A 30 x 30 grid with shuffled ids: bandwidth 30 in its natural order."""
    path = graph(30, [(i, i + 1) for i in range(29)])
    adj = sparse.kron(path, sparse.eye_array(30)) + sparse.kron(sparse.eye_array(30), path)
    perm = np.random.default_rng(0).permutation(900)
    return adj.tocsr()[perm][:, perm]


@pytest.fixture
def planted() -> sparse.csr_array:
    """20 communities of 50 nodes with shuffled ids; a node has about 20 neighbours inside and 2 outside."""
    rng = np.random.default_rng(0)
    community = rng.permutation(np.arange(1000) % 20)
    share = np.where(community[:, None] == community, 0.4, 0.002)
    upper = np.triu(rng.random((1000, 1000)) < share, 1)
    return sparse.csr_array((upper | upper.T).astype(np.float32))
