"""What is noticed while a graph is made: counted once, by any constructor, kept in files, and safe to read."""

from dataclasses import replace
from types import SimpleNamespace

import networkx
import numpy as np
import pytest
import torch
from scipy.sparse import coo_array, csc_array, csr_array, dia_array

from fullgnn.errors import DataError
from fullgnn.graph import Graph, load_dataset
from fullgnn.graph.remarks import SENTENCES, noted, sentences
from fullgnn.storage.cache import Cache

ARCS = np.array([[0, 0, 0, 1, 2, 2, 2], [1, 1, 1, 2, 0, 0, 3]])  # 3 of them repeat another one
WEIGHT = np.array([1.0, 2.0, -3.0, 0.0, 5.0, 6.0, 7.0])  # 0 -> 1 cancels, and 1 -> 2 has weight 0


def of_scipy(weighted: bool, kind: type) -> Graph:
    return Graph.from_scipy(kind(coo_array((WEIGHT if weighted else np.ones(7, bool), ARCS[::-1]), shape=(4, 4))))


def of_multigraph(weighted: bool) -> Graph:
    g = networkx.MultiDiGraph()
    g.add_nodes_from(range(4))
    g.add_weighted_edges_from((int(u), int(v), float(w)) for u, v, w in zip(*ARCS, WEIGHT))
    return Graph.from_networkx(g, weight="weight" if weighted else None)


def of_pyg(weighted: bool) -> Graph:
    data = SimpleNamespace(edge_index=torch.tensor(ARCS), num_nodes=4, edge_weight=WEIGHT if weighted else None)
    return Graph.from_pyg(data)


MAKERS = {
    "from_scipy": lambda weighted: of_scipy(weighted, coo_array),
    "from_edge_index": lambda weighted: Graph.from_edge_index(
        ARCS, num_nodes=4, edge_weight=WEIGHT if weighted else None
    ),
    "from_networkx": of_multigraph,
    "from_pyg": of_pyg,
}


@pytest.mark.parametrize("maker", MAKERS)
def test_every_constructor_counts_merged_and_dropped_arcs(maker: str) -> None:
    assert MAKERS[maker](False).remarks == {"merged_arcs": 3}
    weighted = MAKERS[maker](True)
    assert weighted.remarks == {"merged_arcs": 3, "zero_arcs": 2} and weighted.num_edges == 2


def test_a_matrix_with_repeated_entries_in_any_format() -> None:
    indptr, indices, data = np.array([0, 3, 4]), np.array([1, 1, 0, 0]), np.array([1.0, 1.0, 2.0, 0.0])
    for kind in (csr_array, csc_array):
        matrix = kind((data, indices, indptr), shape=(2, 2))
        assert Graph.from_scipy(matrix).remarks == {"merged_arcs": 1, "zero_arcs": 1}
        assert matrix.nnz == 4  # the caller's matrix is as it was
    for matrix in (dia_array(np.eye(3)), csr_array(np.eye(3)).tobsr(), csr_array(np.eye(3)).tolil()):
        assert Graph.from_scipy(matrix).remarks == {}


def test_an_undirected_multigraph_with_self_loops() -> None:
    g = networkx.MultiGraph([(0, 1), (0, 1), (1, 1), (1, 2)])
    graph = Graph.from_networkx(g)
    assert graph.num_edges == 5 and graph.remarks == {"merged_arcs": 2}  # the second 0 - 1, in both directions
    assert Graph.from_networkx(networkx.Graph(g)).remarks == {}


def test_plain_graphs_have_no_remark(fields) -> None:
    assert Graph.from_scipy(csr_array(np.ones((3, 3)))).remarks == {}
    assert Graph.from_edge_index([[0], [1]], **fields(9)).remarks == {}  # nodes without an edge, but with features


def test_symmetrize_counts_pairs_with_two_weights() -> None:
    dense = np.array([[5, 1, 2, 0], [3, 0, 4, 1], [2, -9, 0, 0], [0, 0, 0, 0.5]])
    graph = Graph.from_scipy(csr_array(dense)).symmetrized()
    assert graph.remarks == {"unequal_weights": 2}  # 0 - 1 and 1 - 2; of 1 - 3 one direction is stored
    both = (dense != 0) & (dense.T != 0)
    expected = np.where(both, np.maximum(dense, dense.T), dense + dense.T * (dense == 0))
    np.testing.assert_array_equal(graph.adjacency().toarray(), expected)
    assert Graph.from_edge_index(ARCS, num_nodes=4).symmetrized().remarks == {"merged_arcs": 3}


def test_cold_users_and_items_follow_the_edges() -> None:
    arcs = np.array([[0, 1, 1], [4, 4, 5]])  # users 0 to 3, items 4 to 6
    once = Graph.from_edge_index(arcs, num_nodes=7, num_users=4, test_links=[[3], [6]])
    assert once.remarks == once.symmetrized().remarks == {"cold_users": 2, "cold_items": 1}
    complete = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3, num_users=2)
    assert complete.remarks == {}
    fewer = replace(complete, indptr=[0, 0, 0, 1], indices=[0])  # as by holding out a pair
    assert fewer.remarks == {"cold_users": 1}
    assert replace(fewer, indptr=complete.indptr, indices=complete.indices).remarks == {}


def test_ids_far_beyond_their_number() -> None:
    arcs = np.array([[0, 5], [5, 0]])
    assert Graph.from_edge_index(arcs, num_nodes=1000).remarks == {"unused_ids": 998}
    assert Graph.from_edge_index(arcs, num_nodes=1000, test_links=[[7], [8]]).remarks == {"unused_ids": 996}
    assert Graph.from_edge_index(arcs, num_nodes=6).remarks == {"unused_ids": 4}
    assert Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=4).remarks == {}  # a half


def test_interactions_with_a_large_id_say_so(compose_dataset, tmp_path) -> None:
    (tmp_path / "train.txt").write_text("0 1 2 2\n1 1 3\n2 2\n1000000 4\n3 4\n4 1\n")
    (tmp_path / "test.txt").write_text("0 1 3\n1 4 4\n")
    paths = dict(train_path=str(tmp_path / "train.txt"), test_path=str(tmp_path / "test.txt"))
    graph = load_dataset(compose_dataset("interactions", **paths))
    assert graph.remarks == {
        "merged_interactions": 2,  # 0-2 in training, 1-4 in testing
        "known_test_interactions": 1,  # 0-1
        "cold_users": 1_000_001 - 6,
        "cold_items": 1,  # item 0
        "unused_ids": 1_000_001 - 6 + 1,
    }


def test_remarks_are_in_a_saved_graph_and_in_the_cache(compose_dataset, tmp_path) -> None:
    graph = replace(Graph.from_edge_index(ARCS, num_nodes=4), name="mine")
    graph.save(tmp_path / "graph.npz")
    node = compose_dataset("npz", path=str(tmp_path / "graph.npz"), name="mine")
    assert load_dataset(node).remarks == graph.remarks == {"merged_arcs": 3}
    from fullgnn.graph.datasets import load_cached

    cache = Cache(str(tmp_path / "cache"))
    assert [load_cached(node, cache).remarks for _ in range(2)] == [{"merged_arcs": 3}] * 2


@pytest.mark.parametrize(
    "strange",
    [
        np.array("rm -rf"),
        np.array(-4),
        np.array([1, 2]),
        np.array(2.5),
        np.array(True),
        np.array(2**63, np.uint64),
        np.empty((0, 3), int),
    ],
)
def test_remarks_of_a_strange_file_are_left_out(compose_dataset, tmp_path, strange) -> None:
    graph = Graph.from_edge_index(ARCS, num_nodes=4)
    graph.save(tmp_path / "good.npz")
    with np.load(tmp_path / "good.npz") as file:
        arrays = {**file, "remark_merged_arcs": strange, "remark_of_another_version": np.array(3)}
    np.savez(tmp_path / "strange.npz", **arrays)
    read = load_dataset(compose_dataset("npz", path=str(tmp_path / "strange.npz")))
    assert read.remarks == {} and read.num_edges == graph.num_edges


def test_an_unknown_remark_is_refused() -> None:
    for remarks in ({"mine": 3}, {"merged_arcs": -1}, [3], {"merged_arcs": "many"}):
        with pytest.raises(DataError, match="remarks are counts by name"):
            replace(Graph.from_edge_index(ARCS, num_nodes=4), remarks=remarks)
    assert noted({"merged_arcs": 2, "zero_arcs": 1}, {"zero_arcs": 0}) == {"merged_arcs": 2}
    for name in (name for name, sentence in SENTENCES.items() if sentence):
        (told,) = sentences({name: 3})
        assert "\n" not in told and "3" in told and "{" not in told
