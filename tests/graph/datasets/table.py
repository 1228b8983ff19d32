"""Helpers that test_table.py shares with other test modules."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas

from fullgnn.graph import Graph


def tables(kind: str, num_nodes: int = 60, num_edges: int = 400) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Edges with repeats, and nodes in another order than that of their ids."""
    rng = np.random.default_rng(0)
    ids = rng.choice(np.arange(-(2**62), 2**62, 2**50), num_nodes, replace=False)
    names: Any = ids if kind == "integer" else np.array([f"n\u00e4me {x % 10**9}" for x in ids], object)
    ends = rng.integers(0, num_nodes, (2, num_edges))
    ends[:, 50:60] = ends[:, :10]
    edges = pandas.DataFrame({"src": names[ends[0]], "dst": names[ends[1]]})
    edges["weight"] = rng.integers(1, 9, num_edges) / 4
    nodes = pandas.DataFrame({"id": names, "f_0": rng.standard_normal(num_nodes), "f_1": np.arange(num_nodes)})
    nodes["label"] = np.array(["b", "a", "c"], object)[rng.integers(0, 3, num_nodes)]
    nodes.loc[3, "label"] = None
    nodes["split"] = np.array(["train", "valid", "TEST", None], object)[rng.integers(0, 4, num_nodes)]
    nodes.loc[3, "split"] = None
    return edges, nodes


def names_of(graph: Graph) -> list[Any]:
    assert graph.node_names is not None
    return graph.node_names.tolist()


def write(frame: pandas.DataFrame, path: Path) -> str:
    if path.suffix == ".parquet":
        frame.to_parquet(path, row_group_size=37)
    else:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")
    return str(path)
