"""METIS graphs: the examples of its manual, and graphs that are written here."""

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fullgnn.errors import DataError
from fullgnn.graph import Graph, dataset_lacks, load_dataset
from fullgnn.graph.datasets import words

PLAIN = "7 11\n5 3 2\n1 3 4\n5 4 2 1\n2 3 6 7\n1 3 6\n5 4 7\n6 4\n"  # figure 2 of the manual
EDGES = {(1, 2): 1, (1, 3): 2, (1, 5): 1, (2, 3): 2, (2, 4): 1, (3, 4): 2, (3, 5): 3, (4, 6): 2, (4, 7): 5}
EDGES |= {(5, 6): 2, (6, 7): 6}
WEIGHTED = "7 11 001\n5 1 3 2 2 1\n1 1 3 2 4 1\n5 3 4 2 2 2 1 2\n2 1 3 2 6 2 7 5\n1 1 3 3 6 2\n5 2 4 2 7 6\n6 6 4 5\n"


@pytest.fixture
def load(load_text: Callable) -> Callable[..., Graph]:
    return partial(load_text, "metis_graph", "tiny.graph")


def dense(edges: dict[tuple[int, int], float], num_nodes: int = 7) -> np.ndarray:
    adj = np.zeros((num_nodes, num_nodes))
    for (u, v), value in edges.items():
        adj[u - 1, v - 1] = adj[v - 1, u - 1] = value
    return adj


def with_numbers(text: str, numbers: str, fmt: str) -> str:
    """The same graph with ``numbers`` at the start of the line of each node."""
    _, *lines = text.splitlines()
    return "\n".join([f"7 11 {fmt}", *(f"{numbers} {line}" for line in lines)]) + "\n"


def test_the_examples_of_the_manual(load: Callable[..., Graph]) -> None:
    graph = load(f"% a comment\n%\n{PLAIN}")
    np.testing.assert_array_equal(graph.adjacency().toarray(), dense(EDGES) > 0)
    assert graph.weight is None and graph.node_names is None and graph.name == "tiny" and graph.remarks == {}
    np.testing.assert_array_equal(load(WEIGHTED).adjacency().toarray(), dense(EDGES))
    np.testing.assert_array_equal(load(WEIGHTED.replace("001", "1")).adjacency().toarray(), dense(EDGES))


@pytest.mark.parametrize(
    ("text", "numbers", "fmt", "expected"),
    [
        (PLAIN, "9", "010", dense(EDGES) > 0),
        (PLAIN, "9 8 7", "10 3", dense(EDGES) > 0),
        (PLAIN, "4", "100", dense(EDGES) > 0),
        (WEIGHTED, "4 9 8", "111 2", dense(EDGES)),
        (WEIGHTED, "9", "011", dense(EDGES)),
        (WEIGHTED, "4", "101", dense(EDGES)),
    ],
)
def test_sizes_and_weights_of_nodes_are_passed_over(
    load: Callable[..., Graph], text: str, numbers: str, fmt: str, expected: np.ndarray
) -> None:
    graph = load(with_numbers(text, numbers, fmt))
    np.testing.assert_array_equal(graph.adjacency().toarray(), expected)
    assert graph.remarks == {"unread_node_weights": 7}


def test_an_empty_line_is_a_node_without_neighbors(load: Callable[..., Graph]) -> None:
    expected = dense({(1, 3): 1}, 4)
    for text in ("4 1\n3\n\n1\n\n", "4 1\n3\n\n% c\n1\n", "4 1\n3\n  \n1\n\n\n\n", "4 1\r\n3\r\n\r\n1\r\n\r\n"):
        np.testing.assert_array_equal(load(text).adjacency().toarray(), expected)
    assert load("3 0\n\n\n\n").num_edges == 0


@pytest.mark.parametrize("seed", range(3))
def test_any_cut_of_the_file_gives_the_same_graph(
    seed: int, tmp_path: Path, compose_dataset: Callable, monkeypatch
) -> None:
    rng = np.random.default_rng(seed)
    half = np.triu(np.where(rng.random((60, 60)) < 0.03, rng.integers(1, 99, (60, 60)), 0), 1)
    adj = half + half.T
    lines = [" ".join(f"{v + 1} {row[v]}" for v in np.flatnonzero(row)) for row in adj]
    text = "\n".join([f"60 {np.count_nonzero(half)} 1", *lines]) + "\n"
    monkeypatch.setattr(words, "CHUNK", int(rng.integers(3, 99)))
    (tmp_path / "cut.graph.gz").write_bytes(gzip.compress(text.encode()))
    node = compose_dataset("metis_graph", path=str(tmp_path / "cut.graph.gz"))
    graph = load_dataset(node)
    np.testing.assert_array_equal(graph.adjacency().toarray(), adj)
    assert graph.name == "cut" and dataset_lacks(node) == ["labels", "train_mask"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "tiny.graph is empty"),
        ("% c\n", "tiny.graph is empty"),
        ("\n" + PLAIN, "line 1 must have the numbers of nodes and edges"),
        (PLAIN.replace("7 11", "7"), "line 1 must have the numbers of nodes and edges"),
        (PLAIN.replace("7 11", "7 11 2"), "line 1 has fmt 2, and its three digits are 0 or 1"),
        (PLAIN.replace("7 11", "7 11 0 2"), "line 1 has ncon 2 and fmt 000"),
        (PLAIN.replace("7 11", "0 11"), "line 1 has 0 nodes"),
        (PLAIN.replace("7 11", "8 11 1"), "line 2 has 3 numbers, and each neighbor has a weight behind it"),
        (PLAIN.replace("7 11", "7 11 10 9"), "line 2 has 3 numbers, and 9 of the node itself come first"),
        (PLAIN.replace("7 11", "9 11"), "announces 9 nodes, and 7 have a line"),
        (PLAIN.replace("7 11", "6 11"), "line 8 follows those of the 6 nodes"),
        (PLAIN.replace("7 11", "7 12"), "announces 12 edges, and the lines have 22 neighbors, not 24"),
        (PLAIN.replace("6 4\n", "6 8\n"), "line 8 has the neighbor 8, and nodes are 1 to 7"),
        (PLAIN.replace("6 4\n", "6 0\n"), "line 8 has the neighbor 0"),
        (PLAIN.replace("6 4\n", "6 x\n"), "line 8 has 'x', which is no integer"),
        (PLAIN.replace("6 4\n", "6 1\n"), "has the edge of . and . in the line of one of them only"),
        (
            WEIGHTED.replace("6 6 4 5", "6 6 4 4"),
            "has the edge of 4 and 7 in the line of one of them only, or with ano",
        ),
        (WEIGHTED.replace("6 6 4 5", "6 6 4 nan"), "line 8 has 'nan', which is infinite or not a number"),
        ("1000000000000 1\n1\n", "nodes"),
        ("3 1 11 9223372036854775807\n", "line 1 has ncon 9223372036854775807"),
    ],
)
def test_errors_name_the_file(load: Callable[..., Graph], text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(text)
    assert "\n" not in str(caught.value) and "tiny.graph" in str(caught.value)
