"""What every scheme does with the rows of the nodes: hand them out, and gather rows of a result.

A scheme differs from another one in the blocks of the matrix. Features, labels and masks follow the rows that a rank
holds.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fullgnn.distributed import World, receive_arrays, send_arrays
from fullgnn.graph import Graph
from fullgnn.schemes.base import PreparedGraph, ShardedGraph
from fullgnn.schemes.block import Block

Arrays = dict[str, np.ndarray]

PART_BYTES = 1 << 25
"""Bytes of a part of rows that travels at once."""

_LAST = "is the last part"


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
    out = None if world.rank else torch.empty((num_nodes, *rows.shape[1:]), dtype=rows.dtype)
    for part in gather_parts(world, node_id, {"rows": rows}, stride):
        assert out is not None
        out.numpy()[part["node_id"]] = part["rows"]
    return out


def gather_parts(world: World, node_id: Tensor, rows: Mapping[str, Tensor], stride: int = 1) -> Iterator[Arrays]:
    """See ``Scheme.gather_parts``.

    Args:
        node_id, stride: see ``gather_rows``.
    """
    sources = range(0, world.size, stride)
    if world.rank not in sources:
        return
    bytes_of_row = 8 + sum(tensor[:1].nbytes for tensor in rows.values())
    per_part = max(1, PART_BYTES // bytes_of_row)
    starts = range(0, max(1, len(node_id)), per_part)
    for start in starts:
        some = slice(start, start + per_part)
        part = {name: tensor[some].detach().cpu().numpy() for name, tensor in rows.items()}
        part["node_id"] = node_id[some].cpu().numpy()
        if world.rank == 0:
            yield part
        else:
            send_arrays(part | {_LAST: np.array(start == starts[-1])}, 0)
    for source in sources[1:] if world.rank == 0 and not world.dry else ():
        last = False
        while not last:
            part = receive_arrays(source)
            last = bool(part.pop(_LAST))
            yield part
