"""Graphs from tables of edges and nodes: CSV, Parquet, and tables in memory, against pandas and plain Python."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph, check_dataset, dataset_files, dataset_lacks, load_dataset
from fullgnn.graph.datasets import table_source
from fullgnn.graph.node_names import Texts
from tests.graph.datasets.table import names_of, tables, write

KINDS = ("integer", "text")


def arcs_of(graph: Graph) -> dict[tuple[Any, Any], float]:
    """The weight by the names of (source, target)."""
    names = names_of(graph)
    rows, columns = graph.adjacency().nonzero()
    weight = np.ones(graph.num_edges) if graph.weight is None else graph.weight
    return {(names[u], names[v]): float(w) for v, u, w in zip(rows, columns, weight)}


def expected_arcs(edges: pandas.DataFrame) -> dict[tuple[Any, Any], float]:
    return edges.groupby(["src", "dst"])["weight"].sum().to_dict()


@pytest.fixture
def loads(compose_dataset):
    def load(**keys: Any) -> Graph:
        return load_dataset(compose_dataset("table", **keys))

    return load


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".parquet"])
def test_files_of_every_kind(loads, tmp_path: Path, kind: str, suffix: str) -> None:
    edges, nodes = tables(kind)
    paths = [write(frame, tmp_path / f"{name}{suffix}") for name, frame in (("edges", edges), ("nodes", nodes))]
    graph = loads(edges=[paths[0]], nodes=[paths[1]])
    assert graph.name == "edges" and names_of(graph) == nodes["id"].tolist()
    assert arcs_of(graph) == expected_arcs(edges)
    np.testing.assert_array_equal(graph.features, nodes[["f_0", "f_1"]].to_numpy(np.float32))
    assert graph.class_names == ("a", "b", "c")
    np.testing.assert_array_equal(graph.labels, nodes["label"].map({"a": 0, "b": 1, "c": 2}).fillna(-1))
    for mask, text in ((graph.train_mask, "train"), (graph.val_mask, "valid"), (graph.test_mask, "TEST")):
        np.testing.assert_array_equal(mask, nodes["split"] == text)
    assert graph.remarks["merged_arcs"] == len(edges) - graph.num_edges > 0


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_of_the_edges_alone_are_in_ascending_order(loads, tmp_path: Path, kind: str) -> None:
    edges, _ = tables(kind)
    graph = loads(edges=[write(edges, tmp_path / "e.csv")], features=["identity"])
    assert names_of(graph) == sorted({*edges["src"], *edges["dst"]})
    assert arcs_of(graph) == expected_arcs(edges) and graph.num_features == 0


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_threads_and_the_order_of_rows_do_not_matter(loads, tmp_path: Path, monkeypatch, kind: str) -> None:
    edges, nodes = tables(kind)
    node_path = write(nodes, tmp_path / "n.parquet")
    whole = loads(edges=[write(edges, tmp_path / "e.parquet")], nodes=[node_path])
    monkeypatch.setattr(table_source, "ROWS_AT_ONCE", 7)
    shuffled = edges.sample(frac=1, random_state=1)
    halves = [write(shuffled[:100], tmp_path / "s0.parquet"), write(shuffled[100:], tmp_path / "s1.csv")]
    for given in ([str(tmp_path / "e.parquet")], halves):
        graph = loads(edges=given, nodes=[node_path])
        for field in ("indptr", "indices", "weight", "features", "labels", "train_mask"):
            np.testing.assert_array_equal(getattr(graph, field), getattr(whole, field))
        assert names_of(graph) == names_of(whole)
    pattern = loads(edges=[str(tmp_path / "s*.*")], nodes=[node_path])
    np.testing.assert_array_equal(pattern.indices, whole.indices)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_in_memory_are_read_as_files_are(tmp_path: Path, kind: str) -> None:
    edges, nodes = tables(kind)
    files = Graph.from_tables(str(write(edges, tmp_path / "e.csv")), tmp_path / write(nodes, tmp_path / "n.csv"))
    arrow = pyarrow.Table.from_pandas(edges)
    as_reader = pyarrow.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches(max_chunksize=9))
    frame = polars.from_pandas(nodes)
    for given in (edges, polars.from_pandas(edges), arrow, as_reader, edges.to_dict("list"), [edges[:90], edges[90:]]):
        graph = Graph.from_tables(given, frame, features="f_*")
        assert arcs_of(graph) == arcs_of(files) and names_of(graph) == names_of(files)
        for field in ("features", "labels", "train_mask", "val_mask", "test_mask"):
            np.testing.assert_array_equal(getattr(graph, field), getattr(files, field))
    categories = nodes.astype({"label": "category", "split": "category"})
    np.testing.assert_array_equal(Graph.from_tables(edges, categories).labels, files.labels)


def test_ids_from_0_are_no_names_and_numbers_mix_with_texts(tmp_path: Path) -> None:
    assert Graph.from_tables({"source": [0, 2], "target": [1, 1]}).node_names is None
    mixed = tmp_path / "mixed.csv"
    mixed.write_text("from,to\n1,2\n2,x7\n")
    graph = Graph.from_tables(mixed, {"id": [2, 1, 5], "name_": ["p", "q", "r"]}, unknown_nodes="add")
    assert isinstance(graph.node_names, Texts) and names_of(graph) == ["2", "1", "5", "x7"]
    assert set(arcs_of(graph)) == {("1", "2"), ("2", "x7")} and graph.remarks["added_nodes"] == 1
    beyond = Graph.from_tables({"source": np.array([2**63 + 1, 3], np.uint64), "target": [3, 3]})
    assert names_of(beyond) == ["3", str(2**63 + 1)]


def test_edges_of_unknown_nodes() -> None:
    edges, nodes = {"source": [5, 7, 9], "target": [7, 5, 5]}, {"id": [7, 5], "f_0": [1.0, 2.0]}
    with pytest.raises(
        DataError, match="edges, row 3, column source has the node 9, which the table of nodes does not"
    ):
        Graph.from_tables(edges, nodes)
    dropped = Graph.from_tables(edges, nodes, unknown_nodes="drop")
    assert arcs_of(dropped) == {(5, 7): 1, (7, 5): 1} and dropped.remarks["unknown_arcs"] == 1
    with pytest.raises(DataError, match="adds 1 nodes, which have no features"):
        Graph.from_tables(edges, nodes, unknown_nodes="add")
    added = Graph.from_tables(edges, nodes, unknown_nodes="add", features="degree")
    assert names_of(added) == [7, 5, 9] and arcs_of(added)[9, 5] == 1


def test_joined_tables_of_nodes_are_in_the_order_of_the_first() -> None:
    edges = {"source": ["a"], "target": ["b"]}
    first = {"node": ["b", "a", "c"], "label": ["y", "x", "y"]}
    second = {"node": ["a", "c", "b"], "x": [[1, 2], [3, 4], [5, 6]], "split": ["val", "test", "train"]}
    graph = Graph.from_tables(edges, [first, second])
    assert names_of(graph) == ["b", "a", "c"] and graph.labels.tolist() == [1, 0, 1]
    assert graph.features.tolist() == [[5, 6], [1, 2], [3, 4]] and graph.train_mask.tolist() == [True, False, False]
    parts = [{key: values[:2] for key, values in first.items()}, {key: values[2:] for key, values in first.items()}]
    assert names_of(Graph.from_tables(edges, parts)) == ["b", "a", "c"]
    short = {key: values[:2] for key, values in second.items()}
    with pytest.raises(DataError, match=r"nodes\[1\] lacks 1 nodes of the first table"):
        Graph.from_tables(edges, [first, short])
    with pytest.raises(DataError, match=r"nodes\[1\], row 3, column node has the node a again"):
        Graph.from_tables(edges, [first, second | {"node": ["a", "c", "a"]}])


def labels(values: Any, **keys: Any) -> tuple[list[Any], tuple[str, ...] | None]:
    count = len(values if not isinstance(values, dict) else next(iter(values.values())))
    columns = values if isinstance(values, dict) else {"label": values}
    graph = Graph.from_tables({"source": [0], "target": [1]}, {"id": list(range(count)), **columns}, **keys)
    return graph.labels.tolist(), graph.class_names


def test_labels_of_every_kind() -> None:
    assert labels(["b", "a", None, "b"]) == ([1, 0, -1, 1], ("a", "b"))
    assert labels(["", "a", "NaN"]) == ([-1, 0, -1], ("a",))
    assert labels([0, 2, 1]) == ([0, 2, 1], None)
    assert labels([0, -1, 1, None]) == ([0, -1, 1, -1], None)
    assert labels([30, 10, 20, 10]) == ([2, 0, 1, 0], ("10", "20", "30"))
    assert labels(["30", "4", "n/a"]) == ([1, 0, -1], ("4", "30"))
    assert labels([True, False, None]) == ([1, 0, -1], None)
    assert labels([0.5, 2.0]) == ([0.5, 2.0], None)
    assert np.isnan(labels([1.5, None])[0][1])
    assert labels([30, 10], label_type="number") == ([30.0, 10.0], None)
    assert labels([3.0, 1.5], label_type="class") == ([1, 0], ("1.5", "3"))
    several = {"p": [0, 1, 1], "q": [1, None, 0]}
    assert labels(several, label=["p", "q"]) == ([[0, 1], [1, -1], [1, 0]], ("p", "q"))
    assert labels({"p": [0.5, 1.0], "q": [1.0, 3.0]}, label=["p", "q"])[0] == [[0.5, 1.0], [1.0, 3.0]]


def test_several_splits_and_hidden_labels() -> None:
    edges = {"source": [0], "target": [1]}
    nodes = {"id": [0, 1, 2], "label": ["a", "b", None]}
    nodes |= {"split_0": ["train", "val", "test"], "split_1": ["dev", "train", ""]}
    graph = Graph.from_tables(edges, nodes)
    assert graph.train_mask.tolist() == [True, False, False] and not graph.test_mask.any()
    assert graph.remarks["unlabelled_split_nodes"] == 1
    assert Graph.from_tables(edges, nodes, split=1).train_mask.tolist() == [False, True, False]
    with pytest.raises(ConfigError, match="dataset.split=2, and the table has 2 columns of splits: choose 0 to 1"):
        Graph.from_tables(edges, nodes, split=2)


MASKS = ["train_mask", "val_mask", "test_mask"]


def with_masks(nodes: pandas.DataFrame, kind: str) -> pandas.DataFrame:
    """The split of ``nodes`` as three columns."""
    masks = [nodes["split"].str.lower() == part for part in ("train", "valid", "test")]
    if kind == "with gaps":
        masks = [mask.astype(float).where(mask | (np.arange(len(mask)) % 2 == 0)) for mask in masks]  # NaN for some 0
    elif kind != "bool":
        masks = [mask.map({True: kind[0], False: kind[1]}) for mask in masks]
    return nodes.drop(columns="split").assign(**dict(zip(MASKS, masks)))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ""])
@pytest.mark.parametrize("kind", ["bool", (1, 0), ("TRUE", "False"), "with gaps"])
def test_three_masks_are_a_split(loads, tmp_path: Path, suffix: str, kind: Any) -> None:
    edges, nodes = tables("text")
    expected = Graph.from_tables(edges, nodes)
    masked = with_masks(nodes, kind)
    renamed = masked.rename(columns=dict(zip(MASKS, ["a", "b", "c"])))
    if suffix:
        given = {"edges": [write(edges, tmp_path / f"e{suffix}")], "nodes": [write(masked, tmp_path / f"n{suffix}")]}
        graphs = [loads(**given), loads(**given, mask_columns=MASKS)]
        given["nodes"] = [write(renamed, tmp_path / f"r{suffix}")]
        graphs.append(loads(**given, mask_columns=["a", "b", "c"]))
    else:
        graphs = [Graph.from_tables(edges, polars.from_pandas(masked))]
        graphs.append(Graph.from_tables(edges, renamed, mask_columns=["a", "b", "c"]))
    for graph in graphs:
        for mask in MASKS:
            assert getattr(expected, mask).any()
            np.testing.assert_array_equal(getattr(graph, mask), getattr(expected, mask))


def masks(*columns: list[Any], **keys: Any) -> list[list[bool]]:
    nodes = {"id": [5, 7, 9]} | dict(zip(MASKS, columns))
    graph = Graph.from_tables({"source": [5], "target": [7]}, nodes, **keys)
    return [getattr(graph, mask).tolist() for mask in MASKS]


def test_masks_that_are_no_split() -> None:
    some = [1, 0, 0], [0, 0, None], [0, 1, 0]
    assert masks(*some) == [[True, False, False], [False] * 3, [False, True, False]]
    assert masks(*some, mask_columns=[]) == masks(*some, split_columns=[]) == masks(*some[:2]) == [[False] * 3] * 3
    assert masks(*some, mask_columns=MASKS[::-1]) == masks(*some)[::-1]
    for wrong, message in (
        ([0, 1, 0], "nodes, row 2, column val_mask is true, and so is column test_mask: a node belongs to one part"),
        ([0, 0, 2], "nodes, row 3, column val_mask has '2': a mask is true or false, 1 or 0, or nothing"),
        ([0.0, float("inf"), 0], "nodes, row 2, column val_mask has 'inf': a mask is true"),
        ([[0], [0], [0]], "nodes, column val_mask has the type .*list.*: a mask is true"),
    ):
        with pytest.raises(DataError, match=message):
            masks(some[0], wrong, some[2])
    for keys, message in (
        ({"mask_columns": MASKS[:2]}, "names no three columns: give those of training, validation and test nodes"),
        ({"mask_columns": [*MASKS[:2], "x"]}, "dataset.mask_columns=x is no column of nodes, which has others"),
        ({"mask_columns": ["x", "y", "z"]}, "dataset.mask_columns=x is no column of nodes: choose from id, train_mask"),
        ({"mask_columns": MASKS, "split_columns": "s"}, "both name the split: leave one out"),
        ({"split": 1}, "dataset.split=1, and the table has 1 columns of splits"),
    ):
        with pytest.raises(ConfigError, match=message):
            masks(*some, **keys)
    both = {"id": [5, 7], "split": ["train", None]} | {mask: [0, 0] for mask in MASKS}
    with pytest.raises(
        ConfigError, match=r"columns split and train_mask, val_mask, test_mask may be the split: choose"
    ):
        Graph.from_tables({"source": [5], "target": [7]}, both)
    assert Graph.from_tables({"source": [5], "target": [7]}, both, split_columns="split").train_mask.tolist() == [1, 0]


def test_made_features() -> None:
    edges = {"source": [0, 1, 2, 2], "target": [3, 3, 3, 0]}
    degree = Graph.from_tables(edges, features="degree").features
    assert degree.shape == (4, 5)
    np.testing.assert_allclose(degree[:, :2], np.log1p([[1, 1], [0, 1], [0, 2], [3, 0]]), rtol=1e-6)
    assert degree[:, 2:].argmax(axis=1).tolist() == [1, 0, 0, 2] and (degree[:, 2:].sum(axis=1) == 1).all()
    random = Graph.from_tables(edges, features="random", feature_channels=500, seed=3).features
    assert random.shape == (4, 500) and abs(random.mean()) < 0.1 and abs(random.std() - 1) < 0.1
    np.testing.assert_array_equal(
        random, Graph.from_tables(edges, features="random", feature_channels=500, seed=3).features
    )
    with pytest.raises(ConfigError, match="feature_channels has no meaning with dataset.features=degree"):
        Graph.from_tables(edges, features="degree", feature_channels=3)


@pytest.mark.parametrize(
    ("edges", "nodes", "message"),
    [
        ("source,target\n1,2\n1,\n", "id\n1\n2\n", "edges.csv, row 2, column target has no id"),
        (
            "source,target,weight\n1,2,3\n1,2,inf\n",
            "id\n1\n2\n",
            "edges.csv, row 2, column weight has the value inf for",
        ),
        (
            "source,target,weight\n1,2,3\n1,2,\n",
            "id\n1\n2\n",
            "edges.csv, row 2, column weight has no value for a weight",
        ),
        ("source,target,weight\n1,2,3\n1,2,x\n", "id\n1\n2\n", "edges.csv cannot be read .*column weight.*Row #3.*'x'"),
        ("source,target\n1,2\n1,2,3\n", "id\n1\n2\n", "edges.csv cannot be read .*Expected 2 columns, got 3"),
        ("source,target\n1,2\n", "id\n1\n2\n1\n", "nodes.csv, row 3, column id has the node 1 again"),
        ("source,target\na,b\n", "id\na\n\nb\na\n", "nodes.csv, row 3, column id has the node a again"),
        ("source,target\n1,2\n", "id,f_0\n1,2\n2,\n", "nodes.csv, row 2, column f_0 has no value for a feature"),
        ("source,target\n1,2\n", "id,f_0\n1,2\n2,1e300\n", "nodes.csv, row 2, column f_0 has a feature beyond float32"),
        ("source,target\n1,2\n", "id,f_0\n1,2\n2,red\n", "nodes.csv cannot be read .*column f_0.*'red'"),
        ("source,target\n1,2\n", "id,split\n1,train\n2,tst\n", "nodes.csv, row 2, column split has 'tst': a split is"),
        ("source,target\n1,2\n", "id\n", "nodes.csv has no node"),
        ("source,target\n1,2\n", "", "nodes.csv cannot be read .*Empty CSV"),
        ("source,source\n1,2\n", "id\n1\n", "edges.csv has two columns source"),
    ],
)
def test_wrong_values_are_told_by_row_and_column(loads, tmp_path: Path, edges: str, nodes: str, message: str) -> None:
    for name, text in (("edges", edges), ("nodes", nodes)):
        (tmp_path / f"{name}.csv").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        loads(edges=[str(tmp_path / "edges.csv")], nodes=[str(tmp_path / "nodes.csv")])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("edges", "nodes", "keys", "message"),
    [
        ({"a": [1], "b": [2], "c": [3]}, None, {}, "no column that is known as the source of its edges"),
        (
            {"src": [1], "from": [2], "to": [3]},
            None,
            {},
            "several columns that may be dataset.source: choose one of src",
        ),
        ({"src": [1], "to": [3]}, None, {"source": "s"}, "dataset.source=s is no column of edges: choose from src, to"),
        ({"src": [1], "to": [3]}, {"i": [1]}, {}, "no column that is known as the ids of its nodes: set dataset.node"),
        ({"src": [1], "to": [3]}, {"id": [1, 3]}, {"features": "g_*"}, r"dataset.features=g_\* is no column of nodes"),
        ({"src": [1], "to": [3]}, {"id": [1], "f0": [1], "x0": [1]}, {}, r"several families .* f\*, x\*"),
        ({"src": [1], "to": [3]}, {"id": [1], "y": [1], "label": [1]}, {}, "several columns that may be dataset.label"),
        ({"src": [1], "to": [3]}, None, {"label": "y"}, "dataset.label is given, and there is no table of nodes"),
        ({"src": [1], "to": [3]}, None, {"unknown_nodes": "ad"}, "dataset.unknown_nodes=ad is not known"),
        ({"src": [1.5], "to": [3]}, None, {}, "column src has the type double, and not ids"),
        ({"src": [1], "to": [3]}, {"id": [1, 3], "x": [[1, 2], [3]]}, {}, "nodes, row 2, column x has 1 features"),
        ({"src": [1], "to": [3]}, {"id": [1, 3], "x": [[1, 2], None]}, {}, "nodes, row 2, column x has no list"),
        (
            {"src": [1], "to": [3]},
            {"id": [1, 3], "x": [[1.0], [None]]},
            {},
            "row 2, column x has a feature that is missing",
        ),
        ({"src": [1], "to": [3]}, {"id": [1, 3], "x": [["p"], ["q"]]}, {}, "column x has lists of string"),
        (7, None, {}, "edges cannot be read as a table"),
    ],
)
def test_wrong_keys_and_types(edges: Any, nodes: Any, keys: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        Graph.from_tables(edges, nodes, **keys)


def test_what_is_said_before_anything_is_read(compose_dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dataset.edges has no value"):
        check_dataset(compose_dataset("table", edges=None))
    with pytest.raises(DataError, match="no file .*edges.csv: set dataset.edges"):
        check_dataset(compose_dataset("table"))
    with pytest.raises(DataError, match="no file .*e.csv: set dataset.edges"):
        check_dataset(compose_dataset("table", edges=[str(tmp_path / "e.csv")]))
    edges, nodes = tables("text")
    paths = {"edges": [write(edges, tmp_path / "e.csv")], "nodes": [write(nodes, tmp_path / "n.parquet")]}
    assert dataset_files(compose_dataset("table", **paths)) == [tmp_path / "e.csv", tmp_path / "n.parquet"]
    assert dataset_lacks(compose_dataset("table", **paths)) == []
    assert dataset_lacks(compose_dataset("table", **paths, split_columns=[])) == ["train_mask"]
    assert dataset_lacks(compose_dataset("table", edges=paths["edges"])) == ["labels", "train_mask"]
    masked = [write(with_masks(nodes, "bool"), tmp_path / "m.csv")]
    assert dataset_lacks(compose_dataset("table", **paths | {"nodes": masked})) == []
    with pytest.raises(ConfigError, match="dataset.label=lab is no column of .*n.parquet"):
        check_dataset(compose_dataset("table", **paths, label=["lab"]))


@pytest.mark.parametrize("suffix", [".csv.gz", ".parquet"])
def test_truncated_files(loads, tmp_path: Path, suffix: str) -> None:
    edges, _ = tables("text", 3000, 30_000)
    path = tmp_path / f"e{suffix}"
    write(edges, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=f"e{suffix} cannot be read"):
        loads(edges=[str(path)])


def test_quotes_semicolons_and_a_byte_order_mark(loads, tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_bytes(b'\xef\xbb\xbfsource;target\n"a; ""b""\r\nc";d\n')
    graph = loads(edges=[str(path)])
    assert names_of(graph) == ['a; "b"\r\nc', "d"]
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert names_of(loads(edges=[str(tmp_path / "e.csv.gz")])) == names_of(graph)


def test_a_column_of_the_nodes_has_the_groups_of_a_split(loads, tmp_path: Path) -> None:
    edges, nodes = tables("text")
    nodes["label"], nodes["village"] = "a", [f"v{node % 7}" for node in range(len(nodes))]
    paths = {"edges": [write(edges, tmp_path / "e.csv")], "nodes": [write(nodes, tmp_path / "n.csv")]}
    graph = loads(**paths, split="group", groups="village")
    of_group = [{part for node in range(i, len(nodes), 7) for part in parts_of(graph, node)} for i in range(7)]
    assert all(len(parts) == 1 for parts in of_group) and len(set.union(*of_group)) == 3
    with pytest.raises(ConfigError, match="dataset.groups=town is no column of"):
        loads(**paths, split="group", groups="town")
    kfold = loads(**paths, split="kfold", num_folds=3)
    assert kfold.test_mask.sum() == len(nodes) / 3
    with open(tmp_path / "e.csv", "a") as file:
        file.write(",".join("new" if name == "src" else str(edges[name][0]) for name in edges) + "\n")
    more = loads(**paths, split="group", groups="village", features="degree", unknown_nodes="add")
    assert more.num_nodes == graph.num_nodes + 1 and not parts_of(more, len(nodes))
    assert all(parts_of(more, node) == parts_of(graph, node) for node in range(len(nodes)))


def parts_of(graph: Graph, node: int) -> list[str]:
    masks = {"train": graph.train_mask, "val": graph.val_mask, "test": graph.test_mask}
    return [name for name, mask in masks.items() if mask[node]]
