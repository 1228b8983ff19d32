"""The numbering of the nodes: a partitioner, and a reordering that is applied inside each part, combined."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from fullgnn.errors import ConfigError, PartitionError
from fullgnn.partition import Cut, Partition, contiguous, nnz
from fullgnn.partition.kway import MetisError
from fullgnn.partition.nnz import balanced, row_weight
from fullgnn.partition.partition import UsedMethods, base_function, is_permutation, name_of
from fullgnn.reorder.rcm import rcm
from fullgnn.reorder.simple import none

logger = logging.getLogger(__name__)

Reordering = Callable[[sparse.csr_array, int], np.ndarray]
Partitioner = Callable[[sparse.csr_array, np.ndarray, int, int], Cut]


@dataclass(frozen=True, eq=False)
class NodeOrder:
    """A new numbering of the nodes, and the block rows that it is cut into."""

    perm: np.ndarray  # (num_nodes,) int64, GLOBAL: new node i is old node perm[i]
    partition: Partition  # block rows of the new nodes
    used: UsedMethods


def two_level(
    adj: sparse.csr_array,
    train_mask: np.ndarray,
    partitioner: Partitioner,
    method: Reordering,
    scope: str,
    num_parts: int,
    num_blocks: int | None,
    seed: int,
) -> NodeOrder:
    """Number the nodes so that the parts are consecutive and neighbours in a part are near each other.

    With ``scope="block"`` the ``partitioner`` decides which nodes form which part, then ``method`` orders each part
    (or, with ``num_blocks``, each of ``num_blocks`` equal blocks of consecutive nodes, at most one a node). With
    ``scope="whole"`` the ``method`` orders the whole graph, then the ``partitioner`` cuts it.

    Args:
        adj: (n, n), as the dataset stores it, before normalisation.
        train_mask: (n,) bool, in the numbering of ``adj``.

    Raises:
        ConfigError: see :func:`check_order`.
        PartitionError: the result of ``partitioner`` or ``method`` violates the contract.
    """
    check_order(partitioner, scope, num_blocks)
    num_nodes = adj.shape[0]
    begin = time.perf_counter()
    if scope == "whole":
        blocks = Cut.consecutive(Partition.equal(num_nodes, 1), used="none")
        perm, reorder_used = blockwise(adj, method, blocks, seed)
        middle = time.perf_counter()
        partition, partition_used = _cut_in_order(adj, perm, partitioner, num_parts), name_of(partitioner)
        partition_time_s, reorder_time_s = time.perf_counter() - middle, middle - begin
    else:
        cut = partitioner(adj, train_mask, num_parts, seed)
        partition, partition_used = cut.partition, cut.used
        if (partition.num_nodes, partition.num_parts) != (num_nodes, num_parts):
            raise PartitionError(
                f"Partitioner {partition_used} cut {partition.num_nodes} nodes into {partition.num_parts} parts"
                f": cut all {num_nodes} into {num_parts}."
            )
        middle = time.perf_counter()
        blocks = cut if num_blocks is None else contiguous(adj, train_mask, min(num_blocks, num_nodes), seed)
        perm, reorder_used = blockwise(adj, method, blocks, seed)
        partition_time_s, reorder_time_s = middle - begin, time.perf_counter() - middle
    used = UsedMethods(partition_used, reorder_used, blocks.partition.num_parts, partition_time_s, reorder_time_s)
    return NodeOrder(perm, partition, used)


def check_order(partitioner: Partitioner, scope: str, num_blocks: int | None) -> None:
    """Refuse choices that contradict each other; the check does not need the graph.

    Raises:
        ConfigError: the choices contradict each other; the message says what to change.
    """
    function, name = base_function(partitioner), name_of(partitioner)
    if scope not in ("block", "whole"):
        raise ConfigError(f"reorder.scope={scope} is not known: choose one of block, whole")
    if scope == "whole" and function not in (contiguous, nnz):
        raise ConfigError(
            f"reorder.scope=whole needs consecutive parts, which partition={name} does not return"
            ": choose partition=contiguous, partition=nnz or reorder.scope=block"
        )
    if num_blocks is None:
        return
    if num_blocks < 1:
        raise ConfigError(f"reorder.num_blocks={num_blocks} is out of range: it must be at least 1")
    if scope == "whole" and num_blocks != 1:
        raise ConfigError(f"reorder.scope=whole orders one block, not reorder.num_blocks={num_blocks}: leave one out")
    if function is not contiguous:
        raise ConfigError(
            f"reorder.num_blocks={num_blocks} needs partition=contiguous, not {name}: leave one of the two out"
        )


def _cut_in_order(adj: sparse.csr_array, perm: np.ndarray, partitioner: Partitioner, num_parts: int) -> Partition:
    """The ``partitioner``'s cut of the renumbered graph, computed from row weights without a copy of the graph."""
    if base_function(partitioner) is contiguous:
        return Partition.equal(perm.size, num_parts)
    return balanced(row_weight(adj)[perm], num_parts)


def blockwise(adj: sparse.csr_array, method: Reordering, cut: Cut, seed: int) -> tuple[np.ndarray, str]:
    """Order the nodes of each part separately: Algorithm 2 of Miao et al. (J. Software 34(9), 2023).

    No node leaves its part, so each of the ``num_parts ** 2`` blocks keeps its number of entries (Property 1 of the
    paper); a whole-graph order does not keep these numbers. A single part is the whole graph and is ordered as such.

    Where METIS fails, the part gets the order of :func:`rcm`, a warning is logged, and the run continues.

    Args:
        method: ``method(block, seed) -> perm`` of a diagonal block; every block gets the same seed.

    Returns:
        (n,) int64 GLOBAL: new node ``i`` is old node ``perm[i]``; and the method that was used, ``metis+rcm`` where
        METIS failed on some parts only.
    """
    if base_function(method) is none:  # avoids copies of the blocks
        return cut.perm, "none"
    perm = np.empty_like(cut.perm)
    used: dict[str, None] = {}  # an ordered set
    failure = None
    for part in range(cut.partition.num_parts):
        rows = cut.partition.slice(part)
        block = _diagonal_block(adj, cut, part)
        try:
            order, name = np.asarray(method(block, seed)), name_of(method)
        except MetisError as error:
            order, name, failure = rcm(block, seed), rcm.__name__, error
        if not is_permutation(order, block.shape[0]):
            raise PartitionError(
                f"Reordering {name} did not return a permutation of the {block.shape[0]} nodes of part {part}"
                ": return each of 0..n-1 once, as integers."
            )
        perm[rows] = cut.perm[rows][order.astype(np.int64, copy=False)]
        used[name] = None
    if failure is not None:
        logger.warning("reorder=metis falls back to rcm, since %s", failure)
    return perm, "+".join(used)


def _diagonal_block(adj: sparse.csr_array, cut: Cut, part: int) -> sparse.csr_array:
    """The entries of ``adj`` with row and column in ``part``, in the numbering of ``cut``."""
    nodes = cut.perm[cut.partition.slice(part)]  # ascending, as Cut checks
    if nodes.size == adj.shape[0]:
        return adj
    from fullgnn.graph._csr_cpu import cut_columns, rows_of, select  # imported here, since it imports numba

    if nodes.size > 0 and nodes[-1] - nodes[0] == nodes.size - 1:  # consecutive: only the ends of rows are looked for
        consecutive = slice(int(nodes[0]), int(nodes[-1]) + 1)
        return cut_columns(rows_of(adj, consecutive), [consecutive])[0]
    return select(adj, nodes, nodes)
