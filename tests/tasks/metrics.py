"""Helpers that test_metrics.py shares with other test modules."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from fullgnn.graph import Graph

SPLITS = ("train", "val", "test")


def labelled(labels: Any, split: Sequence[int], num_classes: int = 0) -> Graph:
    """A ring whose node i is in the split ``SPLITS[split[i]]``; -1: in none."""
    labels, split = np.asarray(labels), np.asarray(split)
    node = np.arange(len(labels))
    edges = np.stack([node, (node + 1) % len(node)])
    masks = {f"{name}_mask": split == number for number, name in enumerate(SPLITS)}
    features = np.ones((len(node), 1), np.float32)
    graph = Graph.from_edge_index(edges, num_nodes=len(node), features=features, labels=labels, **masks)
    return dataclasses.replace(graph, num_classes=num_classes) if num_classes else graph
