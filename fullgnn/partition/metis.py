"""Parts from METIS, which cuts few edges, so that few rows are exchanged."""

import logging

import numpy as np
from scipy import sparse

from fullgnn.errors import ConfigError
from fullgnn.partition.kway import MetisError, kway
from fullgnn.partition.nnz import nnz, row_weight
from fullgnn.partition.partition import Cut, Partition, check_num_parts, num_nodes_of
from fullgnn.partition.pattern import undirected

logger = logging.getLogger(__name__)


def metis(adj: sparse.csr_array, train_mask: np.ndarray, num_parts: int, seed: int, tolerance: float = 0.03) -> Cut:
    """Parts with few edges between them and with about equally many stored entries and training nodes each.

    METIS balances the stored entries (:func:`~fullgnn.partition.nnz.row_weight`). METIS can balance several weights at
    once, but pymetis passes it only one (and ignores further weights: its pull request 62). So
    :func:`~fullgnn.partition._rebalance.rebalance` afterwards moves the nodes that add the fewest cut edges, until the
    training nodes are balanced as well.

    If pymetis is missing or fails, the cut is that of :func:`nnz`, a warning is logged, and the run continues. A graph
    without edges or with no more nodes than parts gets the cut of :func:`nnz` without a warning.

    Args:
        tolerance: how far the heaviest part may lie above the mean, relative, in stored entries and in training nodes.
            Where single nodes are too heavy for both, the stored entries take precedence.
    """
    if not 0.001 <= tolerance < float("inf"):
        raise ConfigError(f"partition.tolerance is {tolerance}: give a fraction of at least 0.001.")
    num_nodes = num_nodes_of(adj)
    check_num_parts(num_nodes, num_parts)
    if num_parts == 1:
        return Cut.consecutive(Partition.equal(num_nodes, 1), used="metis")
    pattern = undirected(adj)
    if num_nodes <= num_parts or pattern.nnz == 0:
        return nnz(adj, train_mask, num_parts, seed)
    weight = row_weight(adj)
    try:
        part_id = kway(pattern, num_parts, seed, weight, tolerance)
    except MetisError as error:
        logger.warning("partition=metis falls back to nnz, since %s", error)
        return nnz(adj, train_mask, num_parts, seed)

    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.partition._rebalance import rebalance

    train = train_mask.astype(np.int64)
    rebalance(pattern, part_id, num_parts, train, tolerance)
    rebalance(pattern, part_id, num_parts, weight, tolerance, held=train)
    rebalance(pattern, part_id, num_parts, weight, tolerance)  # moves nodes only where both balances are impossible
    return Cut.from_part_id(part_id, num_parts, used="metis")
