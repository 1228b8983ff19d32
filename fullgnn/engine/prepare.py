"""From a dataset to the ordered, normalised graph: load, reorder, normalise. Runs on rank 0."""

import time
from dataclasses import dataclass

import numpy as np

from fullgnn.config import Config, build
from fullgnn.graph import Graph, is_symmetric, load_dataset, normalized_adjacency
from fullgnn.reorder import blockwise
from fullgnn.schemes.base import PreparedGraph


@dataclass(frozen=True)
class Preparation:
    """What there is to say about the prepared graph; small, and shared with every rank."""

    dataset: str
    num_nodes: int
    num_edges: int  # stored non-zeros before self-loops are added
    nnz: int  # stored non-zeros of the normalised adjacency
    symmetric: bool
    num_features: int
    num_classes: int
    num_blocks: int  # of the reordering
    reorder_time_s: float
    prepare_time_s: float  # load, reorder, permute, normalise


def prepare(cfg: Config, num_parts: int, graph: Graph | None = None) -> tuple[PreparedGraph, Preparation]:
    """Load ``cfg.dataset`` (or take ``graph``), order it blockwise and normalise its adjacency.

    The blocks of the order are those of the partition into ``num_parts`` block rows, unless the configuration asks
    for the whole graph or for another number.

    Raises:
        DataError, ConfigError, PartitionError: see the rooms ``graph`` and ``reorder``.
    """
    begin = time.perf_counter()
    if graph is None:
        graph = load_dataset(cfg.dataset)
    num_edges = graph.num_edges

    reorder_begin = time.perf_counter()
    num_blocks = 1 if cfg.reorder.scope == "whole" else cfg.reorder.num_blocks or num_parts
    perm = blockwise(graph.adjacency(np.float32), build(cfg.reorder.method), num_blocks, cfg.seed)
    reorder_time_s = time.perf_counter() - reorder_begin

    graph = graph.permute(perm)
    adj = normalized_adjacency(graph, cfg.normalization, cfg.self_loops, np.dtype(cfg.runtime.dtype))
    symmetric = is_symmetric(adj)
    adj_t = None if symmetric else adj.T.tocsr()
    return PreparedGraph(graph, perm, adj, adj_t), Preparation(
        dataset=graph.name,
        num_nodes=graph.num_nodes,
        num_edges=num_edges,
        nnz=adj.nnz,
        symmetric=symmetric,
        num_features=graph.num_features,
        num_classes=graph.num_classes,
        num_blocks=num_blocks,
        reorder_time_s=reorder_time_s,
        prepare_time_s=time.perf_counter() - begin,
    )
