"""Sparse features from a table of (node, feature, value), against scipy's matrix of the same rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from scipy.sparse import coo_array, csr_array

from fullgnn import train_graph
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph, check_dataset, dataset_files, dataset_lacks, load_dataset
from fullgnn.graph.datasets import table_source
from tests.commands import OWN, run_command
from tests.graph.datasets.table import names_of, tables, write

pytestmark = pytest.mark.sample(2)  # its tests take seconds, or compile kernels

EDGES = {"source": ["a", "b", "a"], "target": ["b", "c", "c"]}
WORDS = np.array([f"wo\u0308rt {number}" for number in range(25)], object)


def rows(nodes: Any, kind: str, values: bool, count: int = 300) -> tuple[pandas.DataFrame, csr_array]:
    """A table with repeated rows and zeros, of most of the ``nodes``; and the matrix by their places."""
    rng = np.random.default_rng(1)
    places, features = rng.integers(3, len(nodes), count), rng.integers(0, len(WORDS), count)
    table = pandas.DataFrame({"node": np.asarray(nodes)[places]})
    table["word"] = WORDS[features] if kind == "text" else features
    value = rng.integers(-2, 5, count) / 4 if values else np.ones(count)
    if values:
        table["value"] = value
    order = np.argsort(np.argsort(sorted(WORDS))) if kind != "text" else np.argsort(np.argsort(WORDS))
    matrix = coo_array((value, (places, order[features])), shape=(len(nodes), len(WORDS))).tocsr()
    matrix.eliminate_zeros()
    return table, matrix


def assert_equal(features: Any, expected: csr_array) -> None:
    assert isinstance(features, csr_array) and features.dtype == np.float32 and features.shape == expected.shape
    np.testing.assert_array_equal(features.toarray(), expected.toarray())
    assert features.nnz == expected.nnz and features.has_canonical_format


@pytest.mark.sample(4)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("kind", ["integer", "text"])
def test_files(compose_dataset, tmp_path: Path, monkeypatch, kind: str, values: bool, suffix: str) -> None:
    monkeypatch.setattr(table_source, "ROWS_AT_ONCE", 70)
    edges, nodes = tables(kind)
    features, expected = rows(nodes["id"], "text" if kind == "integer" else "integer", values)
    keys: dict[str, Any] = {
        "edges": [write(edges, tmp_path / f"e{suffix}")],
        "nodes": [write(nodes, tmp_path / "n.csv")],
    }
    keys["feature_table"] = [write(features[:200], tmp_path / "f.csv"), write(features[200:], tmp_path / f"g{suffix}")]
    composed = compose_dataset("table", **keys)
    check_dataset(composed)
    assert dataset_lacks(composed) == []
    assert dataset_files(composed) == [Path(path) for paths in keys.values() for path in paths]
    graph = load_dataset(composed)
    assert_equal(graph.features, expected)
    assert names_of(graph) == nodes["id"].tolist() and graph.labels.max() == 2
    pairs = features[["node", "word"]]
    assert graph.remarks["merged_features"] == len(pairs) - len(pairs.drop_duplicates()) > 0
    assert graph.remarks["featureless_nodes"] == len(nodes) - features["node"].nunique() > 0


def test_tables_of_python_and_nodes_of_the_edges_alone() -> None:
    edges, nodes = tables("text")
    names = sorted({*edges["src"], *edges["dst"]})
    features, expected = rows(names, "text", True)
    arrow = pyarrow.Table.from_pandas(features)
    renamed = features.rename(columns={"node": "who", "word": "what", "value": "x"})
    as_categories = features.astype({"node": "category", "word": "category"})
    for given in (features, polars.from_pandas(features), arrow, as_categories, features.to_dict("list")):
        graph = Graph.from_tables(edges, feature_table=given)
        assert names_of(graph) == names
        assert_equal(graph.features, expected)
    keys = {"feature_node": "who", "feature_name": "what", "feature_value": "x"}
    assert_equal(Graph.from_tables(edges, feature_table=renamed, **keys).features, expected)
    assert_equal(Graph.from_tables(edges, feature_table=[features[:9], arrow.slice(9)]).features, expected)
    # columns of the nodes that look like features are not read
    assert_equal(Graph.from_tables(edges, nodes.sort_values("id"), feature_table=features).features, expected)
    counts = Graph.from_tables(edges, feature_table=renamed[["who", "what"]]).features
    assert counts.sum() == len(features) and counts.max() > 1


def features_of(table: Any, nodes: Any = None, **keys: Any) -> Any:
    return Graph.from_tables(EDGES, nodes, feature_table=table, **keys)


def test_integers_are_numbers_of_columns() -> None:
    table = {"node": ["c", "a"], "word": [5, 0]}
    assert features_of(table).features.toarray().tolist() == [[1, 0, 0, 0, 0, 0], [0] * 6, [0, 0, 0, 0, 0, 1]]
    assert features_of(table).remarks["unused_features"] == 4
    wide = features_of(table, feature_channels=8)
    assert wide.features.shape == (3, 8) and "unused_features" not in wide.remarks
    mixed = [table, {"node": ["b"], "word": ["x"]}]  # a text among them: all are texts
    assert features_of(mixed).features.toarray().tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert features_of(table | {"word": [2**31 - 2, 0]}).features.shape == (3, 2**31 - 1)


def test_rows_of_unknown_nodes() -> None:
    table = {"node": ["c", "aa", "b"], "word": [1, 0, 1]}
    with pytest.raises(
        DataError, match="feature_table, row 2, column node has the node aa, which no edge has: correct"
    ):
        features_of(table)
    dropped = features_of(table, unknown_nodes="drop")
    assert dropped.features.toarray().tolist() == [[0, 0], [0, 1], [0, 1]] and dropped.remarks["unknown_features"] == 1
    added = features_of(table, unknown_nodes="add")
    assert names_of(added) == ["a", "aa", "b", "c"] and added.features.toarray().argmax(axis=1).tolist() == [0, 0, 1, 1]
    nodes = {"id": ["c", "b", "a"], "label": ["p", "q", "p"]}
    with pytest.raises(DataError, match="has the node aa, which the table of nodes does not have"):
        features_of(table, nodes)
    added = features_of(table, nodes, unknown_nodes="add")
    assert names_of(added) == ["c", "b", "a", "aa"] and added.labels.tolist() == [0, 1, 0, -1]
    assert added.features.toarray().tolist() == [[0, 1], [0, 1], [0, 0], [1, 0]]
    numbers = Graph.from_tables(
        {"source": [1], "target": [2]}, feature_table={"node": ["x", "1"], "word": [0, 0]}, unknown_nodes="add"
    )
    assert names_of(numbers) == ["1", "2", "x"] and numbers.features.toarray().tolist() == [[1], [0], [1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node,word,value\na,1,2\nb,x,\n", "f.csv, row 2, column value has no value for a feature"),
        ("node,word,value\na,1,2\nb,1,inf\n", "f.csv, row 2, column value has the value inf"),
        ("node,word,value\na,1,2\nb,1,1e39\n", "f.csv, row 2, column value has a feature beyond float32"),
        ("node,word,value\na,1,3e38\na,1,3e38\n", "f.csv has rows of the same node and feature, whose sum is beyond"),
        ("node,word,value\na,1,2\nb,1,red\n", "f.csv cannot be read .*column value.*Row #3.*'red'"),
        ("node,word\na,1\nb,-1\n", "f.csv, row 2, column word has the feature -1, and features that are integers are"),
        ("node,word\na,1\nb,2147483647\n", "row 2, column word has the feature 2147483647, .* from 0 to 2147483646"),
        ("node,word\na,1\nb,\n", "f.csv, row 2, column word has no feature: write it"),
        ("node,word\na,p\nb,\n", "f.csv, row 2, column word has no feature: write it"),
        ("node,word\na,p\n,q\n", "f.csv, row 2, column node has no id"),
        ("node,word\na,p\nb\n", "f.csv cannot be read .*Expected 2 columns, got 1"),
        ("node,word\n", "f.csv has no row"),
        ("", "f.csv cannot be read .*Empty CSV"),
    ],
)
def test_wrong_values(compose_dataset, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "e.csv").write_text("source,target\na,b\n")
    (tmp_path / "f.csv").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(compose_dataset("table", edges=[str(tmp_path / "e.csv")], feature_table=[str(tmp_path / "f.csv")]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "keys", "message"),
    [
        (
            {"node": ["a"], "p": [1], "q": [2]},
            {},
            "no column that is known as the name of its features: set dataset.fea",
        ),
        ({"node": ["a"], "word": [1], "term": [2]}, {}, "may be dataset.feature_name: choose one of word, term"),
        ({"p": ["a"], "q": [1]}, {"feature_node": "x"}, "dataset.feature_node=x is no column of feature_table"),
        (
            {"p": ["a"], "q": [1]},
            {"feature_node": "p", "feature_name": "p"},
            "feature_node and .*feature_name are both p",
        ),
        ({"node": ["a"], "word": [1]}, {"feature_value": "word"}, "dataset.feature_value=word is no column of"),
        ({"node": ["a"], "word": [1.5]}, {}, "column word has the type double"),
        (
            {"node": ["a"], "word": [7]},
            {"feature_channels": 7},
            "has the feature 7, .* from 0 to 6: .*feature_channels",
        ),
        (
            {"node": ["a"], "word": ["7"]},
            {"feature_channels": 7},
            "has features that are texts, and dataset.feature_cha",
        ),
        ({"node": ["a"], "word": [1]}, {"features": "degree"}, "both give the features: leave one out"),
        (None, {"feature_name": "word"}, "feature_name is given, and there is no table of features"),
        (None, {"feature_channels": 3}, "feature_channels is given, and belongs to dataset.features=random and to"),
    ],
)
def test_wrong_keys(table: Any, keys: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        features_of(table, **keys)


@pytest.mark.sample(6)
def test_a_training_equals_that_of_dense_features(tmp_path: Path) -> None:
    edges, nodes = tables("text")
    features, matrix = rows(nodes["id"], "text", True)
    nodes = nodes.drop(columns=["f_0", "f_1"])
    for name, frame in {"edges": edges, "nodes": nodes, "words": features}.items():
        write(frame, tmp_path / f"{name}.csv")
    settings = ["train.epochs=3", "runtime.device=cpu"]
    keys = [
        "dataset=table",
        *(f"dataset.{key}={key}.csv" for key in ("edges", "nodes")),
        "dataset.feature_table=words.csv",
    ]
    done = run_command(OWN, *keys, *settings, "optimizations.sparse_features=true", "run_dir=sparse", cwd=tmp_path)
    assert done.status == 0, done.output
    assert "node=node, feature=word, value=value" in done.output
    dense = pandas.concat([nodes, pandas.DataFrame(matrix.toarray()).add_prefix("f_")], axis=1)
    train_graph(Graph.from_tables(edges, dense), *settings, f"run_dir={tmp_path / 'dense'}")
    losses, expected = (
        [json.loads(line)["loss"] for line in (tmp_path / run / "epochs.jsonl").read_text().splitlines()]
        for run in ("sparse", "dense")
    )
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert len(losses) == 3 and losses[0] > losses[-1]
