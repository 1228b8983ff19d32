"""Apply a reordering inside each part."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from fullgnn.errors import PartitionError
from fullgnn.partition.cut import Cut, is_permutation
from fullgnn.partition.kway import MetisError
from fullgnn.reorder.rcm import rcm
from fullgnn.reorder.simple import none

logger = logging.getLogger(__name__)

Reordering = Callable[[sparse.csr_array, int], np.ndarray]


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


def base_function(method: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, also where Hydra has wrapped it in a ``functools.partial``."""
    return getattr(method, "func", method)


def name_of(method: Callable[..., Any]) -> str:
    """The name of the function, such as ``rcm``, also where it is wrapped in a ``functools.partial``."""
    function = base_function(method)
    return getattr(function, "__name__", repr(function))
