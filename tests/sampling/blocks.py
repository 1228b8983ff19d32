"""Helpers that test_blocks.py shares with other test modules."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array

from fullgnn.graph import Graph, Propagation
from fullgnn.sampling.hop import Hop
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.neighbors import NeighborSampler
from fullgnn.schemes import BlockRequest
from tests.oracle import normalize

CPU = torch.device("cpu")
NUM_NODES, NUM_FEATURES, NUM_CLASSES = 40, 6, 3


@dataclass(frozen=True)
class Case:
    adj: np.ndarray  # (n, n) dense
    graph: Graph

    @classmethod
    def of(cls, weighted: bool) -> "Case":
        rng = np.random.default_rng(2)
        adj = (rng.random((NUM_NODES, NUM_NODES)) < 0.25).astype(float)
        adj[3] = adj[:, 5] = 0
        adj[7] = 1
        if weighted:
            adj *= rng.integers(1, 9, adj.shape) / 8
        features = rng.standard_normal((NUM_NODES, NUM_FEATURES))
        return cls(adj, Graph.from_scipy(csr_array(adj), features=features))

    def host(self, request: BlockRequest) -> HostGraph:
        return HostGraph.of(self.graph, request, "float64")

    def sampler(self, fanouts: list[int], replace: bool = False, weighted: bool = False) -> NeighborSampler:
        arrays = self.graph.indptr, self.graph.indices
        return NeighborSampler(*arrays, fanouts, self.graph.weight, replace, weighted, seed=4, keep_places=True)


def drawn_edges(case: Case, hop: Hop) -> list[tuple[int, int, float, float]]:
    """(target, source, weight, factor) of each edge, targets and sources as GLOBAL ids."""
    edges = []
    degree = np.diff(case.graph.indptr)
    for i, v in enumerate(hop.sources[hop.target_index]):
        count = hop.indptr[i + 1] - hop.indptr[i]
        for e in range(hop.indptr[i], hop.indptr[i + 1]):
            u = hop.sources[hop.indices[e]]
            factor = degree[v] / count if hop.factors is None else hop.factors[e]
            edges.append((int(v), int(u), case.adj[v, u], float(factor)))
    return edges


def dense_product(case: Case, hop: Hop[np.ndarray], propagation: Propagation) -> np.ndarray:
    """(num_targets, num_sources): the entries of A that were drawn, times their factors."""
    full = normalize(case.adj, propagation.normalization, propagation.self_loops)
    place = {int(v): i for i, v in enumerate(hop.sources)}
    out = np.zeros((hop.num_targets, len(hop.sources)))
    for i, v in enumerate(hop.sources[hop.target_index]):
        if propagation.self_loops:
            out[i, place[int(v)]] = full[v, v]
    row = {int(v): i for i, v in enumerate(hop.sources[hop.target_index])}
    for v, u, _, factor in drawn_edges(case, hop):
        if u != v or not propagation.self_loops:
            out[row[v], place[u]] += full[v, u] * factor
    return out
