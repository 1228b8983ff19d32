"""The numbering of the nodes: a partitioner and a reordering combined."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from fullgnn.errors import ConfigError, PartitionError
from fullgnn.partition import Cut, Partition, contiguous, nnz
from fullgnn.partition.nnz import balanced, row_weight
from fullgnn.reorder.blockwise import Reordering, base_function, blockwise, name_of

Partitioner = Callable[[sparse.csr_array, np.ndarray, int, int], Cut]


@dataclass(frozen=True)
class UsedMethods:
    """The methods that ordered the nodes, and how long they took. The fields are named as those of ``RunRecord``."""

    partition: str  # name of the partitioner that ran; after a fallback it differs from the configured one
    reorder: str  # name of the reordering that ran; after a fallback it differs as well
    reorder_num_blocks: int  # number of blocks that were ordered separately
    partition_time_s: float = 0.0  # 0 if the order was loaded
    reorder_time_s: float = 0.0


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
