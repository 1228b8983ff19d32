"""Sparse matrices of files: their arrays are checked before scipy sees them."""

from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from fullgnn.graph.checks import id_beyond


def checked_csr(data: Any, indices: Any, indptr: Any, shape: tuple[int, ...]) -> csr_array:
    """The matrix (rows, columns) of these arrays, each of which may have come from anywhere.

    Raises:
        ValueError: the arrays are no CSR matrix; the message says why.
    """
    if len(shape) != 2 or min(shape) < 0 or max(shape) >= 2**63:
        raise ValueError(f"its shape is {str(shape)[:60]}")
    kinds = {"data": (data, "biuf"), "indices": (indices, "iu"), "indptr": (indptr, "iu")}
    for name, (array, accepted) in kinds.items():
        if not isinstance(array, np.ndarray) or array.ndim != 1:
            raise ValueError(f"{name} is no list of numbers")
        if array.dtype.kind not in accepted or array.dtype.itemsize > 8 or array.dtype == np.float16:
            raise ValueError(
                f"{name} has dtype {array.dtype}, and takes {'integers' if accepted == 'iu' else 'numbers'}"
            )
    rows, columns = shape
    if len(indptr) != rows + 1:
        raise ValueError(f"indptr has {len(indptr)} numbers, and {rows} rows need {rows + 1}")
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise ValueError("indptr must start at 0 and never decrease")
    if not indptr[-1] == len(indices) == len(data):
        raise ValueError(f"indptr ends at {indptr[-1]}, with {len(indices)} indices and {len(data)} data")
    if (bad := id_beyond(indices, columns)) is not None:
        raise ValueError(f"indices have {bad}, and there are {columns} columns")
    return csr_array((data, indices, indptr), shape=(rows, columns))


def reads_of_arcs(sources: Any, targets: Any, num_nodes: int, weight: np.ndarray | None = None) -> coo_array:
    """The adjacency whose entry [v, u] says that v reads from u, for arcs u -> v that may have come from anywhere.

    Args:
        sources, targets: (E,) integers.
        weight: (E,) of the arcs; None: each of them counts 1.

    Raises:
        ValueError: the arcs are none of a graph of ``num_nodes`` nodes; the message says why.
    """
    for name, ids in (("sources", sources), ("targets", targets)):
        if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ValueError(f"the {name} of the arcs are no list of integers")
        if (bad := id_beyond(ids, num_nodes)) is not None:
            raise ValueError(f"an arc has the node {bad}, and there are the nodes 0 to {num_nodes - 1}")
    if len(sources) != len(targets):
        raise ValueError(f"there are {len(sources)} sources of arcs, and {len(targets)} targets")
    entries = np.ones(len(sources), bool) if weight is None else weight
    ends = targets.astype(np.int32, copy=False), sources.astype(np.int32, copy=False)
    return coo_array((entries, ends), shape=(num_nodes, num_nodes))
