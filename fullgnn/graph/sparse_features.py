"""Features of which most numbers are 0, such as bags of words: a CSR matrix in the place of an array.

``Graph.features`` holds them as ``scipy.sparse.csr_array`` with sorted, distinct, non-zero entries. A file has the
three arrays of the matrix and the number of its columns.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_array, issparse

from fullgnn.errors import DataError
from fullgnn.graph.checks import check_features, check_shape, first_line, float_dtype, is_sparse, read_only
from fullgnn.graph.csr import csr_from_arrays, without_duplicates, without_zeros
from fullgnn.telemetry.machine import check_fits

NodeFeatures: TypeAlias = np.ndarray | csr_array
"""(num_nodes, num_features) features, dense or sparse."""

PARTS = ("indptr", "indices", "data")
"""The names of the arrays of a CSR matrix; in a file, the first one is int64."""


def check_node_features(value: Any, num_nodes: int) -> NodeFeatures:
    """Features, dense or sparse, as a ``Graph`` keeps them, read-only.

    Raises:
        DataError: they are none; one line that says why.
    """
    if is_sparse(value):
        return check_sparse_features(value, num_nodes)
    return read_only(check_features(value, num_nodes))


def check_sparse_features(value: Any, num_nodes: int) -> csr_array:
    """Sparse features as a ``Graph`` keeps them: sorted, distinct, non-zero, finite entries; float64 is kept,
    everything else becomes float32. The argument is not changed.

    Args:
        value: (num_nodes, num_features), in any sparse format of scipy or torch. Entries of one place are added.

    Raises:
        DataError: it is no such matrix; one line that says why.
    """
    sparse = value if issparse(value) else _of_torch(value)
    check_shape(sparse.shape, num_nodes)
    if sparse.dtype.kind not in "biuf":
        raise DataError(f"features has dtype {sparse.dtype}: pass real numbers or booleans")
    if sparse.shape[1] >= 1 << 31:
        raise DataError(f"features has {sparse.shape[1]} columns: number the columns from 0 on, below 2^31")
    dtype = float_dtype(sparse, "features", np.float32)
    # Sums of small integers, and of booleans, would overflow.
    matrix = csr_array(sparse if sparse.dtype == dtype else sparse.astype(np.promote_types(dtype, sparse.dtype)))
    matrix = without_zeros(without_duplicates(matrix))
    data = matrix.data.astype(dtype, copy=False)
    if not np.isfinite(data).all():
        raise DataError("features hold NaN or Inf: clean or impute them first")
    return _canonical(matrix.indptr, matrix.indices.astype(np.int32, copy=False), data, matrix.shape)


def features_to_arrays(features: NodeFeatures, name: str = "features") -> dict[str, np.ndarray]:
    """The arrays of a file that ``features_from_arrays`` reads."""
    if isinstance(features, np.ndarray):
        return {name: features}
    arrays = {f"{name}_{part}": getattr(features, part) for part in PARTS}
    arrays[f"{name}_indptr"] = features.indptr.astype(np.int64, copy=False)
    return arrays | {f"{name}_shape": np.array(features.shape, np.int64)}


def features_from_arrays(arrays: Mapping[str, Any], name: str = "features") -> Any:
    """The features of which ``features_to_arrays`` has made ``arrays``."""
    if name in arrays:
        return arrays[name]
    indptr, indices, data = (arrays[f"{name}_{part}"] for part in PARTS)
    return _canonical(indptr, indices, data, tuple(arrays[f"{name}_shape"].tolist()))


def to_dense(features: NodeFeatures, dtype: Any = None) -> np.ndarray:
    """(num_nodes, num_features), C-contiguous, of ``dtype`` or else that of ``features``; without a copy where that is
    possible.

    Raises:
        DataError: sparse features are larger than the memory as an array.
    """
    dtype = np.dtype(dtype or features.dtype)
    if isinstance(features, np.ndarray):
        return np.ascontiguousarray(features, dtype=dtype)
    num_rows, num_columns = features.shape
    check_fits(
        num_rows * num_columns * dtype.itemsize,
        f"the sparse features of {num_rows} nodes and {num_columns} columns, as an array,",
        "choose fewer columns, or a model that reads sparse features",
    )
    return features.astype(dtype, copy=False).toarray()


def elements(features: NodeFeatures, step: int) -> np.ndarray:
    """Every ``step``-th number of all rows, one after the other; equal for dense and sparse features."""
    if isinstance(features, np.ndarray):
        return features.reshape(-1)[::step]
    num_rows, num_columns = features.shape
    places = np.arange(0, num_rows * num_columns, step, dtype=np.int64)
    row = np.repeat(np.arange(num_rows, dtype=np.int64), np.diff(features.indptr))
    stored = row * num_columns + features.indices
    at = np.flatnonzero(stored % step == 0)
    numbers = np.zeros(len(places), features.dtype)
    numbers[stored[at] // step] = features.data[at]
    return numbers


def density(features: NodeFeatures, step: int = 1) -> float:
    """The share of numbers that are not 0, of dense features among every ``step``-th number; 1 without features."""
    if not isinstance(features, np.ndarray):
        return float(features.nnz / max(1, features.shape[0] * features.shape[1]))
    some = elements(features, step)
    return float(np.count_nonzero(some) / some.size) if some.size else 1.0


def _canonical(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, shape: tuple[int, ...]) -> csr_array:
    """The matrix of canonical arrays, none of which can be written to."""
    matrix = csr_from_arrays(data, indices, indptr, shape)
    matrix.data, matrix.indices, matrix.indptr = (read_only(getattr(matrix, part)) for part in ("data", *PARTS[1::-1]))
    return matrix


def _of_torch(value: Any) -> csr_array:
    """A sparse tensor as a CSR matrix."""
    try:
        coo = value.detach().cpu().to_sparse_coo().coalesce()
        row, column = coo.indices().numpy()
        return csr_array((coo.values().numpy(), (row, column)), shape=tuple(coo.shape))
    except (RuntimeError, TypeError, ValueError) as error:
        raise DataError(f"features cannot be read as a sparse matrix: {first_line(error)}") from error
