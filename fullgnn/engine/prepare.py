"""From a dataset to the ordered, normalised graph: load, partition, reorder, normalise. Runs on rank 0."""

import time
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from fullgnn.config import Config, build
from fullgnn.graph import Graph, adjacency_operator, load_dataset
from fullgnn.partition import Partition
from fullgnn.reorder import check_order, two_level
from fullgnn.reorder.measure import edge_cut, halo_share, needed_rows
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
    partition: str  # that was used, after a fallback
    reorder: str
    num_blocks: int  # of the reordering
    edge_cut: float  # share of the non-zeros between two block rows
    needed_row_ratio: float | None  # rows that block rows read of each other / all; None with one block row
    partition_time_s: float
    reorder_time_s: float
    prepare_time_s: float  # load, partition, reorder, permute, normalise


def check_preparation(cfg: Config) -> None:
    """Refuse choices of partition and order that contradict each other, before anything is started or loaded.

    Raises:
        ConfigError: one line, the same wherever it is called.
    """
    check_order(build(cfg.partition), cfg.reorder.scope, cfg.reorder.num_blocks)


def prepare(cfg: Config, num_parts: int, graph: Graph | None = None) -> tuple[PreparedGraph, Preparation]:
    """Load ``cfg.dataset`` (or take ``graph``), cut it into ``num_parts`` block rows, order it and normalise it.

    Raises:
        DataError, ConfigError, PartitionError: see the rooms ``graph``, ``partition`` and ``reorder``.
    """
    begin = time.perf_counter()
    if graph is None:
        graph = load_dataset(cfg.dataset)
    num_edges = graph.num_edges
    order = two_level(
        graph.adjacency(np.float32),
        graph.train_mask,
        build(cfg.partition),
        build(cfg.reorder.method),
        cfg.reorder.scope,
        num_parts,
        cfg.reorder.num_blocks,
        cfg.seed,
    )
    graph = graph.permute(order.perm)
    dtype = np.dtype(cfg.runtime.dtype)
    adj = adjacency_operator(graph, cfg.normalization, cfg.self_loops, dtype, cfg.work.fold_normalization)
    return PreparedGraph(graph, order.perm, adj, order.partition, dtype), Preparation(
        dataset=graph.name,
        num_nodes=graph.num_nodes,
        num_edges=num_edges,
        nnz=adj.nnz,
        symmetric=adj.symmetric,
        num_features=graph.num_features,
        num_classes=graph.num_classes,
        partition=order.partition_used,
        reorder=order.reorder_used,
        num_blocks=order.num_blocks,
        edge_cut=edge_cut(adj.matrix, order.partition),
        needed_row_ratio=_needed_row_ratio(adj.matrix, order.partition),
        partition_time_s=order.partition_time_s,
        reorder_time_s=order.reorder_time_s,
        prepare_time_s=time.perf_counter() - begin,
    )


def _needed_row_ratio(matrix: csr_array, partition: Partition) -> float | None:
    if partition.num_parts == 1:
        return None
    return halo_share(needed_rows(matrix, partition), partition.num_nodes)
