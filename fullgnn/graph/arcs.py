"""CSR arrays of arcs that arrive piece by piece, with little memory beside the arcs.

An arc without a weight takes 8 bytes until all have arrived: ``target * 2^32 + source``, in one array that grows in
place. It is sorted in place, and the columns are written to its first half, whose second half is given back. So the
peak is 8 bytes an arc and 8 bytes a node. Weights take twice their own bytes and 4 more bytes an arc.
"""

from dataclasses import dataclass

import numpy as np

from fullgnn.graph import _arcs_cpu as compiled
from fullgnn.graph._csr_cpu import over_rows
from fullgnn.graph.growing import GrowingArray
from fullgnn.kernels.support.process import PIECES, even_slices, parallel_for


@dataclass(frozen=True, eq=False)
class Arcs:
    """The arrays of a ``Graph``, and the remarks on what was done to the arcs."""

    indptr: np.ndarray  # (num_nodes + 1,) int64
    indices: np.ndarray  # (num_edges,) int32, ascending within a row, no duplicates
    weight: np.ndarray | None  # (num_edges,) float32 or float64, no zeros
    remarks: dict[str, int]


class ArcBuilder:
    """Collects arcs, and makes CSR arrays of them.

    Args:
        expected: how many arcs there will be, if that is known.
        weight_dtype: float32 or float64; None: the arcs have no weights.
    """

    def __init__(self, expected: int = 0, weight_dtype: type | None = None):
        self._keys = GrowingArray(np.int64, expected=expected)
        self._weight = None if weight_dtype is None else GrowingArray(weight_dtype, expected=expected)

    def __len__(self) -> int:
        return self._keys.length

    def add(self, source: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None) -> None:
        """Append arcs.

        Args:
            source, target: (n,) int32 numbers of nodes, of at least 0.
            weight: (n,) finite, where the arcs have weights.
        """
        keys = self._keys.add(len(source))
        parallel_for(lambda some: compiled.pack(source[some], target[some], keys[some]), even_slices(len(keys), PIECES))
        if self._weight is not None:
            self._weight.add(len(source))[:] = weight

    def finish(self, num_nodes: int, number: np.ndarray | None = None) -> Arcs:
        """The arrays of all arcs: equal arcs are merged, and their weights added; arcs of weight 0 are dropped.

        The builder is empty then.

        Args:
            number: (num_nodes,) int32, the new number of each node; None: as it is.
        """
        if number is not None:
            keys = self._keys.rows
            parallel_for(lambda some: compiled.renumber(keys[some], number), even_slices(len(keys), PIECES))
            del keys
        return self._without_weights(num_nodes) if self._weight is None else self._with_weights(num_nodes)

    def _without_weights(self, num_nodes: int) -> Arcs:
        keys = self._keys.taken()
        num_arcs = len(keys)
        keys.sort()
        indptr = np.zeros(num_nodes + 1, np.int64)
        count = compiled.distinct_columns(keys, keys.view(np.int32), indptr)
        np.cumsum(indptr, out=indptr)
        keys.resize((count + 1) // 2, refcheck=False)
        return Arcs(indptr, keys.view(np.int32)[:count], None, {"merged_arcs": num_arcs - count, "zero_arcs": 0})

    def _with_weights(self, num_nodes: int) -> Arcs:
        assert self._weight is not None
        keys, weight = self._keys.taken(), self._weight.taken()
        num_arcs = len(keys)
        starts = np.zeros(num_nodes + 1, np.int64)
        compiled.count_targets(keys, starts[1:])
        np.cumsum(starts, out=starts)
        columns, values = np.empty(num_arcs, np.int32), np.empty_like(weight)
        compiled.scatter(keys, weight, starts[:-1].copy(), columns, values)
        del keys, weight
        counts = np.zeros((2, num_nodes), np.int64)
        over_rows(compiled.merge_rows, num_nodes, starts, columns, values, counts)
        indptr = np.zeros(num_nodes + 1, np.int64)
        np.cumsum(counts[1], out=indptr[1:])
        compiled.close_gaps(starts, indptr, columns, values)
        num_zero, num_edges = int(counts[0].sum()), int(indptr[-1])
        columns.resize(num_edges, refcheck=False)
        values.resize(num_edges, refcheck=False)
        return Arcs(indptr, columns, values, {"merged_arcs": num_arcs - num_zero - num_edges, "zero_arcs": num_zero})
