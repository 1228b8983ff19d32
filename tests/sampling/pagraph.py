"""Helpers that test_pagraph.py shares with other test modules."""

import numpy as np


def random_graph(num_nodes: int, mean_degree: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A directed graph with hubs, isolated nodes and self-loops."""
    random = np.random.default_rng(seed)
    degree = random.poisson(mean_degree, num_nodes) * (random.random(num_nodes) < 0.9)
    weight = 1 / np.arange(1, num_nodes + 1)
    rows = [np.sort(random.choice(num_nodes, min(int(d), num_nodes), False, weight / weight.sum())) for d in degree]
    return np.concatenate([[0], np.cumsum([len(row) for row in rows])]), np.concatenate(rows).astype(np.int32)
