import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from fullgnn.errors import ConfigError
from fullgnn.reorder import slashburn


def csr(num_nodes: int, edges: list[tuple[int, int]]) -> sparse.csr_array:
    return nx.to_scipy_sparse_array(nx.from_edgelist(edges), nodelist=range(num_nodes), format="csr")


def test_two_rounds_by_hand() -> None:
    """Node 9 joins a star around 2, a triangle, a pair and a single node; each round removes one hub.

    Round 1 removes 9 and cuts off the triangle, the pair and the single node, in this order. Round 2 removes 2, the
    centre of the star: of the equal leaves, 0 becomes the giant component, and 1 and 3 are cut off and placed before
    the spokes of round 1. Round 3 removes 0.
    """
    everything = [(9, node) for node in (0, 1, 2, 3, 4, 5, 6, 7, 8, 10)]
    adj = csr(11, [*everything, (2, 0), (2, 1), (2, 3), (5, 7), (7, 8), (5, 8), (4, 6)])
    assert slashburn(adj, 0, hub_share=0.05).tolist() == [9, 2, 0, 1, 3, 5, 7, 8, 4, 6, 10]


def test_a_giant_component_smaller_than_k_stays_in_the_middle() -> None:
    """The hubs 8, 0 and 1 (degrees 6, 4, 3) leave single nodes; the first is the giant, too small for a round."""
    adj = csr(9, [(8, i) for i in range(6)] + [(0, 6), (0, 7), (0, 1), (1, 2)])
    assert slashburn(adj, 0, hub_share=0.3).tolist() == [8, 0, 1, 2, 3, 4, 5, 6, 7]


def test_star_of_cliques() -> None:
    """One hub joins cliques of 2, 3, 4 and 5 nodes: the larger a clique, the nearer to the front."""
    cliques = [[1, 2], [3, 4, 5], [6, 7, 8, 9], [10, 11, 12, 13, 14]]
    inside = [(a, b) for clique in cliques for a in clique for b in clique if a < b]
    order = slashburn(csr(15, inside + [(0, node) for node in range(1, 15)]), 0, hub_share=1 / 15)
    assert order[0] == 0
    assert order[-9:].tolist() == cliques[2] + cliques[1] + cliques[0]


def oracle(adj: sparse.csr_array, num_hubs: int) -> list[int]:
    """SlashBurn as the paper describes it, on Python sets."""
    graph = nx.from_scipy_sparse_array(adj)
    giant, front, back = set(graph), [], []
    while giant and len(giant) >= num_hubs:
        inside = graph.subgraph(giant)
        hubs = sorted(giant, key=lambda node: (-inside.degree(node), node))[:num_hubs]
        components = nx.connected_components(graph.subgraph(giant - set(hubs)))
        giant, *others = sorted(components, key=lambda nodes: (-len(nodes), min(nodes))) or [set()]
        front += hubs
        back = [node for nodes in others for node in sorted(nodes)] + back
    return front + sorted(giant) + back


@pytest.mark.parametrize("num_hubs", [1, 3, 20, 150])
@pytest.mark.parametrize("mean_degree", [0.5, 1.5, 4, 30])
def test_equals_the_oracle(mean_degree: float, num_hubs: int) -> None:
    num_nodes = 150
    graph = nx.fast_gnp_random_graph(num_nodes, mean_degree / num_nodes, seed=5)
    adj = nx.to_scipy_sparse_array(graph, format="csr")
    assert slashburn(adj, 0, hub_share=num_hubs / num_nodes).tolist() == oracle(adj, num_hubs)


def test_equals_the_oracle_on_a_graph_with_hubs() -> None:
    adj = nx.to_scipy_sparse_array(nx.barabasi_albert_graph(400, 2, seed=1), format="csr")
    assert slashburn(adj, 0).tolist() == oracle(adj, num_hubs=2)


@pytest.mark.parametrize("hub_share", [0, -0.1, 1.5])
def test_refuses_a_share_outside_0_1(hub_share: float) -> None:
    with pytest.raises(ConfigError, match="hub_share"):
        slashburn(sparse.csr_array(np.eye(3)), 0, hub_share=hub_share)
