"""Adjacency matrices as scipy CSR, the form in which a ``Graph`` accepts, stores and returns them, and sparse matrices
of files, whose arrays are checked before scipy sees them; keys of entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse

from fullgnn.errors import DataError
from fullgnn.graph.checks import check_num_nodes, id_beyond, is_sparse, to_integers, to_numpy
from fullgnn.telemetry.machine import check_fits

_BYTES_OF_NODE = 8 + 8 + 3  # its row start, label and masks
MAX_INT32 = np.iinfo(np.int32).max


def ones(count: int) -> np.ndarray:
    """(count,) int8, read-only: the entries of a 0/1 pattern, for which one byte of memory stands."""
    return np.broadcast_to(np.ones(1, np.int8), count)


def are_ones(data: np.ndarray) -> bool:
    """Whether ``data`` comes from ``ones``."""
    return data.dtype == np.int8 and data.strides == (0,) and len(data) > 0 and bool(data[0] == 1)


def csr_from_arrays(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, ...] | None = None
) -> csr_array:
    """CSR over arrays that are known to be canonical, with int32 row starts if the number of entries allows it: scipy
    copies indices of another dtype than the row starts have.

    Args:
        shape: None: the matrix is square.
    """
    indptr = indptr.astype(np.int32) if len(indices) <= MAX_INT32 else indptr
    matrix = csr_array((data, indices, indptr), shape=shape or (len(indptr) - 1,) * 2)
    matrix.has_canonical_format = True  # spares scipy its own pass over the indices
    return matrix


def without_duplicates(matrix: csr_array) -> csr_array:
    """``matrix`` with sorted indices, and entries of one place added. The argument is not changed."""
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def without_zeros(matrix: csr_array) -> csr_array:
    """``matrix`` without stored zeros. The argument is not changed."""
    if np.count_nonzero(matrix.data) < len(matrix.data):
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    return matrix


def canonical_csr(adj: Any) -> tuple[csr_array, dict[str, int]]:
    """Any square scipy sparse matrix as CSR with sorted, distinct, non-zero entries, and the remarks on what changed.

    The argument and its arrays are not changed.
    """
    if not issparse(adj):
        raise DataError("adj is not a scipy sparse matrix: wrap a dense array in scipy.sparse.csr_array")
    if adj.ndim != 2 or adj.shape[0] != adj.shape[1]:
        raise DataError(f"adj has shape {adj.shape}: an adjacency matrix is square")
    if adj.dtype.kind not in "biuf":
        raise DataError(f"adj has dtype {adj.dtype}: pass real numbers or booleans")
    check_num_nodes(adj.shape[0], "adj")
    if adj.format != "csr":  # a matrix of few entries may have any shape
        cure = "number the nodes from 0 on, without gaps"
        check_fits(_BYTES_OF_NODE * adj.shape[0], f"a graph of {adj.shape[0]} nodes and {adj.nnz} edges", cure)
    stored = adj.nnz if adj.format in ("coo", "csr", "csc") else None  # the other formats store no entry by itself
    wide = adj.astype(np.float64) if adj.dtype.kind in "iu" else adj  # int8 sums would overflow
    distinct_arcs = without_duplicates(csr_array(wide))
    csr = without_zeros(distinct_arcs)
    csr.prune()
    if stored is None:
        return csr, {}
    return csr, {"merged_arcs": stored - distinct_arcs.nnz, "zero_arcs": distinct_arcs.nnz - csr.nnz}


def matrix_of_arcs(
    edge_index: Any, features: Any, num_nodes: int | None, edge_weight: Any
) -> tuple[coo_array, np.ndarray | None]:
    """The adjacency of (2, E) arcs, sources above targets, and the features, dense ones as an array.

    Args:
        features: None: there are none.
        num_nodes: None: the number of rows of the features.
        edge_weight: (E,); None: every arc counts 1.

    Raises:
        DataError: one line that says which argument is wrong, and what to pass.
    """
    arcs = to_integers(edge_index, "edge_index")
    if arcs.ndim != 2 or arcs.shape[0] != 2:
        raise DataError(f"edge_index has shape {arcs.shape}: pass (2, E), sources above targets")
    if features is None and num_nodes is None:
        raise DataError("the number of nodes is not known: pass features or num_nodes")
    features = features if features is None or is_sparse(features) else to_numpy(features, "features")
    count = features.shape[0] if features is not None and num_nodes is None and features.ndim else num_nodes or 0
    if features is not None and (features.ndim != 2 or features.shape[0] != count):
        raise DataError(f"features has shape {features.shape} but num_nodes is {count}: they must agree")
    if (bad := id_beyond(arcs, count)) is not None:
        raise DataError(f"node id {bad} in edge_index is out of range: the graph has nodes 0 to {count - 1}")
    check_num_nodes(count)
    value = np.ones(arcs.shape[1], dtype=bool) if edge_weight is None else to_numpy(edge_weight, "edge_weight")
    value = value.astype(np.float32) if value.dtype == np.float16 else value  # which scipy does not multiply
    if value.shape != arcs.shape[1:]:
        raise DataError(f"edge_weight has shape {value.shape} but edge_index has {arcs.shape[1]} arcs: pass one each")
    source, target = arcs.astype(np.int32, copy=False)
    return coo_array((value, (target, source)), shape=(count, count)), features


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


def reads_of_arcs(
    sources: Any, targets: Any, num_nodes: int, file: object, cure: str, weight: np.ndarray | None = None
) -> coo_array:
    """The adjacency whose entry [v, u] says that v reads from u, for arcs u -> v that may have come from anywhere.

    Args:
        sources, targets: (E,) integers.
        file, cure: begin and end the errors.
        weight: (E,) of the arcs; None: each of them counts 1.

    Raises:
        DataError: the arcs are none of a graph of ``num_nodes`` nodes.
    """
    for name, ids in (("sources", sources), ("targets", targets)):
        if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise DataError(f"{file}: the {name} of the arcs are no list of integers: {cure}")
        if (bad := id_beyond(ids, num_nodes)) is not None:
            raise DataError(f"{file}: an arc has the node {bad}, and there are the nodes 0 to {num_nodes - 1}: {cure}")
    if len(sources) != len(targets):
        raise DataError(f"{file}: there are {len(sources)} sources of arcs, and {len(targets)} targets: {cure}")
    entries = np.ones(len(sources), bool) if weight is None else weight
    ends = targets.astype(np.int32, copy=False), sources.astype(np.int32, copy=False)
    return coo_array((entries, ends), shape=(num_nodes, num_nodes))


def with_reverses(
    indptr: np.ndarray, indices: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, int]:
    """The CSR arrays of a square matrix with every entry in both directions, and how many pairs had unequal weights.

    Where both directions are stored, the larger weight counts.
    """
    if weight is None:
        adj = csr_from_arrays(np.ones(len(indices), bool), indices, indptr)
        union = adj + adj.T
        return union.indptr, union.indices, None, 0
    # Compare ranks (from 1) instead of weights: scipy's maximum takes a missing entry for 0, and a weight may be
    # negative.
    values, rank = np.unique(weight, return_inverse=True)
    adj = csr_from_arrays(rank + 1, indices, indptr)
    transposed = adj.T.tocsr()
    union = adj.maximum(transposed)
    unequal = int((adj - adj.minimum(transposed)).multiply(transposed.astype(bool)).count_nonzero())
    return union.indptr, union.indices, values[union.data - 1], unequal


def distinct(keys: np.ndarray) -> np.ndarray:
    """``np.unique`` of int64 keys of at least 0, by sorting: the hash table of newer NumPy took many times as long."""
    ordered = np.sort(keys)
    return ordered[np.diff(ordered, prepend=-1) != 0]
