"""The normalised adjacency matrix: the constant that every layer multiplies by.

    A = diag(row_scale) M diag(col_scale)

With the normalisation folded, M is the 0/1 pattern of an unweighted graph and no edge value is stored or read:
D^-1/2 P D^-1/2 X = row_scale * (P (col_scale * X)). Otherwise M holds the normalised entries and both scales are 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, diags_array, eye_array

from fullgnn.errors import ConfigError, DataError

if TYPE_CHECKING:
    from fullgnn.graph.graph import Graph

NORMALIZATIONS = ("sym", "row", "none")
ENTRIES_PER_BLOCK = 1 << 22  # float64 temporaries of 32 MiB, whatever the size of the graph


@dataclass(frozen=True, eq=False)
class NormalizedAdjacency:
    """A = diag(row_scale) matrix diag(col_scale), global, on the host."""

    matrix: csr_array  # (num_nodes, num_nodes), int32 indices
    matrix_t: csr_array | None  # the transpose of ``matrix``; None where both are equal to the bit
    pattern: bool  # every stored entry is 1, and ``matrix.data`` need not be read
    row_scale: np.ndarray | None = None  # (num_nodes,) float64; None: all 1
    col_scale: np.ndarray | None = None

    @property
    def nnz(self) -> int:
        return self.matrix.nnz

    @property
    def symmetric(self) -> bool:
        """Whether one matrix serves both directions; the scales may differ."""
        return self.matrix_t is None


def adjacency_operator(
    graph: Graph,
    normalization: str = "sym",
    self_loops: bool = True,
    dtype: Any = np.float32,
    fold: bool = True,
    row_sum: np.ndarray | None = None,
    node_id: np.ndarray | None = None,
) -> NormalizedAdjacency:
    """The matrix of one propagation step, as ``normalized_adjacency`` defines it, with the normalisation folded or not.

    Args:
        dtype: dtype of the normalised entries; unused where the result is a pattern.
        fold: keep the 0/1 pattern and the scales apart. A weighted graph is never folded.
        row_sum, node_id: see ``normalized_adjacency``.
    """
    if not fold or graph.weight is not None:
        matrix = normalized_adjacency(graph, normalization, self_loops, dtype, row_sum, node_id)
        return NormalizedAdjacency(matrix, _transpose(matrix), pattern=False)
    _check(normalization)
    pattern = _with_self_loops(graph) if self_loops else graph.adjacency(np.int8)
    if normalization == "none":
        return NormalizedAdjacency(pattern, _transpose(pattern), pattern=True)
    scale = _scale(np.diff(pattern.indptr).astype(np.float64) if row_sum is None else row_sum, normalization)
    return NormalizedAdjacency(pattern, _transpose(pattern), True, scale, scale if normalization == "sym" else None)


def normalized_adjacency(
    graph: Graph,
    normalization: str = "sym",
    self_loops: bool = True,
    dtype: Any = np.float32,
    row_sum: np.ndarray | None = None,
    node_id: np.ndarray | None = None,
) -> csr_array:
    """The matrix of one propagation step, computed in float64 and cast to ``dtype`` at the end.

    With ``self_loops``, A' is A with its whole diagonal set to 1 (a stored self-loop is replaced, not added
    to); otherwise A' = A. D holds the row sums of A'. Then, after Kipf and Welling (2017, eq. 2) for ``sym``:

    - ``sym``: D^-1/2 A' D^-1/2, row sums on both sides also when A is directed;
    - ``row``: D^-1 A', the mean over the nodes that a node reads from;
    - ``none``: A'.

    The scale of a node of degree 0 is 0. All entries stay stored, with sorted int32 indices, even those that become 0.

    Args:
        row_sum: (num_nodes,) D, as ``row_sums`` returns it; None: computed here. A caller that permutes a graph
            computes D before, so that every order of the nodes has the same D.
        node_id: (num_nodes,) original ids of the nodes, for messages; None: 0 to num_nodes - 1.

    Returns:
        (num_nodes, num_nodes) CSR, global.

    Raises:
        DataError: a row sum is negative, or an entry is beyond what ``dtype`` holds.
    """
    _check(normalization)
    adj = _with_self_loops(graph) if self_loops else graph.adjacency(_exact_type(graph))
    names = np.arange(graph.num_nodes) if node_id is None else node_id
    num_entries = np.diff(adj.indptr)
    scale = None
    if normalization != "none":
        scale = _scale(row_sums(graph, self_loops) if row_sum is None else row_sum, normalization)
    data = np.empty(adj.nnz, dtype=dtype)
    for first, last in _row_blocks(adj.indptr):
        block = slice(adj.indptr[first], adj.indptr[last])
        entries = adj.data[block]
        if scale is not None:
            factor = np.repeat(scale[first:last], num_entries[first:last])
            if normalization == "sym":
                factor *= scale[adj.indices[block]]  # s_i * s_j commutes: a symmetric A stays symmetric to the bit
            entries = factor * entries
        with np.errstate(over="ignore"):
            data[block] = entries
        if not np.isfinite(data[block]).all():
            edge = int(adj.indptr[first] + np.flatnonzero(~np.isfinite(data[block]))[0])
            row = int(np.searchsorted(adj.indptr, edge, side="right")) - 1
            raise DataError(
                f"the weight {entries[edge - block.start]:g} with which node {names[row]} reads from node"
                f" {names[adj.indices[edge]]} is beyond {np.dtype(dtype)}: scale the weights, or set"
                " runtime.dtype=float64"
            )
    adj.data = data
    return adj


def row_sums(graph: Graph, self_loops: bool = True) -> np.ndarray:
    """(num_nodes,) float64 row sums of A', see ``normalized_adjacency``, the same for any order of the nodes.

    Stored weights are rounded, each by up to a relative u (2^-24 in float32, 2^-53 in float64). A sum of at most u
    times the sum of the magnitudes may consist of these rounding errors alone, as 3.9 - 1.9 - 1.9 - 0.1 does, and
    counts as 0. A sum below the smallest normal number counts as 0 too, since its reciprocal would be infinite.

    Raises:
        DataError: a sum is negative or beyond float64; the message names the node.
    """
    if graph.weight is None:
        adj = _with_self_loops(graph) if self_loops else graph.adjacency(np.int8)
        return np.diff(adj.indptr).astype(np.float64)
    from fullgnn.graph._row_sums_cpu import accurate_row_sums  # imported here, since it imports numba

    adj = _with_self_loops(graph) if self_loops else graph.adjacency(np.float64)
    total, magnitude = accurate_row_sums(adj.indptr, adj.data)
    roundoff = np.finfo(graph.weight.dtype).eps / 2
    total[np.abs(total) <= np.maximum(roundoff * magnitude, np.finfo(np.float64).tiny)] = 0
    if not np.isfinite(total).all():
        node = int(np.flatnonzero(~np.isfinite(total))[0])
        raise DataError(f"the weights with which node {node} reads sum to more than float64 holds: scale the weights")
    if total.min() < 0:
        node = int(total.argmin())
        raise DataError(
            f"the weights with which node {node} reads sum to {total[node]:g}: normalization=sym and row need"
            " sums >= 0; use normalization=none or weights that are not negative"
        )
    return total


def _exact_type(graph: Graph) -> Any:
    """A dtype that represents the weights of a graph exactly."""
    return np.int8 if graph.weight is None else np.float64


def _with_self_loops(graph: Graph) -> csr_array:
    return _with_unit_diagonal(graph.adjacency(_exact_type(graph)))


def _check(normalization: str) -> None:
    if normalization not in NORMALIZATIONS:
        raise ConfigError(f"unknown normalization {normalization!r}: choose one of {', '.join(NORMALIZATIONS)}")


def _scale(row_sum: np.ndarray, normalization: str) -> np.ndarray:
    """(num_nodes,) float64: 1/d for ``row``, d^-1/2 for ``sym``; 0 where d is 0."""
    degree = row_sum if normalization == "row" else np.sqrt(row_sum)
    return np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)


def is_symmetric(adj: Any) -> bool:
    """Whether a sparse matrix equals its transpose exactly, in stored pattern and in values."""
    adj = csr_array(adj)
    if adj.shape[0] != adj.shape[1]:
        return False
    if not adj.has_canonical_format:
        adj = adj.copy()
        adj.sum_duplicates()
    return _transpose(adj) is None


def _transpose(adj: csr_array) -> csr_array | None:
    """The transpose of a canonical CSR matrix, or None where the two are equal to the bit."""
    transposed = adj.T.tocsr()  # a counting sort, so its rows come out sorted
    equal = all(np.array_equal(getattr(adj, key), getattr(transposed, key)) for key in ("indptr", "indices", "data"))
    return None if equal else transposed


def _with_unit_diagonal(adj: csr_array) -> csr_array:
    """``adj`` with every diagonal entry stored and exactly 1."""
    diagonal = adj.diagonal()
    if diagonal.any():
        adj = adj - diags_array(diagonal, format="csr", dtype=adj.dtype)  # a - a is exactly 0, and scipy drops it
    return adj + eye_array(adj.shape[0], format="csr", dtype=adj.dtype)


def _row_blocks(indptr: np.ndarray) -> Iterator[tuple[int, int]]:
    """Consecutive row ranges of about ``ENTRIES_PER_BLOCK`` entries each (one long row may exceed it)."""
    targets = np.arange(0, int(indptr[-1]), ENTRIES_PER_BLOCK)
    cuts = np.unique([0, *np.searchsorted(indptr, targets), len(indptr) - 1]).tolist()
    yield from pairwise(cuts)
