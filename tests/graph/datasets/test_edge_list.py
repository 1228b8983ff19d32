"""Edge lists of SNAP: small ones written here, and amazon0601 as published."""

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph, dataset_lacks, load_dataset
from fullgnn.graph.datasets import edge_list, words


@pytest.fixture
def load(load_text: Callable) -> Callable[..., Graph]:
    return partial(load_text, "edge_list", "tiny.txt")


def arcs_of(graph: Graph) -> list[tuple[int, int]]:
    """The arcs by the names of the nodes, sources first, sorted."""
    names = np.arange(graph.num_nodes) if graph.node_names is None else graph.node_names
    readers, read = graph.adjacency().nonzero()
    return sorted(zip(names[read].tolist(), names[readers].tolist()))


def test_ids_with_gaps_comments_blanks_and_duplicates(load: Callable[..., Graph]) -> None:
    text = "# Nodes: 4 Edges: 3\n% also\n700\t5\n  5   9\r\n\n700 5\n-3\t9223372036854775807\r5 5"
    graph = load(text)
    assert graph.node_names.tolist() == [-3, 5, 9, 700, 9223372036854775807]
    assert arcs_of(graph) == [(-3, 9223372036854775807), (5, 5), (5, 9), (700, 5)]
    assert graph.remarks["merged_arcs"] == 1 and graph.name == "tiny" and graph.weight is None
    both = load(text, symmetrize=True)
    assert len(arcs_of(both)) == 7 and both.node_names.tolist() == graph.node_names.tolist()


def test_ids_from_0_are_no_names_and_ids_from_1_are(load: Callable[..., Graph]) -> None:
    assert load("2 0\n0 1\n").node_names is None
    assert load("1 2\n2 3\n").node_names.tolist() == [1, 2, 3]
    assert load("0 2\n2 3\n").node_names.tolist() == [0, 2, 3]


def test_a_third_column_is_read_or_left_out_as_is_said(load: Callable[..., Graph]) -> None:
    text = "0 1 0.25\n1 0 1e-3\n0 1 2\n1 1 0\n"
    graph = load(text, weight=True)
    np.testing.assert_array_equal(graph.adjacency().toarray(), [[0, 1e-3], [2.25, 0]])
    assert graph.remarks == {"merged_arcs": 1, "zero_arcs": 1}
    assert arcs_of(load(text, weight=False)) == [(0, 1), (1, 0), (1, 1)]
    with pytest.raises(ConfigError, match="tiny.txt has three columns: set dataset.weight=true if the third one"):
        load(text)
    with pytest.raises(ConfigError, match="dataset.weight=true, and .*tiny.txt has two columns"):
        load("0 1\n", weight=True)


@pytest.mark.parametrize("seed", range(6))
def test_any_cut_of_the_file_gives_the_same_graph(load: Callable[..., Graph], seed: int, monkeypatch) -> None:
    rng = np.random.default_rng(seed)
    # Small ranges have a table of all ids, large ones are sorted; ids below 2^31 take 4 bytes.
    middle, span = ((0, 30), (0, 10**9), (0, 2**62), (0, 2**63 - 1), (2**31, 30), (-(2**31), 300_000))[seed]
    ids = rng.integers(middle - span, middle + span, 40)
    pairs = ids[rng.integers(0, len(ids), (300, 2))]
    ends = rng.choice(["\n", "\r\n", "\r"], len(pairs))
    text = "".join(f"{u}\t{v}{end}" for (u, v), end in zip(pairs, ends))
    monkeypatch.setattr(words, "CHUNK", 1 << 20)
    whole = load(text)
    monkeypatch.setattr(words, "CHUNK", int(rng.integers(3, 90)))
    parts = load(text)
    assert arcs_of(whole) == sorted(set(map(tuple, pairs.tolist())))
    for name in ("indptr", "indices", "node_names"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))
    with pytest.raises(DataError, match=f"tiny.txt, line {len(pairs) + 1} has 'x'"):
        load(text + "1 x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "tiny.txt has no arc"),
        ("# only\n", "tiny.txt has no arc"),
        ("0 1\n0 1.5\n", "line 2 has '1.5', which is no integer"),
        ("# a\n\n0 1\n0 +\n", "line 4 has '[+]', which is no integer"),
        ("0 1\n9223372036854775808 1\n", "line 2 has '9223372036854775808', which is an integer of more than 64 bits"),
        ("0 1\n-9223372036854775809 1\n", "line 2 has .* more than 64 bits"),
        ("0 1\n0\n", "line 2 has 1 column, and a line has two ids"),
        ("0,1\n", "line 1 has 1 column"),
        ("0 1 1\n0 1 inf\n", "line 2 has 'inf', which is infinite or not a number"),
        ("0 1 1\n0 1 1_0\n", "line 2 has '1_0', which is no number"),
        ("0 1 1\n0 1\n", "line 2 has 2 columns, and a line has two ids and a weight"),
        ("0 1 1 1\n", "line 1 has 4 columns, and a line has two ids or two ids and a weight"),
    ],
)
def test_errors_name_file_and_line(load: Callable[..., Graph], text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(text, weight=" 1 1\n" in text or None)
    assert "\n" not in str(caught.value) and "tiny.txt" in str(caught.value)


def test_a_cut_off_gz_is_refused(tmp_path: Path, compose_dataset: Callable) -> None:
    file = tmp_path / "tiny.txt.gz"
    file.write_bytes(gzip.compress(b"0 1\n" * 9999)[:-9])
    with pytest.raises(DataError, match="tiny.txt.gz cannot be read .*: write it again, as text"):
        load_dataset(compose_dataset("edge_list", path=str(file)))


def test_an_endless_line_is_refused_before_the_memory_is_full(load: Callable[..., Graph], monkeypatch) -> None:
    monkeypatch.setattr(words, "CHUNK", 1 << 16)
    monkeypatch.setattr("fullgnn.telemetry.machine.free_bytes", lambda: 1 << 25)
    with pytest.raises(DataError, match="with a line of .* bytes or more, needs .* bytes of memory"):
        load(b"\0" * (1 << 21))


def test_2_to_the_31_nodes_are_refused(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fullgnn.graph.checks.MAX_NODES", 3)
    for ids in ([0, 1, 2, 3], [0, 10**9, 2 * 10**9, 10**18]):
        file = tmp_path / "edges.txt"
        file.write_text("{} {}\n{} {}\n".format(*ids))
        with pytest.raises(DataError, match="has 4 nodes"):
            edge_list.load(None, str(file), None)


def test_amazon0601_as_published(shared_data: Path, compose_dataset: Callable) -> None:
    node = compose_dataset("edge_list", path=str(shared_data / "snap" / "amazon0601.txt.gz"))
    graph = load_dataset(node)
    assert (graph.num_nodes, graph.num_edges, graph.node_names, graph.remarks) == (403_394, 3_387_388, None, {})
    assert graph.symmetrized().num_edges == 2 * 2_443_408
    assert graph.name == "amazon0601" and dataset_lacks(node) == ["labels", "train_mask"]
    rows = np.fromstring(gzip.decompress(Path(node["path"]).read_bytes()), dtype=np.int64, sep=" ").reshape(-1, 2)
    keys = rows[:, 1] * graph.num_nodes + rows[:, 0]  # each target reads from its source
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    np.testing.assert_array_equal(np.sort(keys), targets * graph.num_nodes + graph.indices)


def test_blogcatalog_counts_from_1(shared_data: Path, load: Callable[..., Graph]) -> None:
    text = (shared_data / "blogcatalog" / "edges.csv").read_text().replace(",", " ")
    graph = load(text, symmetrize=True)
    assert (graph.num_nodes, graph.num_edges) == (10_312, 2 * 333_983)
    assert graph.node_names[0] == 1 and graph.node_names[-1] == 10_312
