"""Small drawn graphs in files, for kinds of runs for which no dataset without a file exists."""

from pathlib import Path

import numpy as np
from scipy.sparse import coo_array, csr_array


def write_all(folder: Path) -> None:
    """Write ``links.npz``, ``labels.npz``, ``train.txt`` and ``test.txt``."""
    np.savez(folder / "links.npz", **_graph(num_nodes=60, num_pairs=200, num_features=12, seed=1))  # type: ignore[arg-type]
    several = _graph(num_nodes=90, num_pairs=250, num_features=10, seed=2)
    generator = np.random.default_rng(3)
    several["labels"] = (generator.random((90, 5)) < 0.3).astype(np.int8)
    np.savez(folder / "labels.npz", **several)  # type: ignore[arg-type]
    _write_interactions(folder)


def _graph(num_nodes: int, num_pairs: int, num_features: int, seed: int) -> dict[str, np.ndarray]:
    """An undirected graph with dense features, in the npz layout of gnn-benchmark."""
    generator = np.random.default_rng(seed)
    ends = generator.integers(num_nodes, size=(2, num_pairs))
    ends = ends[:, ends[0] != ends[1]]
    pairs = np.unique(np.concatenate([ends, ends[::-1]], axis=1), axis=1)
    adj = csr_array(coo_array((np.ones(pairs.shape[1], np.float32), tuple(pairs)), shape=(num_nodes, num_nodes)))
    features = generator.integers(-4, 5, size=(num_nodes, num_features)).astype(np.float32) / 4
    parts = {"data": adj.data, "indices": adj.indices, "indptr": adj.indptr, "shape": np.array(adj.shape)}
    return {**{f"adj_{name}": part for name, part in parts.items()}, "attr_matrix": features}


def _write_interactions(folder: Path) -> None:
    """Thirty users, each with five items of forty for training and another one for testing."""
    generator = np.random.default_rng(4)
    train, test = [], []
    for user in range(30):
        *known, held_out = generator.permutation(40)[:6]
        train.append(" ".join(map(str, [user, *known])))
        test.append(f"{user} {held_out}")
    (folder / "train.txt").write_text("\n".join(train) + "\n")
    (folder / "test.txt").write_text("\n".join(test) + "\n")
