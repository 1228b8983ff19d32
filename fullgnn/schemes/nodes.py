"""What every scheme does with the rows of the nodes: hand them out, and gather rows of a result.

A scheme differs from another one in the blocks of the matrix. Features, labels and masks follow the rows that a rank
holds.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fullgnn.distributed import World, receive_arrays, send_arrays
from fullgnn.graph import Graph
from fullgnn.schemes.base import PreparedGraph, ShardedGraph
from fullgnn.schemes.block import Block

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class GraphFacts:
    """What every rank knows of the nodes of the whole graph."""

    dtype: torch.dtype  # of features and of the entries that are multiplied
    num_nodes: int
    num_classes: int
    num_split_nodes: tuple[int, int, int]  # train, val, test

    @classmethod
    def of(cls, prepared: PreparedGraph) -> "GraphFacts":
        graph: Graph = prepared.graph
        masks = (graph.train_mask, graph.val_mask, graph.test_mask)
        num_train, num_val, num_test = (int(mask.sum()) for mask in masks)
        dtype = getattr(torch, prepared.dtype.name)
        return cls(dtype, graph.num_nodes, graph.num_classes, (num_train, num_val, num_test))


def hand_out(world: World, cut: Callable[[int], Arrays] | None) -> Arrays:
    """Give each rank its arrays, which rank 0 cuts one rank after the other.

    Args:
        cut: on rank 0, and in a dry run, the arrays of a rank; None elsewhere.
    """
    if cut is None:
        return receive_arrays(0)
    for rank in world.others:
        send_arrays(cut(rank), rank)
    return cut(world.rank)


def node_arrays(prepared: PreparedGraph, rows: slice) -> Arrays:
    """The ids, features, labels and masks of some ``rows``."""
    graph = prepared.graph
    return {
        "node_id": prepared.node_id[rows].copy(),
        "features": graph.features[rows].astype(prepared.dtype),
        "labels": graph.labels[rows].copy(),
        "masks": np.stack([graph.train_mask[rows], graph.val_mask[rows], graph.test_mask[rows]]),
    }


def sharded_graph(facts: GraphFacts, arrays: Arrays, block: Block, loss_block: Block | None = None) -> ShardedGraph:
    """The part of this rank, from its blocks and its ``node_arrays``. The features stay on the host."""
    labels, masks = (torch.from_numpy(arrays[name]).to(block.source_id.device) for name in ("labels", "masks"))
    features = torch.from_numpy(arrays["features"])
    return ShardedGraph(
        block=block,
        loss_block=loss_block,
        features=features,
        labels=labels,
        masks=masks,
        num_features=features.shape[1],
        num_classes=facts.num_classes,
        num_split_nodes=facts.num_split_nodes,
    )


def gather_rows(world: World, node_id: Tensor, rows: Tensor, num_nodes: int, stride: int = 1) -> Tensor | None:
    """Gather the rows of all nodes on rank 0.

    Args:
        node_id: (num_own,) int64, original ids of this rank's rows.
        rows: (num_own, F).
        stride: how many consecutive ranks hold the same rows; only the first of them sends.

    Returns:
        (num_nodes, F) on the host, in original node order; None on the other ranks.
    """
    local = {"node_id": node_id.cpu().numpy(), "rows": rows.detach().cpu().numpy()}
    sources = range(0, world.size, stride)
    if world.rank != 0:
        if world.rank in sources:
            send_arrays(local, 0)
        return None
    out = np.empty((num_nodes, rows.shape[1]), local["rows"].dtype)
    for part in (local, *(receive_arrays(source) for source in sources[1:])):
        out[part["node_id"]] = part["rows"]
    return torch.from_numpy(out)
