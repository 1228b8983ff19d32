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
from tests.damage import assert_refused_or_right, damaged, damaged_text

NUM_DAMAGES, NUM_IN_SAMPLE = 300, 10
Files = dict[str, bytes]
Columns = dict[str, list[Any]]


def tables(of_id: Callable[[int], Any]) -> dict[str, Columns]:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 12, (2, 40)).tolist()
    edges = {"source": [*map(of_id, ends[0])], "target": [*map(of_id, ends[1])]}
    edges["weight"] = (rng.integers(1, 99, 40) / 8).tolist()
    nodes = {"id": [of_id(node) for node in range(12)], "f_0": rng.integers(-9, 9, 12).astype(float).tolist()}
    nodes["f_1"] = (rng.integers(-99, 99, 12) / 16).tolist()
    nodes["label"] = [f"class {node % 3}" for node in range(12)]
    return {"edges": edges, "nodes": nodes}


def csv_files(of_id: Callable[[int], Any]) -> Files:
    files = {}
    for name, columns in tables(of_id).items():
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values()))]
        files[f"{name}.csv"] = ("\n".join(lines) + "\n").encode()
    return files


def parquet_files() -> Files:
    files = {}
    for name, columns in tables(lambda node: node * 2**40 - 7).items():
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
    used = [name for name in names if re.fullmatch(r"source|target|weight|id|label|f_\d+", name)]
    return pyarrow.parquet.read_table(io.BytesIO(content), columns=used).to_pydict()


def check_graph(graph: Graph, edges: Columns, nodes: Columns) -> None:
    """Compare by the ids, which are texts here if any of them is."""
    ids = [*edges["source"], *edges["target"], *nodes["id"]]
    number = int if all(re.fullmatch(r" *-?\d+ *", str(one)) and -(2**63) <= int(one) < 2**63 for one in ids) else str
    names = [number(one) for one in nodes["id"]]
    assert graph.node_names is not None and graph.node_names.tolist() == names
    expected: dict[tuple[Any, Any], float] = {}
    weights = edges["weight"] if "weight" in edges else [1.0] * len(edges["source"])
    for u, v, weight in zip(edges["source"], edges["target"], weights):
        expected[number(u), number(v)] = expected.get((number(u), number(v)), 0.0) + float(weight)
    rows, columns = graph.adjacency().nonzero()
    found_weights = np.ones(graph.num_edges) if graph.weight is None else graph.weight
    found = {(names[u], names[v]): float(w) for v, u, w in zip(rows, columns, found_weights)}
    if "weight" in edges:
        assert found.keys() == {arc for arc, weight in expected.items() if weight}
        assert all(math.isclose(found[arc], expected[arc], rel_tol=1e-9) for arc in found)
    else:
        assert found.keys() == expected.keys()
    features = [name for name in nodes if re.fullmatch(r"f_\d+", name)]
    given = np.array([[float(value) for value in nodes[name]] for name in features], np.float32).T
    np.testing.assert_array_equal(graph.features, given.reshape(len(names), len(features)))
    if "label" in nodes:
        assert graph.class_names is not None
        labels = [graph.class_names[one] if one >= 0 else "" for one in graph.labels.tolist()]
        unknown = ("", "na", "n/a", "nan", "null", "none")
        assert labels == ["" if str(one).strip().lower() in unknown else one for one in nodes["label"]]


FORMATS: dict[str, tuple[Files, Callable[[bytes, int], bytes], Callable[[bytes], Columns]]] = {
    "integers": (csv_files(lambda node: node * 2**40 - 7), damaged_text, csv_columns),
    "texts": (csv_files(lambda node: f"n\u00f6 {node}"), damaged_text, csv_columns),
    "bytes": (csv_files(lambda node: f"n\u00f6 {node}"), damaged, csv_columns),
    "parquet": (parquet_files(), damaged, parquet_columns),
}


def load(folder: Path, suffix: str) -> Graph:
    edges, nodes = ([str(folder / f"{name}{suffix}")] for name in ("edges", "nodes"))
    keys = dict.fromkeys(inspect.signature(table.load).parameters)
    return table.load(**keys | {"edges": edges, "nodes": nodes, "unknown_nodes": "refuse", "seed": 0})


def check(name: str, folder: Path, file: str | None, seed: int) -> None:
    files, damage, columns = FORMATS[name]
    if file is not None:
        files = files | {file: damage(files[file], seed)}
    for other, content in files.items():
        (folder / other).write_bytes(content)
    graph = load(folder, Path(other).suffix)
    edges, nodes = (columns(content) for content in files.values())
    check_graph(graph, edges, nodes)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_table_is_refused_or_read_right(name: str, tmp_path: Path, every_case: bool) -> None:
    names = list(FORMATS[name][0])
    check(name, tmp_path, None, 0)  # without damage
    count = NUM_DAMAGES if every_case else NUM_IN_SAMPLE
    cases = [(name, tmp_path, names[seed // 3 % 2], seed) for seed in range(count)]
    assert_refused_or_right(check, cases)
