"""How every scheme hands out the rows of the nodes.

A scheme differs from another one in the blocks of the matrix. Features, labels and masks follow the rows that a rank
holds.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from fullgnn.distributed import World, receive_arrays, send_arrays
from fullgnn.graph import Graph
from fullgnn.graph.links import LinkFacts, LinkPairs, Lists
from fullgnn.schemes.base import PreparedGraph, RowPairs, ShardedGraph
from fullgnn.schemes.block import Block

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class GraphFacts:
    """What every rank knows of the nodes of the whole graph."""

    dtype: torch.dtype  # of features and of the entries that are multiplied
    num_nodes: int
    num_classes: int
    num_split_nodes: tuple[int, int, int]  # train, val, test
    links: LinkFacts | None = None  # None: the pairs were not requested

    @classmethod
    def of(cls, prepared: PreparedGraph) -> "GraphFacts":
        graph: Graph = prepared.graph
        masks = (graph.train_mask, graph.val_mask, graph.test_mask)
        num_train, num_val, num_test = (int(mask.sum()) for mask in masks)
        dtype = getattr(torch, prepared.dtype.name)
        links = None if prepared.pairs is None else prepared.pairs.facts
        return cls(dtype, graph.num_nodes, graph.num_classes, (num_train, num_val, num_test), links)


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
    """The ids, features, labels and masks of some ``rows``, and their pairs if they were requested."""
    graph = prepared.graph
    pairs = {} if prepared.pairs is None else _pair_arrays(prepared.pairs, prepared.node_id[rows])
    return pairs | {
        "node_id": prepared.node_id[rows].copy(),
        "features": graph.features[rows].astype(prepared.dtype),
        "labels": graph.labels[rows].copy(),
        "masks": np.stack([graph.train_mask[rows], graph.val_mask[rows], graph.test_mask[rows]]),
    }


_LISTS = ("train", "val", "test", "known", "held")


def _pair_arrays(pairs: LinkPairs, node_id: np.ndarray) -> Arrays:
    """The fields of ``RowPairs`` for the nodes ``node_id``."""
    starts = [lists.indptr[node_id] for lists in (pairs.train, pairs.val, pairs.test)]
    arrays = {"pairs.first": np.stack(starts)}
    for name in _LISTS:
        own = getattr(pairs, name).of(node_id)
        arrays |= {f"pairs.{name}.indptr": own.indptr, f"pairs.{name}.ids": own.ids}
    return arrays


def _row_pairs(facts: LinkFacts | None, arrays: Arrays) -> RowPairs | None:
    if facts is None:
        return None
    lists = {name: Lists(arrays[f"pairs.{name}.indptr"], arrays[f"pairs.{name}.ids"]) for name in _LISTS}
    return RowPairs(facts, **lists, first=arrays["pairs.first"])


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
        pairs=_row_pairs(facts.links, arrays),
    )
