"""The rows of the nodes that a rank holds, which are the same for every scheme.

A scheme differs from another one in the blocks of the matrix. Features, labels and masks follow the rows that a rank
holds, and so do the row sums by which a rank normalises the blocks that it multiplies. A rank adds up the rows of its
own block row. Where blocks hold normalised entries, it needs the sums of all rows for the time in which it builds
them: they are added up over the ranks, since each rank has zeros in place of the rows of the others.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import csr_array

from fullgnn.codecs import load
from fullgnn.distributed import World, all_gather_objects, on_every_rank, sum_of_all
from fullgnn.graph.checks import check_range
from fullgnn.graph.normalize import Propagation, RowSums, check_rows, refuse_unusable, sums_of_rows, weighted_as
from fullgnn.graph.sparse_features import NodeFeatures, to_dense
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.partition.facts import GraphFacts
from fullgnn.partition.prepared import Part, PreparedGraph
from fullgnn.schemes.base import BlockRequest, RowPairs, ShardedGraph
from fullgnn.schemes.block import Block

if TYPE_CHECKING:
    from fullgnn.schemes.options import Grid

LocalArrays = dict[str, Any]
"""What a rank reads of its nodes, by name: ``node_id``, ``features``, ``labels``, ``masks``; ``pairs`` for a task that
finds links."""
RowSumArrays = dict[tuple[bool, int], np.ndarray]
"""By self_loops and part, (num_rows,) float64."""


def numpy_dtype(dtype: torch.dtype) -> np.dtype:
    """The NumPy dtype of the same numbers."""
    return torch.empty(0, dtype=dtype).numpy().dtype


def node_arrays(part: Part, rows: slice, request: BlockRequest) -> LocalArrays:
    """The ids, features, labels and masks of some ``rows`` of a ``part``, and their pairs if they are needed.

    Raises:
        DataError: a feature is beyond what the dtype of the run holds.
    """
    features, node_id = _features(part, rows, request), part.node_id[rows]
    check_range(features, numpy_dtype(request.dtype), node_id)
    arrays = {
        "node_id": np.array(node_id),
        "features": features.astype(numpy_dtype(request.dtype), copy=False),
        "labels": np.array(part.labels[rows]),
        "masks": np.array(part.masks[:, rows]),
    }
    if request.pairs:
        chosen = np.arange(rows.start, rows.stop)
        lists = {name: of_part.of(chosen) for name, of_part in part.pairs.items()}
        arrays["pairs"] = {**lists, "first": part.first_pairs[:, rows]}
    return arrays


def _features(part: Part, rows: slice, request: BlockRequest) -> NodeFeatures:
    """The features of some ``rows``, decoded if a codec has encoded them; sparse if ``request`` says so."""
    if request.codec is None:
        features = part.features[rows]
        if isinstance(features, np.ndarray):
            return csr_array(features) if request.sparse else features
        return features if request.sparse else to_dense(features, numpy_dtype(request.dtype))
    if state := part.codec_state:
        load(request.codec, state)
    encoded: Any = part.features[rows]
    return request.codec.decode(torch.from_numpy(np.ascontiguousarray(encoded)), request.dtype).numpy()


def sharded_graph(
    facts: GraphFacts, request: BlockRequest, arrays: LocalArrays, block: Block, loss_block: Block | None = None
) -> ShardedGraph:
    """The part of this rank, from its blocks and its ``node_arrays``. Dense features stay on the host."""
    stored, links, device = arrays["features"], facts.nodes.links, block.source_id.device
    features = SparseRows.of(stored, request.dtype, device) if request.sparse else torch.from_numpy(stored)
    labels, masks = (torch.from_numpy(arrays[name]).to(device) for name in ("labels", "masks"))
    return ShardedGraph(
        block=block,
        loss_block=loss_block,
        features=features,
        labels=labels,
        masks=masks,
        num_features=stored.shape[1],
        num_classes=facts.num_classes,
        num_split_nodes=facts.num_split_nodes,
        num_blocks=request.num_blocks,
        pairs=RowPairs(links, **arrays["pairs"]) if request.pairs and links is not None else None,
    )


def row_sum_arrays(world: World, source: PreparedGraph, grid: "Grid", request: BlockRequest) -> RowSumArrays:
    """The row sums that this rank needs. Every rank calls it.

    The weights are checked for the matrices that a model with this ``request`` multiplies by.

    Raises:
        DataError: a sum, or a normalised entry, is out of range; the same on every rank.
    """
    facts, (part, replica) = source.facts, grid.place(world.rank)
    kinds = sorted({propagation.self_loops for propagation in request.propagations if propagation.needs_row_sums})
    everywhere = facts.weighted or not request.fold
    parts = range(facts.num_parts) if world.dry and everywhere else [part]
    row_sums = on_every_rank(
        lambda: {(loops, number): _of_part(source, number, loops) for loops in kinds for number in parts}
    )
    if facts.weighted:
        _refuse_unusable(request, kinds, row_sums if replica == 0 or world.dry else {})
    own = {key: sums.total for key, sums in row_sums.items()}
    if everywhere and not world.dry:
        for loops in kinds:
            whole = np.zeros(facts.num_nodes)
            if replica == 0:
                whole[facts.partition.slice(part)] = own[loops, part]
            whole = sum_of_all(whole)
            own |= {(loops, number): whole[facts.partition.slice(number)] for number in range(facts.num_parts)}
    if facts.weighted:
        on_every_rank(lambda: _check(source, part, request, own))
    return own


def _refuse_unusable(request: BlockRequest, kinds: list[bool], own: dict[tuple[bool, int], RowSums]) -> None:
    """Refuse, on every rank alike, a graph with a row whose sum a model with this ``request`` cannot divide by.

    Args:
        kinds: whether there are self-loops, for each kind of sum.
        own: what this rank has found; empty on a replica, whose rows another rank has too.
    """
    everyone = all_gather_objects({key: sums.unusable for key, sums in own.items()})
    for loops in kinds:
        cure = next(
            made.without_sums
            for made in request.propagations
            if (made.needs_row_sums, made.self_loops) == (True, loops)
        )
        refuse_unusable((sums for of_rank in everyone for key, sums in of_rank.items() if key[0] == loops), cure)


def part_row_sums(source: PreparedGraph, number: int, self_loops: bool) -> np.ndarray:
    """(num_rows,) float64, the row sums of one part.

    Raises:
        DataError: nothing can be divided by a sum, or it is beyond float64.
    """
    sums = _of_part(source, number, self_loops)
    refuse_unusable([sums.unusable], Propagation.without_sums)
    return sums.total


def _of_part(source: PreparedGraph, number: int, self_loops: bool) -> RowSums:
    facts, rows = source.facts, source.part(number).rows
    if not facts.weighted and not (self_loops and facts.counts.loops[number]):
        return RowSums(np.diff(rows.indptr).astype(np.float64) + self_loops)
    matrix = rows.matrix(facts.num_nodes)
    if facts.weighted:
        matrix = matrix.astype(np.float64)
    first = int(facts.partition.bounds[number])
    return sums_of_rows(matrix, self_loops, weighted_as(rows.weight), first, _names(source))


def _check(source: PreparedGraph, number: int, request: BlockRequest, sums: RowSumArrays) -> None:
    """Check the normalised entries of one part."""
    facts, dtype = source.facts, numpy_dtype(request.dtype)
    matrix = source.part(number).rows.matrix(facts.num_nodes).astype(np.float64)
    unnormalized = (Propagation("none", edge_set.self_loops) for edge_set in request.edges)
    for propagation in (*request.propagations, *unnormalized):
        own = of_all = None
        if propagation.needs_row_sums:
            own = sums[propagation.self_loops, number]
            of_all = np.concatenate([sums[propagation.self_loops, part] for part in range(facts.num_parts)])
        check_rows(matrix, propagation, own, of_all, dtype, int(facts.partition.bounds[number]), _names(source))


def _names(source: PreparedGraph) -> Callable[[int], int]:
    """The ORIGINAL id of a row, for messages."""
    bounds = source.facts.partition.bounds

    def name_of(row: int) -> int:
        part = int(np.searchsorted(bounds, row, side="right")) - 1
        return int(source.part(part).node_id[row - bounds[part]])

    return name_of
