"""The loss of a codec in what the first layer of a model reads, which is what counts in training.

Products of A with the features average over neighbours, and with them the errors of a codec. So the same codec loses
less for a GCN, which reads A X, than for a model that reads X alone.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, eye_array

from fullgnn.errors import UnsupportedError
from fullgnn.graph import Graph, Propagation, row_sums
from fullgnn.graph.normalize import normalized_entries

MOST_NODES = 16384
"""A sample of rows reads the features of at most about so many nodes."""


@dataclass(frozen=True)
class FirstLayer:
    """The products A^k X that a first layer reads; of k above 1, A X stands for them."""

    propagation: Propagation | None  # A; None: it reads X alone, or more than products
    powers: tuple[int, ...] = (0,)


@dataclass(frozen=True, eq=False)
class CodecLoss:
    """Compares features with decoded ones, by what a sample of targets reads.

    Args:
        nodes: (m,) int64, whose features are read, ascending.
        products: each maps (m, F) features of ``nodes`` to rows that the first layer reads.
    """

    nodes: np.ndarray
    products: list[csr_array]

    @classmethod
    def of(cls, layer: FirstLayer, graph: Graph | None, seed: int) -> "CodecLoss":
        """Draw targets until they read about ``MOST_NODES`` nodes.

        Raises:
            UnsupportedError: there is no graph.
        """
        if graph is None:
            raise UnsupportedError("codec=auto measures what the first layer reads, and no graph is known here")
        order = np.random.default_rng(seed).permutation(graph.num_nodes)
        if layer.propagation is None or max(layer.powers) == 0:
            nodes = np.sort(order[:MOST_NODES])
            return cls(nodes, [csr_array(eye_array(len(nodes)))])
        degree = np.diff(graph.indptr)[order]
        count = max(1, int(np.searchsorted(np.cumsum(degree + 1), MOST_NODES)))
        targets = np.sort(order[:count])
        rows = _rows(graph, layer.propagation, targets)
        nodes = np.union1d(rows.indices, targets)
        place = np.searchsorted(nodes, rows.indices)
        shape = len(targets), len(nodes)
        products = [csr_array((rows.data, place, rows.indptr), shape=shape)]
        if 0 in layer.powers:
            own = np.searchsorted(nodes, targets)
            products.append(csr_array((np.ones(len(own)), own, np.arange(len(own) + 1)), shape=shape))
        return cls(nodes, products)

    def __call__(self, features: np.ndarray, decoded: np.ndarray) -> float:
        """The Frobenius norm of the error of the products over that of the products; 0 where both are zero.

        Args:
            features, decoded: (m, F) of ``nodes``.
        """
        x, error = features.astype(np.float64), features.astype(np.float64) - decoded
        lost, whole = (sum(float(np.square(product @ y).sum()) for product in self.products) for y in (error, x))
        return float(np.sqrt(lost / whole)) if whole else float(lost > 0)


def _rows(graph: Graph, propagation: Propagation, targets: np.ndarray) -> csr_array:
    """(len(targets), num_nodes) rows of A, float64."""
    matrix, sums = graph.adjacency(np.float64)[targets], None
    if propagation.needs_row_sums:
        sums = row_sums(graph, propagation.self_loops, propagation.without_sums)
    if propagation.self_loops:
        size = len(targets)
        loops = csr_array((np.ones(size), targets, np.arange(size + 1)), shape=matrix.shape)
        matrix = matrix - matrix.multiply(loops) + loops  # a stored self-loop is replaced
        matrix = csr_array(matrix)
    row_scale, col_scale = propagation.scales(sums)
    row_scale = None if row_scale is None else row_scale[targets]
    matrix.data = normalized_entries(matrix, row_scale, col_scale, np.float64)
    return matrix
