"""Damaged tables: each is refused by one line, or read as another reader reads it.

CSV files are read by Python's own module here, value by value, and Parquet files by pyarrow as a whole.
"""

import csv
import inspect
import io
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from fullgnn.graph import Graph
from fullgnn.graph.datasets import table
from tests.damage import damaged, damaged_text
from tests.graph.datasets.damage import assert_survives_damage

Files = dict[str, bytes]
Columns = dict[str, list[Any]]
MASKS = ("train_mask", "val_mask", "test_mask")


def tables(of_id: Callable[[int], Any]) -> dict[str, Columns]:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 12, (2, 40)).tolist()
    edges = {"source": [*map(of_id, ends[0])], "target": [*map(of_id, ends[1])]}
    edges["weight"] = (rng.integers(1, 99, 40) / 8).tolist()
    nodes = {"id": [of_id(node) for node in range(12)], "f_0": rng.integers(-9, 9, 12).astype(float).tolist()}
    nodes["f_1"] = (rng.integers(-99, 99, 12) / 16).tolist()
    nodes["label"] = [f"class {node % 3}" for node in range(12)]
    for part, mask in enumerate(MASKS):
        nodes[mask] = [node % 4 == part for node in range(12)]
    return {"edges": edges, "nodes": nodes}


def with_features(of_id: Callable[[int], Any], of_word: Callable[[int], Any]) -> dict[str, Columns]:
    rng = np.random.default_rng(1)
    features = {"node": [*map(of_id, rng.integers(0, 12, 40).tolist())]}
    features["word"] = [*map(of_word, rng.integers(0, 9, 40).tolist())]
    features["value"] = (rng.integers(-8, 99, 40) / 8).tolist()
    by_name = tables(of_id) | {"features": features}
    for unread in ("f_0", "f_1"):
        del by_name["nodes"][unread]
    return by_name


def csv_files(given: dict[str, Columns]) -> Files:
    files = {}
    for name, columns in given.items():
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values()))]
        files[f"{name}.csv"] = ("\n".join(lines) + "\n").encode()
    return files


def parquet_files(given: dict[str, Columns]) -> Files:
    files = {}
    for name, columns in given.items():
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns), buffer, row_group_size=9)
        files[f"{name}.parquet"] = buffer.getvalue()
    return files


def csv_columns(content: bytes) -> Columns:
    text = content.decode("utf-8-sig")
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    assert all(len(row) == len(rows[0]) for row in rows)
    return {name: [row[place] for row in rows[1:]] for place, name in enumerate(rows[0])}


def parquet_columns(content: bytes) -> Columns:
    """The columns that are read; a damaged name hides a column."""
    names = pyarrow.parquet.read_schema(io.BytesIO(content)).names
    used = [
        name for name in names if re.fullmatch(r"source|target|weight|id|label|f_\d+|.*_mask|node|word|value", name)
    ]
    table = pyarrow.parquet.ParquetFile(io.BytesIO(content)).read(used)
    return {
        name: texts(column) if column.type == pyarrow.string() else column.to_pylist()
        for name, column in zip(used, table.columns)
    }


def texts(column: pyarrow.ChunkedArray) -> list[str | None]:
    """Also of bytes that are no UTF-8, which a word of a feature may have."""
    values = column.cast(pyarrow.binary()).to_pylist()
    return [None if value is None else value.decode(errors="surrogateescape") for value in values]


def kind_of(ids: list[Any]) -> Callable[[Any], Any]:
    """int, or str if any of the ids is a text."""
    are_integers = all(re.fullmatch(r" *-?\d{1,99} *", str(id_)) and -(2**63) <= int(id_) < 2**63 for id_ in ids)
    return int if are_integers else str


def check_graph(graph: Graph, edges: Columns, nodes: Columns, features: Columns | None = None) -> None:
    """Compare by the ids, which are texts here if any of them is."""
    ids = [*edges["source"], *edges["target"], *nodes["id"], *(features or {"node": []})["node"]]
    number = kind_of(ids)
    names = [number(id_) for id_ in nodes["id"]]
    assert graph.node_names is not None and graph.node_names.tolist() == names
    expected: dict[tuple[Any, Any], float] = {}
    weights = edges["weight"] if "weight" in edges else [1.0] * len(edges["source"])
    for u, v, weight in zip(edges["source"], edges["target"], weights):
        expected[number(u), number(v)] = expected.get((number(u), number(v)), 0.0) + float(weight)
    rows, columns = graph.adjacency().nonzero()
    stored_weights = np.ones(graph.num_edges) if graph.weight is None else graph.weight
    stored = {(names[u], names[v]): float(w) for v, u, w in zip(rows, columns, stored_weights)}
    if "weight" in edges:
        assert stored.keys() == {arc for arc, weight in expected.items() if weight}
        assert all(math.isclose(stored[arc], expected[arc], rel_tol=1e-9) for arc in stored)
    else:
        assert stored.keys() == expected.keys()
    if features is None:
        dense = [name for name in nodes if re.fullmatch(r"f_\d+", name)]
        given = np.array([[float(value) for value in nodes[name]] for name in dense], np.float32).T
        np.testing.assert_array_equal(graph.features, given.reshape(len(names), len(dense)))
    else:
        check_features(graph, names, [number(id_) for id_ in features["node"]], features)
    known = [label >= 0 for label in graph.labels.tolist()] if "label" in nodes else [True] * len(names)
    for mask in MASKS:
        given = [str(flag).strip().lower() in ("true", "1", "1.0") for flag in nodes.get(mask, [])]
        flags = getattr(graph, mask).tolist()
        assert flags == ([*map(min, given, known)] if nodes.keys() >= {*MASKS} else [False] * len(names))
    if "label" in nodes:
        assert graph.class_names is not None
        labels = [graph.class_names[label] if label >= 0 else "" for label in graph.labels.tolist()]
        unknown = ("", "na", "n/a", "nan", "null", "none")
        assert labels == ["" if str(label).strip().lower() in unknown else label for label in nodes["label"]]


def check_features(graph: Graph, names: list[Any], of_rows: list[Any], features: Columns) -> None:
    words = [kind_of(features["word"])(word) for word in features["word"]]
    order = (
        range(2**31)
        if kind_of(features["word"]) is int
        else sorted({*words}, key=lambda word: word.encode(errors="surrogateescape"))
    )
    assert graph.features.shape[1] == (max(words) + 1 if isinstance(order, range) else len(order))
    expected: dict[tuple[int, int], float] = {}
    for node, word, value in zip(of_rows, words, features.get("value", [1.0] * len(words))):
        place = names.index(node), order.index(word)
        expected[place] = expected.get(place, 0.0) + float(value)
    rows, columns = graph.features.nonzero()
    stored = dict(zip(zip(rows.tolist(), columns.tolist()), graph.features.data.tolist()))
    assert stored.keys() == {place for place, value in expected.items() if value}
    assert all(math.isclose(stored[place], expected[place], rel_tol=1e-6) for place in stored)


def integer(number: int) -> int:
    return number * 2**40 - 7


def text(number: int) -> str:
    return f"n\u00f6 {number}"


FORMATS: dict[str, tuple[Files, Callable[[bytes, int], bytes], Callable[[bytes], Columns]]] = {
    "integers": (csv_files(tables(integer)), damaged_text, csv_columns),
    "texts": (csv_files(tables(text)), damaged_text, csv_columns),
    "bytes": (csv_files(tables(text)), damaged, csv_columns),
    "parquet": (parquet_files(tables(integer)), damaged, parquet_columns),
    "words": (csv_files(with_features(integer, text)), damaged_text, csv_columns),
    "columns": (csv_files(with_features(text, lambda word: word)), damaged_text, csv_columns),
    "parquet words": (parquet_files(with_features(integer, text)), damaged, parquet_columns),
}


def load(folder: Path, suffix: str) -> Graph:
    files = {"edges": "edges", "nodes": "nodes", "feature_table": "features"}
    paths = {key: folder / f"{name}{suffix}" for key, name in files.items()}
    keys: dict[str, Any] = dict.fromkeys(inspect.signature(table.load).parameters)
    keys |= {key: [str(path)] for key, path in paths.items() if path.exists()}
    return table.load(**keys | {"unknown_nodes": "refuse", "seed": 0})


def check(name: str, folder: Path, files: Files, file: str | None, seed: int) -> None:
    _, damage, columns = FORMATS[name]
    if file is not None:
        files = files | {file: damage(files[file], seed)}
    for other, content in files.items():
        (folder / other).write_bytes(content)
    graph = load(folder, Path(other).suffix)
    check_graph(graph, *(columns(content) for content in files.values()))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_table_is_refused_or_read_right(name: str, tmp_path: Path, every_case: bool) -> None:
    assert_survives_damage(check, name, tmp_path, FORMATS[name][0], every_case)
