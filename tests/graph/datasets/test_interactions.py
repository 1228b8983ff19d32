"""Files of users and items, in the two published formats."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph, load_dataset

LISTS = {"train": "0 2 0 2\n1\n3 1\n", "test": "0 1\n2 0\n3 1 4\n"}
"""A repeated item, users without items, an item and a user that only the test file has, a test pair of the training."""
TRIPLES = {"train": "1\t3\t7\n1\t1\t3.2466e+05\n1\t3\t1\n4\t2\t5\n", "test": "4\t2\t1\n1\t2\t1\n3\t1\t1\n4\t5\t9\n"}
TRAIN, TEST = {(0, 4), (0, 6), (3, 5)}, {(0, 5), (2, 4), (3, 8)}


@pytest.fixture
def loads(compose_dataset, tmp_path: Path):
    def load(format: str, suffix: str = ".txt", **contents: str) -> Graph:
        for name, text in contents.items():
            data = text.encode()
            (tmp_path / f"{name}{suffix}").write_bytes(gzip.compress(data) if suffix == ".gz" else data)
        paths = {f"{name}_path": str(tmp_path / f"{name}{suffix}") for name in ("train", "test")}
        return load_dataset(compose_dataset("interactions", format=format, **paths))

    return load


@pytest.mark.parametrize("suffix", [".txt", ".gz"])
@pytest.mark.parametrize(("format", "contents"), [("lists", LISTS), ("triples", TRIPLES)])
def test_both_formats_give_the_bipartite_graph(loads, format: str, contents: dict[str, str], suffix: str) -> None:
    graph = loads(format, suffix, **contents)
    assert (graph.num_nodes, graph.num_users, graph.num_features, graph.weight) == (9, 4, 0, None)
    rows, cols = graph.adjacency().nonzero()
    assert set(zip(rows.tolist(), cols.tolist())) == TRAIN | {(item, user) for user, item in TRAIN}
    assert set(map(tuple, graph.test_links.T.tolist())) == TEST and graph.val_links is None
    assert graph.remarks["known_test_interactions"] == 1
    assert not (graph.train_mask | graph.val_mask | graph.test_mask).any() and (graph.labels == -1).all()


@pytest.mark.parametrize(
    ("format", "contents", "message"),
    [
        ("lists", {"train": "0 1\n"}, r"no file .*test.txt: set dataset.test_path to a file of interactions"),
        ("lists", {"train": "0 1\n", "test": "0 x\n"}, "test.txt must hold integers only"),
        ("lists", {"train": "0 1\n", "test": "0 -1\n"}, "test.txt has the id -1, and ids count from 0"),
        ("lists", {"train": "0\n", "test": "0 1\n"}, "train.txt has no interaction"),
        ("triples", {"train": "1\t1\t1\n", "test": "0\t1\t1\n"}, "test.txt has the id 0, and ids count from 1"),
        ("triples", {"train": "1\t1\t1\n1 2\n", "test": ""}, "train.txt has 1 columns in line 2, and format=triples"),
        ("triples", {"train": "1\tx\t1\n", "test": ""}, "train.txt must hold integers only"),
        ("lists", {"train": "\u00e4\n", "test": ""}, "train.txt must hold integers only"),
    ],
)
def test_wrong_contents(loads, format: str, contents: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        loads(format, **contents)
    assert "\n" not in str(caught.value)
    assert not any(word in str(caught.value) for word in ("fetch", "download", "damaged"))  # the files are the user's


def test_an_unknown_format_and_a_damaged_archive(loads, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dataset.format=csv is not known: choose one of lists, triples"):
        loads("csv", **LISTS)
    (tmp_path / "train.gz").write_bytes(gzip.compress(b"0 1\n" * 100)[:20])
    (tmp_path / "test.gz").write_bytes(gzip.compress(b"0 2\n"))
    with pytest.raises(DataError, match="train.gz cannot be read"):
        loads("lists", ".gz")


def test_users_without_test_items_and_an_empty_test_file(loads) -> None:
    graph = loads("lists", train="0 0 1\n1 1\n", test="")
    assert graph.test_links is None and graph.num_users == 2 and graph.num_nodes == 4
    np.testing.assert_array_equal(np.diff(graph.indptr), [2, 1, 1, 2])


def test_a_bomb_is_refused_before_it_fills_the_memory(loads, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("fullgnn.telemetry.machine.free_bytes", lambda: 1 << 28)
    monkeypatch.setattr("fullgnn.graph.datasets.words.free_bytes", lambda: 1 << 28)
    (tmp_path / "train.gz").write_bytes(gzip.compress(b"0 1\n" * (1 << 23)))
    (tmp_path / "test.gz").write_bytes(gzip.compress(b"0 2\n"))
    with pytest.raises(DataError, match=r"train.gz, \d+ bytes, unpacks to \d+ or more and needs \d+ bytes of memory"):
        loads("lists", ".gz")


def test_ids_far_out_are_refused_before_they_fill_the_memory(loads, monkeypatch) -> None:
    with pytest.raises(DataError, match="has 3000000002 nodes, and a Graph can have fewer than 2\\^31"):
        loads("lists", train="1500000000 1500000000\n", test="0 1\n")
    monkeypatch.setattr("fullgnn.telemetry.machine.free_bytes", lambda: 1 << 30)
    with pytest.raises(DataError, match="a graph of 2000000002 nodes and 2 edges needs 38000000038 bytes of memory"):
        loads("lists", train="0 2000000000\n", test="0 1\n")


@pytest.mark.parametrize(
    "line", ["0 1_0", "0 1.7", "0 nan", "0 #1", "0 ٣", "0 99999999999999999999", "0 " + "9" * 5000]
)
def test_an_integer_is_digits(loads, line: str) -> None:
    with pytest.raises(
        DataError, match="train.txt must hold integers only .line 2: .* number users and items"
    ) as caught:
        loads("lists", train=f"0 1\n{line}\n", test="0 2\n")
    assert len(str(caught.value)) < 600


def test_line_ends_signs_and_zeros_of_other_systems(loads) -> None:
    graph = loads("lists", train="0 00000000000000000000002 +0\r\n1\r3\t1\n", test="0 1\n")
    assert (graph.num_users, graph.num_nodes, graph.num_edges) == (4, 7, 6)
