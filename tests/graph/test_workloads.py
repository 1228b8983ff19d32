"""The generated graphs are bitwise equal on every machine, so that results of different days are comparable."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from fullgnn.graph import Graph
from fullgnn.graph.workloads import WORKLOADS, load_workload
from tests.graph.symmetry import is_symmetric

TINY = {
    "indptr": "7621d96394350bce",
    "indices": "44636b8a7cdc9015",
    "labels": "0eb4c89ad7110426",
    "features": "54f118b5894ca4a9",
    "train_mask": "833a13dea36cd09e",
}
"""The first digits of the SHA-256 of each array of ``tiny``."""


@pytest.fixture(scope="module")
def tiny() -> Graph:
    return load_workload("tiny", cache_dir=None)


def digests(graph: Graph) -> dict[str, str]:
    return {name: hashlib.sha256(getattr(graph, name).tobytes()).hexdigest()[:16] for name in TINY}


def test_tiny_is_what_it_always_was(tiny: Graph) -> None:
    assert digests(tiny) == TINY


def test_the_cache_holds_the_same_graph(tiny: Graph, tmp_path: Path) -> None:
    for _ in range(2):
        assert digests(load_workload("tiny", str(tmp_path))) == TINY
    assert [path.name for path in tmp_path.iterdir()] == ["tiny-0.npz"]


def test_another_seed_is_another_graph() -> None:
    assert digests(load_workload("tiny", None, seed=1)) != TINY


def test_tiny_is_an_undirected_graph_of_communities(tiny: Graph) -> None:
    workload = WORKLOADS["tiny"]
    assert (tiny.num_nodes, tiny.num_features, tiny.num_classes) == (2000, 32, 7)
    assert 0.95 * workload.num_edges < tiny.num_edges <= workload.num_edges
    rows = np.repeat(np.arange(tiny.num_nodes), np.diff(tiny.indptr))
    assert is_symmetric(tiny.adjacency()) and not (rows == tiny.indices).any()
    assert (tiny.labels[rows] == tiny.labels[tiny.indices]).mean() == pytest.approx(0.79, abs=0.02)
    assert tiny.train_mask.mean() == pytest.approx(0.6, abs=0.05)
