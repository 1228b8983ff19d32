"""Names of nodes and of classes: what a ``Graph`` takes, how it keeps them, and that files return them."""

import networkx as nx
import numpy as np
import pytest

from fullgnn.errors import DataError
from fullgnn.graph import Graph
from fullgnn.graph.arrays import graph_from_arrays, graph_to_arrays
from fullgnn.graph.datasets.npz import load
from fullgnn.graph.node_names import Texts

WORDS = ["", "b", "Zürich", "a,b\n", "long " * 40]
ARCS = [[0, 1, 2, 3], [1, 2, 3, 4]]


def graph(**given) -> Graph:
    return Graph.from_edge_index(ARCS, num_nodes=5, **given)


def names_of(made: Graph) -> list:
    return made.node_names.tolist()


@pytest.mark.parametrize("index", [[], [4, 0, 0, 2], slice(1, 4), slice(None)])
def test_an_index_takes_texts(index):
    texts = Texts.of(WORDS)
    wanted = WORDS[index] if isinstance(index, slice) else [WORDS[place] for place in index]
    taken = texts[index if isinstance(index, slice) else np.array(index, np.int64)]
    assert taken.tolist() == wanted


def test_many_texts_are_taken_in_several_blocks():
    words = [str(number) * (number % 7) for number in range(200_000)]
    index = np.random.default_rng(0).permutation(len(words))[:150_000]
    assert Texts.of(words)[index].tolist() == [words[place] for place in index]


@pytest.mark.parametrize("ends", [[0, 2], [1, 3], [0, 2, 1, 3]])
def test_ends_that_are_none_are_refused(ends):
    with pytest.raises(DataError, match="ends"):
        Texts(np.array(ends, np.int64), np.zeros(3, np.uint8))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([7, 5, 2**40, -3, 0], [7, 5, 2**40, -3, 0]),
        (np.arange(5, dtype=np.uint8), [0, 1, 2, 3, 4]),
        (np.array([2**63, 1, 2, 3, 4], np.uint64), ["9223372036854775808", "1", "2", "3", "4"]),
        (WORDS, WORDS),
        (np.array(WORDS, object), WORDS),
        (np.array(["x", 3, "y", 4, "z"], object), ["x", "3", "y", "4", "z"]),
    ],
)
def test_integers_and_texts_are_names(given, kept):
    assert names_of(graph(node_names=given)) == kept


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([1, 2], "2 names but the graph has 5 nodes"),
        ([0.5] * 5, "dtype float64: pass integers or strings"),
        (np.zeros((5, 1), int), "shape"),
        ([b"a"] * 5, "pass integers or strings"),
        ([None] * 5, "pass integers or strings"),
    ],
)
def test_other_names_are_refused(given, said):
    with pytest.raises(DataError, match=said):
        graph(node_names=given)


@pytest.mark.parametrize("names", [WORDS, [7, 5, 2**40, -3, 0]])
def test_names_follow_their_nodes_and_files_return_them(names, tmp_path):
    perm = [3, 0, 4, 2, 1]
    made = graph(node_names=names, labels=[0, 1, 0, 1, 0], class_names=["rain", "Sonne"]).permute(perm)
    assert names_of(made) == [names[node] for node in perm]
    again = graph_from_arrays(graph_to_arrays(made), "again")
    assert names_of(again) == names_of(made) and again.class_names == ("rain", "Sonne")
    made.save(tmp_path / "named.npz")
    read = load(None, "", str(tmp_path / "named.npz"), False, None, None, 0)
    assert names_of(read) == names_of(made) and read.class_names == ("rain", "Sonne")


def test_class_names_are_one_for_each_class():
    with pytest.raises(DataError, match="1 names but the labels have 2 classes"):
        graph(labels=[0, 1, 0, 1, 0], class_names=["rain"])


def test_nodes_of_networkx_are_names():
    g = nx.Graph([("Ann", "Bob"), ("Bob", 3)])
    assert names_of(Graph.from_networkx(g)) == ["Ann", "Bob", "3"]
    assert Graph.from_networkx(nx.path_graph(3)).node_names is None
    assert Graph.from_networkx(nx.grid_graph((2, 2))).node_names is None
