"""Graphs as large as known ones, made on the device: the sizes of ``conf/dataset`` and how to generate them."""

from dataclasses import dataclass
from typing import Any

import torch
import yaml

from fullgnn.config import conf_dir
from fullgnn.graph.datasets.synthetic import scaled_sizes
from fullgnn.graph.generate_on_device import RandomGraph, random_graph


@dataclass(frozen=True)
class Lookalike:
    """The sizes of a graph, and the hidden width of the model that is usually trained on it."""

    num_nodes: int
    num_edges: int  # both directions, and a self-loop for each node
    num_features: int
    num_classes: int
    hidden: int

    def scaled(self, scale: float) -> tuple[int, int]:
        """Nodes and stored entries without self-loops, at constant mean degree."""
        return scaled_sizes(self.num_nodes, self.num_edges, scale)


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
    return random_graph(num_nodes, num_entries, shape.num_classes, COMMON["global_share"], seed, device)
