"""Graphs as large as known ones, made on the device."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from fullgnn.bench.gpu.random_graph import RandomGraph, hierarchical_sbm
from fullgnn.config import conf_dir
from fullgnn.kernels.spmm import LocalCSR


@dataclass(frozen=True)
class Lookalike:
    """The sizes of a graph, and the hidden width of the model that is usually trained on it."""

    num_nodes: int
    num_edges: int  # both directions, and a self-loop for each node
    num_features: int
    num_classes: int
    hidden: int

    def scaled(self, scale: float) -> tuple[int, int]:
        """Nodes and stored entries without self-loops, at constant mean degree, as ``graph.datasets.synthetic``."""
        return round(self.num_nodes * scale), 2 * round((self.num_edges - self.num_nodes) * scale / 2)

    def num_bytes(self, scale: float) -> float:
        """Device memory that the graph and its training need at most: keys being sorted, kernels, features."""
        num_nodes, num_entries = self.scaled(scale)
        return 130.0 * num_entries + 4.0 * num_nodes * (4 * self.num_features + 8 * self.hidden)


def _dataset(name: str) -> dict[str, Any]:
    return yaml.safe_load((conf_dir() / "dataset" / f"{name}.yaml").read_text())


_HIDDEN = {"reddit-like": 128, "proteins-like": 128, "archaea-like": 128, "products-like": 64}
_SIZES = ("num_nodes", "num_edges", "num_features", "num_classes")
LOOKALIKES = {
    name: Lookalike(**{key: _dataset(name)[key] for key in _SIZES}, hidden=hidden) for name, hidden in _HIDDEN.items()
}
"""The choices of ``conf/dataset`` that are measured."""

TOYS = {"toy": Lookalike(96, 768, 20, 5, 8)}
COMMON = _dataset("synthetic")
"""The values that all look-alikes share."""


def generate(shape: Lookalike, scale: float, seed: int, device: torch.device) -> RandomGraph:
    """A graph of ``shape`` whose communities are the classes."""
    num_nodes, num_entries = shape.scaled(scale)
    return hierarchical_sbm(num_nodes, num_entries, shape.num_classes, COMMON["global_share"], seed, device)


def metis_order(csr: LocalCSR, seed: int) -> Tensor:
    """The order that ``reorder=metis`` finds in a run."""
    from scipy.sparse import csr_array

    from fullgnn.reorder import metis

    indptr, indices = csr.indptr.cpu().numpy(), csr.indices.cpu().numpy()
    adj = csr_array((np.ones(csr.nnz, np.int8), indices, indptr), shape=(csr.num_rows,) * 2)
    return torch.from_numpy(metis(adj, seed)).to(csr.indptr.device)
