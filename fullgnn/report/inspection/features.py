"""What the feature columns are like: density, columns that say nothing, and how wide they vary."""

import numpy as np
from scipy.sparse import csr_array

from fullgnn.graph import Graph
from fullgnn.graph.labels import is_labelled
from fullgnn.report.inspection.findings import Column, FeatureFacts

MAX_COLUMNS = 20
"""How many columns of a kind are named."""
_ENDS = np.minimum, np.maximum
_BYTES_AT_ONCE = 1 << 28
"""Bytes of features that are converted, or read from a mapped file, at once."""


def features_of(graph: Graph) -> FeatureFacts | None:
    """The ``FeatureFacts`` of ``graph``, which are read once; None if it has none."""
    features = graph.features
    num_rows, num_columns = features.shape
    if not num_columns:
        return None
    dense = isinstance(features, np.ndarray)
    sums, empty_rows = _sums(features) if isinstance(features, np.ndarray) else _sums_of_sparse(features)
    low, high, total, squares, nonzero = sums
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = np.sqrt(np.maximum(0, squares / num_rows - (total / num_rows) ** 2))
    empty = np.flatnonzero(nonzero == 0)
    constant = np.flatnonzero((low == high) & (nonzero > 0))
    varying = np.flatnonzero((low < high) & (deviation > 0))
    narrowest = widest = None
    if len(varying):
        least, most = varying[deviation[varying].argmin()], varying[deviation[varying].argmax()]
        narrowest, widest = Column(int(least), float(deviation[least])), Column(int(most), float(deviation[most]))
    num_nonzero = int(nonzero.sum())
    return FeatureFacts(
        num_columns=num_columns,
        dtype=str(features.dtype),
        density=num_nonzero / (num_rows * num_columns),
        sparse=not dense,
        dense_bytes=num_rows * num_columns * features.dtype.itemsize,
        sparse_bytes=num_nonzero * (features.dtype.itemsize + 4) + 8 * (num_rows + 1),
        empty_rows=empty_rows,
        num_empty=len(empty),
        empty=tuple(empty[:MAX_COLUMNS].tolist()),
        num_constant=len(constant),
        constant=tuple(constant[:MAX_COLUMNS].tolist()),
        narrowest=narrowest,
        widest=widest,
        empty_unlabelled=_empty_unlabelled(graph) if empty_rows else 0,
    )


def _empty_unlabelled(graph: Graph) -> int:
    """The nodes whose features are all 0, and that have no label, where others have one."""
    labelled = is_labelled(graph.labels)
    if not labelled.any():
        return 0
    nodes, features = np.flatnonzero(~labelled), graph.features
    if not isinstance(features, np.ndarray):
        return int(np.count_nonzero(features.indptr[nodes] == features.indptr[nodes + 1]))
    step = max(1, _BYTES_AT_ONCE // (features.itemsize * features.shape[1]))
    blocks = (features[nodes[first : first + step]] for first in range(0, len(nodes), step))
    return sum(int(np.count_nonzero(~block.any(axis=1))) for block in blocks)


def _sums_of_sparse(features: csr_array) -> tuple[np.ndarray, int]:
    """``_sums`` of a sparse matrix."""
    from fullgnn.report.inspection._passes_cpu import read_sparse_features  # imported here, since it imports numba

    sums = read_sparse_features(features.indices, features.data, features.shape[1])
    with_zeros = sums[4] < features.shape[0]
    sums[0], sums[1] = (np.where(with_zeros, meet(sums[at], 0), sums[at]) for at, meet in enumerate(_ENDS))
    return sums, int(np.count_nonzero(np.diff(features.indptr) == 0))


def _sums(features: np.ndarray) -> tuple[np.ndarray, int]:
    """``_passes_cpu.read_features`` of all rows, block by block; float16, which is in a file, as float32."""
    from fullgnn.report.inspection._passes_cpu import read_features  # imported here, since it imports numba

    shift = features[0].astype(np.float64)
    step = max(1, _BYTES_AT_ONCE // (4 * features.shape[1])) if features.dtype == np.float16 else len(features)
    total, empty_rows = None, 0
    for first in range(0, len(features), step):
        block = features[first : first + step]
        sums, empty = read_features(block.astype(np.float32) if block.dtype == np.float16 else block, shift)
        empty_rows += empty
        if total is None:
            total = sums
            continue
        total[0], total[1] = (meet(total[at], sums[at]) for at, meet in enumerate(_ENDS))
        total[2:] += sums[2:]
    assert total is not None  # a graph has a node
    return total, empty_rows
