"""Checks of the fields of a ``Graph``: each function takes one raw field and returns it in the stored dtype.

No function writes to its argument, and a field that already has the stored dtype is not copied. Range checks
use ``min`` and ``max`` (which propagate NaN) rather than boolean temporaries, since features may fill gigabytes.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypedDict

import numpy as np
import scipy.sparse

from fullgnn.errors import DataError, quoted

MAX_NODES = 1 << 31
"""Nodes that a graph has fewer than: ids are int32."""

_ROWS_AT_ONCE = 1 << 14


class Fields(TypedDict, total=False):
    """The fields of ``Graph`` that its constructors pass on as they are given."""

    features: Any
    labels: Any
    train_mask: Any
    val_mask: Any
    test_mask: Any
    num_classes: int
    name: str
    num_users: int | None
    val_links: Any
    test_links: Any
    node_names: Any
    class_names: Any
    remarks: Any


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or the error's type if the text is empty; fullgnn's messages have one line."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


@contextmanager
def naming(path: Any, *kinds: type[Exception]) -> Iterator[None]:
    """Begin the message of a ``DataError``, or of an error of other ``kinds``, with the file or folder ``path``, unless
    it begins so."""
    caught: tuple[type[Exception], ...] = (DataError, *kinds)
    try:
        yield
    except caught as error:
        said = first_line(error)
        raise error if said.startswith(str(path)) else DataError(f"{path}: {said}") from error


@contextmanager
def reading(path: Any, cure: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of these ``kinds``, but a lack of memory, into a ``DataError``: the file ``path`` cannot be read, and
    why.

    Args:
        cure: ends the message.
    """
    try:
        yield
    except MemoryError:
        raise
    except kinds as error:
        raise DataError(f"{path} cannot be read ({quoted(first_line(error))}): {cure}") from error


def check_num_nodes(num_nodes: int, what: str = "the graph") -> None:
    """Refuse more nodes than int32 can number.

    Raises:
        DataError: there are 2^31 or more.
    """
    if num_nodes >= MAX_NODES:
        raise DataError(f"{what} has {num_nodes} nodes, and a Graph can have fewer than 2^31: number nodes from 0 on")


def id_beyond(ids: np.ndarray, stop: int) -> int | None:
    """One of the ``ids`` that is negative, or ``stop`` or more; None: there is none."""
    if not ids.size or (ids.min() >= 0 and ids.max() < stop):
        return None
    return int(ids.min() if ids.min() < 0 else ids.max())


def is_sparse(value: Any) -> bool:
    """Whether ``value`` is a sparse matrix of scipy or of torch."""
    return scipy.sparse.issparse(value) or str(getattr(value, "layout", "")).startswith("torch.sparse")


def to_array(value: Any, what: str) -> np.ndarray:
    """Any dense array-like (numpy, torch on any device, nested lists) as a numpy array of its own dtype.

    numpy has no bfloat16: such a tensor becomes float32.
    """
    if scipy.sparse.issparse(value):
        raise DataError(f"{what} is sparse, and a Graph keeps it dense: pass {what}.toarray()")
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{what} cannot be read as an array: {first_line(error)}") from error


def to_numpy(value: Any, what: str) -> np.ndarray:
    """``to_array`` for numbers and booleans only."""
    array = to_array(value, what)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} has dtype {array.dtype}: pass real numbers or booleans")
    return array


def to_integers(value: Any, what: str) -> np.ndarray:
    """Any dense integer array-like as a numpy array; an empty list counts as integers whatever dtype numpy gives it."""
    array = to_numpy(value, what)
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind == "f" or not np.can_cast(array.dtype, np.int64):
        raise DataError(f"{what} has dtype {array.dtype}: pass integers that fit int64")
    return array


def to_float32(numbers: Any) -> Any:
    """An array or a sparse matrix in float32. What is beyond float32 becomes infinite, which a ``Graph`` refuses."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32, copy=False)


def read_only(array: np.ndarray) -> np.ndarray:
    """A read-only view of ``array``; the caller's own array stays as writable as it was."""
    view = array.view()
    view.flags.writeable = False
    return view


def check_indptr(value: Any) -> np.ndarray:
    """Row starts: (num_nodes + 1,) int64, from 0, non-decreasing."""
    indptr = to_integers(value, "indptr").astype(np.int64, copy=False)
    if indptr.ndim != 1 or len(indptr) == 0:
        raise DataError(f"indptr has shape {indptr.shape}: pass num_nodes + 1 row starts")
    if len(indptr) == 1:
        raise DataError("the graph has no nodes: a Graph needs at least one")
    check_num_nodes(len(indptr) - 1)
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise DataError("indptr must start at 0 and never decrease: pass the row starts of a CSR matrix")
    return indptr


def check_indices(value: Any, indptr: np.ndarray) -> np.ndarray:
    """Column of every entry: int32, in range, strictly increasing within each row."""
    indices, num_nodes = to_integers(value, "indices"), len(indptr) - 1
    if indices.ndim != 1 or len(indices) != indptr[-1]:
        raise DataError(f"indptr ends at {indptr[-1]} but indices has shape {indices.shape}: they must agree")
    if (bad := id_beyond(indices, num_nodes)) is not None:
        raise DataError(f"node id {bad} is out of range: the graph has nodes 0 to {num_nodes - 1}")
    indices = indices.astype(np.int32, copy=False)
    increasing = indices[1:] > indices[:-1]
    row_starts = indptr[(indptr > 0) & (indptr < len(indices))]
    increasing[row_starts - 1] = True  # a new row may start anywhere
    if not increasing.all():
        raise DataError("indices must increase within a row, without duplicates: build with Graph.from_scipy")
    return indices


def check_permutation(perm: Any, num_nodes: int) -> np.ndarray:
    """The ids ``perm`` as (num_nodes,) int64.

    Raises:
        DataError: an id is missing, repeated or out of range.
    """
    perm = to_integers(perm, "perm")
    in_range = perm.shape == (num_nodes,) and 0 <= perm.min() and perm.max() < num_nodes
    if not in_range or (np.bincount(perm) != 1).any():
        raise DataError(f"perm is not a permutation: pass every id from 0 to {num_nodes - 1} exactly once")
    return perm.astype(np.int64, copy=False)


def check_weight(value: Any, num_edges: int) -> np.ndarray | None:
    """Value of every entry: float32 or float64, finite and non-zero; all ones are stored as None."""
    if value is None:
        return None
    weight = to_numpy(value, "weight")
    if weight.shape != (num_edges,):
        raise DataError(f"weight has shape {weight.shape} but the graph stores {num_edges} edges: pass one each")
    if num_edges == 0:
        return None
    weight = weight.astype(float_dtype(weight, "weight", integers=np.float64), copy=False)
    low, high = weight.min(), weight.max()
    if not np.isfinite([low, high]).all():
        raise DataError("weight holds NaN or Inf: clean the edge weights first")
    if np.count_nonzero(weight) < num_edges:
        raise DataError("weight holds a zero, which is no edge: build with Graph.from_scipy, which drops zeros")
    return None if low == high == 1 else weight


def check_features(value: Any, num_nodes: int) -> np.ndarray:
    """Node features: (num_nodes, num_features), finite; float64 is kept, everything else becomes float32.

    float16 that is mapped from a file is kept as well, where it may be larger than the memory. None, for a graph
    without features, gives 0 columns.
    """
    if value is None:
        return np.empty((num_nodes, 0), np.float32)
    features = to_numpy(value, "features")
    check_shape(features.shape, num_nodes)
    if not _is_mapped_half(features):
        features = np.ascontiguousarray(features, dtype=float_dtype(features, "features", np.float32))
    if not _is_finite(features):
        raise DataError("features hold NaN or Inf: clean or impute them first")
    return features


def check_shape(shape: tuple[int, ...], num_nodes: int) -> None:
    """Refuse features, dense or sparse, that have no row for each node."""
    if len(shape) != 2 or shape[0] != num_nodes:
        raise DataError(f"features has shape {shape} but the graph has {num_nodes} nodes: pass one row per node")


def _is_mapped_half(features: np.ndarray) -> bool:
    """Whether ``features`` are float16, C-contiguous, in a file that is mapped."""
    base: Any = features
    while isinstance(base, np.ndarray):
        base = base.base
    return features.dtype == np.float16 and features.flags.c_contiguous and isinstance(base, mmap.mmap)


def _is_finite(features: np.ndarray) -> bool:
    """Whether all numbers are finite."""
    if features.dtype != np.float16:
        return not features.size or bool(np.isfinite([features.min(), features.max()]).all())
    # The smallest and the largest float16 take NumPy seven times as long as looking at each number.
    blocks = (features[first : first + _ROWS_AT_ONCE] for first in range(0, len(features), _ROWS_AT_ONCE))
    return all(bool(np.isfinite(block).all()) for block in blocks)


def check_masks(masks: Mapping[str, Any], labelled: np.ndarray | None, num_nodes: int) -> list[np.ndarray]:
    """The split: (num_nodes,) bool masks, disjoint. None gives an empty one.

    Args:
        masks: by name, one of the forms of ``read_mask``.
        labelled: (num_nodes,) bool, the nodes that a mask may contain; None: the graph has no labels.
    """
    checked: dict[str, np.ndarray] = {}
    for name, value in masks.items():
        mask = read_mask(value, name, num_nodes)
        if labelled is not None and (mask & ~labelled).any():
            raise DataError(f"{name} contains unlabelled nodes (label -1 or NaN): take them out of every mask")
        for other, earlier in checked.items():
            if (mask & earlier).any():
                raise DataError(f"{other} and {name} overlap: a node belongs to one part of the split at most")
        checked[name] = mask
    return list(checked.values())


def read_mask(value: Any, name: str, num_nodes: int) -> np.ndarray:
    """(num_nodes,) bool, the nodes of one part of a split.

    Args:
        value: None, no node; (num_nodes,) or (num_nodes, 1) booleans, or numbers that are 0 and 1: a mask; other
            integers, of any number: the ids of the nodes, each once.
        name: of the argument, for the errors.

    Raises:
        DataError: ``value`` is neither a mask nor ids, or it may be both.
    """
    if value is None:
        return np.zeros(num_nodes, bool)
    given = to_numpy(value, name)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.ndim == 2 and len(given) == num_nodes:
        raise DataError(
            f"{name} has shape {given.shape}, a split a column: choose one, as in {name}[:, 0], in"
            " Graph.from_pyg(data, split=0), or for a file in dataset.split=0"
        )
    are_integers = given.dtype.kind in "iu" or not given.size
    if given.ndim != 1 or not (are_integers or len(given) == num_nodes):
        raise DataError(f"{name} has shape {given.shape} but the graph has {num_nodes} nodes: pass one bool per node")
    is_mask = given.dtype == bool or bool(np.isin(given, (0, 1)).all())
    if not are_integers:
        if not is_mask:
            raise DataError(f"{name} holds values other than 0 and 1: pass one boolean per node, or integer node ids")
        return given.astype(bool, copy=False)
    mask = np.zeros(num_nodes, bool)
    bad = id_beyond(given, num_nodes)
    if bad is None:
        mask[given.astype(np.int64, copy=False)] = True
    are_ids = bad is None and np.count_nonzero(mask) == len(given)
    if len(given) == num_nodes and is_mask:
        if are_ids and given.size:
            raise DataError(
                f"{name} holds {given.tolist()} for {num_nodes} nodes, which may be a mask or node ids: pass booleans"
            )
        return given.astype(bool)
    if bad is not None:
        raise DataError(f"node id {bad} in {name} is out of range: the graph has nodes 0 to {num_nodes - 1}")
    if not are_ids:
        raise DataError(
            f"{name} holds {len(given)} integers, no mask of the {num_nodes} nodes, and as node ids some of them"
            " repeat: pass one boolean per node, or each id once"
        )
    return mask


def check_range(features: Any, dtype: Any, node_id: np.ndarray | None = None) -> None:
    """Refuse features that would become infinite as ``dtype``.

    Args:
        features: (num_rows, F), an array or a sparse matrix.
        node_id: (num_rows,) the node of each row, for messages; None: its number.
    """
    if np.can_cast(features.dtype, dtype) or not features.size or 0 in features.shape:
        return
    limit = np.finfo(dtype).max
    if max(-features.min(), features.max()) > limit:
        row, column = (places[0] for places in (abs(features) > limit).nonzero())
        node = row if node_id is None else node_id[row]
        raise DataError(
            f"feature {column} of node {node} is {features[row, column]:g}, beyond {np.dtype(dtype)}: scale the"
            " features, or set runtime.dtype=float64"
        )


def float_dtype(array: Any, what: str, integers: type) -> type:
    """The dtype in which a ``Graph`` keeps an array or a sparse matrix: float64 for double precision, float32 for what
    fits it, ``integers`` for wider integers.

    Raises:
        DataError: it has more digits than float64.
    """
    if array.dtype.kind == "f":
        if array.dtype.itemsize > 8:
            raise DataError(f"{what} has dtype {array.dtype}: convert to float64 or float32 first")
        return np.float64 if array.dtype.itemsize == 8 else np.float32
    return np.float32 if np.can_cast(array.dtype, np.float32) else integers
