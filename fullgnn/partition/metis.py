"""Clusters of METIS as parts: few rows to exchange."""

import logging

import numpy as np
from scipy import sparse

from fullgnn.errors import ConfigError
from fullgnn.partition.cut import Cut
from fullgnn.partition.kway import MetisError, kway
from fullgnn.partition.nnz import nnz, row_weight
from fullgnn.partition.partition import Partition, check_num_parts, num_nodes_of
from fullgnn.partition.pattern import undirected

logger = logging.getLogger(__name__)


def metis(adj: sparse.csr_array, train_mask: np.ndarray, num_parts: int, seed: int, tolerance: float = 0.03) -> Cut:
    """Few edges between the parts, equal shares of the stored entries and of the training nodes in each.

    METIS balances the stored entries (:func:`~fullgnn.partition.nnz.row_weight`). It knows several weights at once,
    but pymetis hands over one (and ignores what more it is given: its pull request 62). So the nodes that cost the
    fewest cut edges are moved afterwards, until the training nodes are balanced as well: see
    :func:`~fullgnn.partition._rebalance.rebalance`.

    Without pymetis, or if it fails, the cut is that of :func:`nnz`, and a warning says so: a run never fails for want
    of a better cut. So it is, without a warning, for a graph without edges or with no more nodes than parts.

    Args:
        tolerance: how far the heaviest part may lie above the mean, in stored entries and in training nodes. Where
            single nodes do not allow both, stored entries come first.
    """
    if not 0.001 <= tolerance < float("inf"):
        raise ConfigError(f"partition.tolerance is {tolerance}: give a share of at least 0.001.")
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

    # Here, not above: it imports numba, which must see the thread counts that the launcher sets first.
    from fullgnn.partition._rebalance import rebalance

    train = train_mask.astype(np.int64)
    rebalance(pattern, part_id, num_parts, train, tolerance)
    rebalance(pattern, part_id, num_parts, weight, tolerance, held=train)
    rebalance(pattern, part_id, num_parts, weight, tolerance)  # does something only where both cannot be had
    return Cut.from_part_id(part_id, num_parts, used="metis")
