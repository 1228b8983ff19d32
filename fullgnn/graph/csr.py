"""Adjacency matrices as scipy CSR, the form in which a ``Graph`` accepts, stores and returns them; keys of entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from fullgnn.errors import DataError
from fullgnn.graph.checks import check_num_nodes
from fullgnn.storage.memory import check_fits

_BYTES_OF_NODE = 8 + 8 + 3  # its row start, label and masks
MAX_INT32 = np.iinfo(np.int32).max


def ones(count: int) -> np.ndarray:
    """(count,) int8, read-only: the entries of a 0/1 pattern, for which one byte of memory stands."""
    return np.broadcast_to(np.ones(1, np.int8), count)


def are_ones(data: np.ndarray) -> bool:
    """Whether ``data`` comes from ``ones``."""
    return data.dtype == np.int8 and data.strides == (0,) and len(data) > 0 and bool(data[0] == 1)


def csr_from_arrays(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray) -> csr_array:
    """CSR over arrays that are known to be canonical, with int32 row starts if the number of entries allows it."""
    indptr = indptr.astype(np.int32) if len(indices) <= MAX_INT32 else indptr
    adj = csr_array((data, indices, indptr), shape=(len(indptr) - 1,) * 2)
    adj.has_canonical_format = True  # spares scipy its own pass over the indices
    return adj


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
    csr = csr_array(adj.astype(np.float64) if adj.dtype.kind in "iu" else adj)  # int8 sums would overflow
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    num_distinct, num_arcs = csr.nnz, int(np.count_nonzero(csr.data[: csr.nnz]))
    if num_arcs < len(csr.data):
        csr = csr.copy()
        csr.eliminate_zeros()
    csr.prune()
    if stored is None:
        return csr, {}
    return csr, {"merged_arcs": stored - num_distinct, "zero_arcs": num_distinct - num_arcs}


def distinct(keys: np.ndarray) -> np.ndarray:
    """``np.unique`` of int64 keys of at least 0, by sorting: the hash table of newer NumPy took many times as long."""
    ordered = np.sort(keys)
    return ordered[np.diff(ordered, prepend=-1) != 0]
