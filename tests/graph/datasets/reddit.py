"""Helpers that test_reddit.py shares with other test modules."""

import numpy as np
import pytest
import scipy.sparse

NUM_NODES = 40


@pytest.fixture
def write(tmp_path):
    """Writes the two files, some arrays changed, to a folder ``raw``."""

    def build(data=(), graph=()):
        rng = np.random.default_rng(0)
        arcs = rng.integers(0, NUM_NODES, (2, 200))  # several of them twice, and self-loops
        raw = tmp_path / "raw"
        raw.mkdir(exist_ok=True)
        arrays = dict(
            feature=rng.standard_normal((NUM_NODES, 3)),
            label=rng.integers(0, 4, NUM_NODES),
            node_types=np.repeat([1, 2, 3, 1], 10),
            node_ids=np.arange(NUM_NODES),
        )
        np.savez(raw / "reddit_data.npz", **(arrays | dict(data)))
        ends = arcs[0].astype(np.int32), arcs[1].astype(np.int32)
        adj = scipy.sparse.coo_matrix((np.arange(200.0), ends), shape=(NUM_NODES, NUM_NODES))  # one entry is 0
        scipy.sparse.save_npz(raw / "reddit_graph.npz", adj)
        if graph:
            with np.load(raw / "reddit_graph.npz") as kept:
                np.savez(raw / "reddit_graph.npz", **{**kept, **dict(graph)})
        return raw

    return build
