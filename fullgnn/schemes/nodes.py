"""The rows of the nodes that a rank holds, which are the same for every scheme.

A scheme differs from another one in the blocks of the matrix. Features, labels and masks follow the rows that a rank
holds.
"""

from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from fullgnn.codecs import load
from fullgnn.graph.checks import check_range
from fullgnn.graph.links import LinkFacts, Lists
from fullgnn.graph.sparse_features import NodeFeatures, features_from_arrays, features_to_arrays, to_dense
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.prepare.facts import GraphFacts
from fullgnn.prepare.prepared import LISTS, Part
from fullgnn.schemes.base import Needs, RowPairs, ShardedGraph
from fullgnn.schemes.block import Block

Arrays = dict[str, np.ndarray]


def numpy_dtype(dtype: torch.dtype) -> np.dtype:
    """The NumPy dtype of the same numbers."""
    return torch.empty(0, dtype=dtype).numpy().dtype


def node_arrays(part: Part, rows: slice, needs: Needs) -> Arrays:
    """The ids, features, labels and masks of some ``rows`` of a ``part``, and their pairs if they are needed.

    Raises:
        DataError: a feature is beyond what the dtype of the run holds.
    """
    pairs = _pair_arrays(part, rows) if needs.pairs else {}
    features, node_id = _features(part, rows, needs), part.node_id[rows]
    check_range(features, numpy_dtype(needs.dtype), node_id)
    features = features.astype(numpy_dtype(needs.dtype), copy=False)
    return pairs | {
        "node_id": np.array(node_id),
        **features_to_arrays(features),
        "labels": np.array(part.labels[rows]),
        "masks": np.array(part.masks[:, rows]),
    }


def _features(part: Part, rows: slice, needs: Needs) -> NodeFeatures:
    """The features of some ``rows``, decoded if a codec has encoded them; sparse if ``needs`` say so."""
    if needs.codec is None:
        found = part.features[rows]
        if isinstance(found, np.ndarray):
            return csr_array(found) if needs.sparse else found
        return found if needs.sparse else to_dense(found, numpy_dtype(needs.dtype))
    if state := part.codec_state:
        load(needs.codec, state)
    encoded: Any = part.features[rows]
    return needs.codec.decode(torch.from_numpy(np.ascontiguousarray(encoded)), needs.dtype).numpy()


def _pair_arrays(part: Part, rows: slice) -> Arrays:
    """The fields of ``RowPairs`` for some ``rows``."""
    arrays = {"pairs.first": part.first_pairs[:, rows]}
    chosen = np.arange(rows.start, rows.stop)
    for name, lists in part.pairs.items():
        own = lists.of(chosen)
        arrays |= {f"pairs.{name}.indptr": own.indptr, f"pairs.{name}.ids": own.ids}
    return arrays


def _row_pairs(facts: LinkFacts, arrays: Arrays) -> RowPairs:
    lists = {name: Lists(arrays[f"pairs.{name}.indptr"], arrays[f"pairs.{name}.ids"]) for name in LISTS}
    return RowPairs(facts, **lists, first=arrays["pairs.first"])


def sharded_graph(
    facts: GraphFacts, needs: Needs, arrays: Arrays, block: Block, loss_block: Block | None = None
) -> ShardedGraph:
    """The part of this rank, from its blocks and its ``node_arrays``. Dense features stay on the
    host."""
    found, links, device = features_from_arrays(arrays), facts.nodes.links, block.source_id.device
    features = SparseRows.of(found, needs.dtype, device) if needs.sparse else torch.from_numpy(found)
    labels, masks = (torch.from_numpy(arrays[name]).to(device) for name in ("labels", "masks"))
    return ShardedGraph(
        block=block,
        loss_block=loss_block,
        features=features,
        labels=labels,
        masks=masks,
        num_features=found.shape[1],
        num_classes=facts.num_classes,
        num_split_nodes=facts.num_split_nodes,
        num_blocks=needs.num_blocks,
        pairs=_row_pairs(links, arrays) if needs.pairs and links is not None else None,
    )
