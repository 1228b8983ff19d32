"""The matrix of one propagation step: the constant that the layers of a GCN multiply by.

A graph stores an adjacency with its own weights. A convolution states its ``Propagation``: whether every node also
reads its own row, and how the entries are normalised,

    A = diag(row_scale) A' diag(col_scale)

with A' the stored adjacency, or the same with ones on its diagonal. Every rank makes the blocks that it multiplies
itself. With the normalisation folded, A' is the 0/1 pattern of an unweighted graph and no edge value is stored or read:
D^-1/2 P D^-1/2 X = row_scale * (P (col_scale * X)). Otherwise a block holds the normalised entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.csr import without_duplicates

if TYPE_CHECKING:
    from fullgnn.graph.graph import Graph

NORMALIZATIONS = ("sym", "row", "none")
ENTRIES_PER_BLOCK = 1 << 22  # float64 temporaries of 32 MiB, whatever the size of the graph
LEAST_SUM = 1e-6
"""A row sum must be above this fraction of the sum of the magnitudes: a smaller one has lost its digits, and dividing
by it makes entries that no model trains with."""


@dataclass(frozen=True)
class Propagation:
    """Which matrix A a graph convolution multiplies by.

    With ``self_loops``, A' is the stored adjacency with its whole diagonal set to 1 (a stored self-loop is replaced,
    not added to); otherwise A' is the stored adjacency. D holds the row sums of A'. Then, after Kipf and Welling (2017,
    eq. 2) for ``sym``, the ``normalization`` gives

    - ``sym``: A = D^-1/2 A' D^-1/2, with row sums on both sides also when the graph is directed;
    - ``row``: A = D^-1 A', the mean over the nodes that a node reads from;
    - ``none``: A = A'.

    The scale of a node without neighbours is 0. Where a node has neighbours, its row sum must be a positive number that
    its weights do not cancel; see ``refuse_unusable``.

    Args:
        without_sums: the setting of the model with which it does not divide by row sums, for messages; empty: there is
            none. Two propagations that differ only here are equal.

    Raises:
        ConfigError: an unknown normalisation.
    """

    normalization: str = "sym"
    self_loops: bool = True
    without_sums: str = field(default="normalization=none", compare=False)

    def __post_init__(self) -> None:
        if self.normalization not in NORMALIZATIONS:
            known = ", ".join(NORMALIZATIONS)
            raise ConfigError(f"unknown normalization {self.normalization!r}: choose one of {known}")

    @property
    def needs_row_sums(self) -> bool:
        return self.normalization != "none"

    def shares_blocks(self, symmetric: bool, folded: bool) -> bool:
        """Whether the blocks of A serve A^T too, whose scales may differ.

        Args:
            symmetric: whether the stored adjacency equals its transpose.
            folded: whether the blocks hold A', not A.
        """
        return symmetric and (folded or self.normalization != "row")

    def scales(self, row_sum: np.ndarray | None) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Row scale and column scale, float64, from the row sums of A'; None: all 1. Every array has the same shape.

        ``row_sum`` may be None if the normalisation ``needs_row_sums`` not.
        """
        if not self.needs_row_sums:
            return None, None
        assert row_sum is not None
        degree = row_sum if self.normalization == "row" else np.sqrt(row_sum)
        scale = np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
        return scale, scale if self.normalization == "sym" else None


@dataclass(frozen=True)
class EdgeSet:
    """Which edges a layer reads one by one: those that the graph stores.

    With ``self_loops`` every node also has an edge of weight 1 to itself, which replaces one that is stored.
    """

    self_loops: bool = False


def normalized_entries(
    matrix: csr_array, row_scale: np.ndarray | None, col_scale: np.ndarray | None, dtype: Any
) -> np.ndarray:
    """(nnz,) entries of diag(row_scale) ``matrix`` diag(col_scale), computed in float64 and cast to ``dtype`` at the
    end; an entry that ``dtype`` does not hold becomes infinite.

    Args:
        matrix: (m, n) CSR, a block of A' or of its transpose.
        row_scale: (m,) float64; None: all 1.
        col_scale: (n,) float64; None: all 1.
    """
    num_entries = np.diff(matrix.indptr)
    data = np.empty(matrix.nnz, dtype=dtype)
    for first, last in _row_blocks(matrix.indptr):
        block = slice(matrix.indptr[first], matrix.indptr[last])
        entries = matrix.data[block].astype(np.float64)
        factor = None if row_scale is None else np.repeat(row_scale[first:last], num_entries[first:last])
        if col_scale is not None:
            columns = col_scale[matrix.indices[block]]
            # s_i * s_j commutes: the normalised entries of a symmetric A' are symmetric to the bit
            factor = columns if factor is None else factor * columns
        with np.errstate(over="ignore"):
            data[block] = entries if factor is None else factor * entries
    return data


def check_entries(graph: Graph, propagation: Propagation, row_sum: np.ndarray | None, dtype: Any) -> None:
    """Check that every normalised entry of ``graph`` is within ``dtype``.

    Args:
        row_sum: (num_nodes,) of A', see ``row_sums``; None: A is not normalised.

    Raises:
        DataError: an entry is beyond what ``dtype`` holds; the message names its nodes.
    """
    if graph.weight is not None:
        check_rows(graph.adjacency(np.float64), propagation, row_sum, row_sum, dtype)


def check_rows(
    rows: csr_array,
    propagation: Propagation,
    row_sum: np.ndarray | None,
    column_sum: np.ndarray | None,
    dtype: Any,
    first: int = 0,
    name_of: Callable[[int], int] = int,
) -> None:
    """Check that every normalised entry of consecutive ``rows`` of a weighted adjacency is within ``dtype``.

    Args:
        rows: (m, n), with the stored weights.
        row_sum: (m,) of A' for these rows; None: A is not normalised.
        column_sum: (n,) of A' for all rows.
        first: number of the first row.
        name_of: the node of a row, for messages.

    Raises:
        DataError: an entry is beyond what ``dtype`` holds; the message names its nodes.
    """
    row_scale, col_scale = propagation.scales(row_sum)[0], propagation.scales(column_sum)[1]
    wrong = np.flatnonzero(~np.isfinite(normalized_entries(rows, row_scale, col_scale, dtype)))
    if propagation.self_loops and len(wrong):  # a stored self-loop is replaced by 1
        row = np.searchsorted(rows.indptr, wrong, side="right") - 1
        wrong = wrong[rows.indices[wrong] != row + first]
    if len(wrong):
        edge = int(wrong[0])
        target, column = int(np.searchsorted(rows.indptr, edge, side="right")) - 1, int(rows.indices[edge])
        entry = np.float64(rows.data[edge]) * (1.0 if row_scale is None else row_scale[target])
        entry = entry if col_scale is None else entry * col_scale[column]
        raise DataError(
            f"the weight {entry:g} with which node {name_of(target + first)} reads from node {name_of(column)} is"
            f" beyond {np.dtype(dtype)}: scale the weights, or set runtime.dtype=float64"
        )


def row_sums(graph: Graph, self_loops: bool = True, without_sums: str = Propagation.without_sums) -> np.ndarray:
    """(num_nodes,) float64 row sums of A', see ``Propagation`` and ``sums_of_rows``.

    Raises:
        DataError: as ``sums_of_rows`` and ``refuse_unusable``.
    """
    weighted = graph.weight is not None
    sums = sums_of_rows(graph.adjacency(np.float64 if weighted else np.int8), self_loops, weighted_as(graph.weight))
    refuse_unusable([sums.unusable], without_sums)
    return sums.total


def weighted_as(weight: np.ndarray | None) -> np.dtype | None:
    """The dtype of the stored weights; None where every entry is 1."""
    return None if weight is None else weight.dtype


class Unusable(NamedTuple):
    """Rows by whose sums nothing can be divided, see ``refuse_unusable``."""

    num_rows: int = 0
    node: int = 0  # with the least sum
    total: float = 0.0  # its sum


class RowSums(NamedTuple):
    """What ``sums_of_rows`` finds."""

    total: np.ndarray  # (m,) float64
    unusable: Unusable = Unusable()


def sums_of_rows(
    rows: csr_array,
    self_loops: bool,
    stored: np.dtype | None,
    first: int = 0,
    name_of: Callable[[int], int] = int,
) -> RowSums:
    """Row sums of A', see ``Propagation``, for consecutive rows; the same for any order of the nodes.

    Args:
        rows: (m, n), rows of the stored adjacency; its weights in float64, or ones.
        stored: dtype of the weights; None where every entry is 1.
        first: number of the first row.
        name_of: the node of a row, for messages.

    Raises:
        DataError: a sum, or its reciprocal, is beyond float64; the message names the node.
    """
    if stored is None:
        without_loop = rows.diagonal(k=first) == 0 if self_loops and len(rows.indptr) > 1 else 0
        return RowSums(np.diff(rows.indptr).astype(np.float64) + without_loop)
    from fullgnn.graph._row_sums_cpu import accurate_row_sums  # imported here, since it imports numba

    adj = with_self_loops(rows, first) if self_loops else rows
    total, magnitude = accurate_row_sums(adj.indptr, adj.data)
    beyond = ~np.isfinite(magnitude) | ((magnitude > 0) & (magnitude < np.finfo(np.float64).tiny))
    if beyond.any():
        row = int(beyond.argmax())
        how = "less" if np.isfinite(magnitude[row]) else "more"
        raise DataError(
            f"the weights with which node {name_of(row + first)} reads sum to {how} than float64 holds: scale the"
            " weights"
        )
    wrong = np.flatnonzero((total <= LEAST_SUM * magnitude) & (magnitude > 0))
    if not len(wrong):
        return RowSums(total)
    row = int(wrong[total[wrong].argmin()])
    return RowSums(total, Unusable(len(wrong), name_of(row + first), float(total[row])))


def refuse_unusable(unusable: Iterable[Unusable], without_sums: str) -> None:
    """Refuse a graph with rows whose sums are negative, or next to nothing beside the magnitudes of their weights.

    Args:
        unusable: those of each part of the graph.
        without_sums: see ``Propagation``.

    Raises:
        DataError: it names the node with the least sum and the number of such nodes, and says what to change.
    """
    wrong = [rows for rows in unusable if rows.num_rows]
    if not wrong:
        return
    worst, count = min(wrong, key=lambda rows: rows.total), sum(rows.num_rows for rows in wrong)
    others = "no other node is" if count == 1 else f"{count} nodes are"
    raise DataError(
        f"the weights with which node {worst.node} reads sum to {worst.total:g}, which is negative or next to nothing"
        f" beside their magnitudes ({others} like that), and the model divides by these sums: use"
        f" {without_sums + ' or ' if without_sums else ''}weights that are not negative"
    )


def with_self_loops(matrix: csr_array, first: int = 0) -> csr_array:
    """The CSR ``matrix`` with every entry of a diagonal stored and exactly 1, with sorted indices.

    Args:
        first: the column of the diagonal in the first row.
    """
    from fullgnn.graph._csr_cpu import with_diagonal  # imported here, since it imports numba

    return with_diagonal(without_duplicates(matrix), first)


def _row_blocks(indptr: np.ndarray) -> Iterator[tuple[int, int]]:
    """Consecutive row ranges of about ``ENTRIES_PER_BLOCK`` entries each (one long row may exceed it)."""
    targets = np.arange(0, int(indptr[-1]), ENTRIES_PER_BLOCK)
    cuts = np.unique([0, *np.searchsorted(indptr, targets), len(indptr) - 1]).tolist()
    yield from pairwise(cuts)
