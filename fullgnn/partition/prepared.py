"""A prepared graph: cut into block rows, which are held in memory or in the files of a folder.

A part holds the rows of its nodes in A and, unless A equals its transpose, in the transpose of A. Rows and columns are
numbered in the new order, and all columns are GLOBAL. The weights are those that the dataset stores: self-loops and
normalisation belong to the model, and are added by the ranks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fullgnn.codecs import State, unpacked
from fullgnn.errors import DataError, quoted
from fullgnn.graph.csr import ones
from fullgnn.graph.links import Lists
from fullgnn.graph.node_names import NodeNames, names_from_arrays
from fullgnn.graph.sparse_features import PARTS, features_from_arrays
from fullgnn.partition import Partition
from fullgnn.partition.facts import GraphFacts


@dataclass(frozen=True, eq=False)
class TakenRows:
    """Some rows of an array, of which a slice is an array: not all of them need to be in memory at once."""

    array: np.ndarray
    index: np.ndarray  # (num_rows,) int64

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.index), *self.array.shape[1:])

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.array[self.index[rows]]


Arrays = Mapping[str, Any]
"""By name, a NumPy array, or ``TakenRows`` of one."""

SHARED = ("node_id", "masks", "reads", "reads_train", "columns_reads")
"""Names of the arrays of a part that ranks with other parts read too.

The reads of a part are the columns of its rows in A, (num_read,) int32, GLOBAL and ascending; those of its training
rows; and, where A is directed, those of its rows in the transpose."""

LISTS = ("train", "val", "test", "known", "held")
"""Names of the lists of partners in ``LinkPairs``."""


_ALWAYS = ("node_id", "labels", "masks", "indptr", "indices", "reads", "reads_train")
_NAMES = {"integers": ("node_names",), "texts": ("node_names_ends", "node_names_utf8")}


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Consecutive rows of a square matrix."""

    indptr: np.ndarray  # (num_rows + 1,) int64, from 0
    indices: np.ndarray  # (nnz,) int32 GLOBAL columns, ascending within a row
    weight: np.ndarray | None  # (nnz,) float32 or float64; None: all 1

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    def matrix(self, num_columns: int) -> csr_array:
        """(num_rows, num_columns) CSR with the weights, or ones in int8."""
        data = ones(len(self.indices)) if self.weight is None else self.weight
        indptr = self.indptr.astype(np.int32) if len(self.indices) < 2**31 else self.indptr
        matrix = csr_array((data, self.indices, indptr), shape=(self.num_rows, num_columns))
        matrix.has_canonical_format = True  # spares scipy a pass over the indices
        return matrix


class Part:
    """One block row of a prepared graph. An array is made, or read, when it is asked for.

    Args:
        arrays: by name, see ``docs/architecture.md``.
    """

    def __init__(self, arrays: Arrays):
        self.arrays = arrays

    @property
    def node_id(self) -> np.ndarray:
        """(num_rows,) int64, ORIGINAL id of each row."""
        return self.arrays["node_id"]

    @property
    def rows(self) -> StoredRows:
        """The rows of A."""
        return self._rows("")

    @property
    def columns(self) -> StoredRows | None:
        """The rows of the transpose of A; None where A is symmetric."""
        return self._rows("columns_") if "columns_indptr" in self.arrays else None

    @property
    def features(self) -> np.ndarray | TakenRows | csr_array:
        """(num_rows, num_features), dense or sparse, of the dtype of ``Graph.features``; or (num_rows, W), encoded."""
        return features_from_arrays(self.arrays)

    @property
    def codec_state(self) -> State | None:
        """What the codec has learnt that has encoded the features; None: they are as they are."""
        return unpacked(self.arrays["codec_state"]) if "codec_state" in self.arrays else None

    @property
    def labels(self) -> np.ndarray:
        """(num_rows,) or (num_rows, c), as ``Graph.labels``."""
        return self.arrays["labels"]

    @property
    def masks(self) -> np.ndarray:
        """(3, num_rows) bool: train, val, test."""
        return self.arrays["masks"]

    @property
    def node_names(self) -> NodeNames | None:
        """(num_rows,) as ``Graph.node_names``; None: the nodes have no names."""
        return names_from_arrays(self.arrays)

    @property
    def pairs(self) -> dict[str, Lists]:
        """By the names ``LISTS``, ORIGINAL ids of the partners of each row; only for a task that finds links."""
        return {name: Lists(self.arrays[f"{name}_indptr"], self.arrays[f"{name}_ids"]) for name in LISTS}

    @property
    def first_pairs(self) -> np.ndarray:
        """(3, num_rows) int64, GLOBAL number of each row's first training, validation and test pair; as ``pairs``."""
        return self.arrays["first_pairs"]

    def _rows(self, prefix: str) -> StoredRows:
        names = [f"{prefix}{name}" for name in ("indptr", "indices", "weight")]
        return StoredRows(self.arrays[names[0]], self.arrays[names[1]], self.arrays.get(names[2]))


def check_names(names: Iterable[str], facts: GraphFacts) -> None:
    """Refuse a part that lacks an array which the ``facts`` ask for. A machine that holds a part for others has its
    ``SHARED`` arrays alone.

    Raises:
        DataError: one line that names the array.
    """
    names, needed = set(names), [*_ALWAYS]
    needed += [f"features_{part}" for part in (*PARTS, "shape")] if facts.keeps_sparse_features else ["features"]
    prefixes = ["", *([] if facts.symmetric else ["columns_"])]
    needed += [f"{prefix}weight" for prefix in prefixes if facts.weighted]
    if not facts.symmetric:
        needed += ["columns_indptr", "columns_indices", "columns_reads"]
    if facts.nodes.links is not None:
        needed += ["first_pairs", *(f"{name}_{key}" for name in LISTS for key in ("indptr", "ids"))]
    needed += _NAMES.get(facts.nodes.node_names, ())
    if facts.encoded_dtype:
        needed.append("codec_state")
    if names <= set(SHARED):
        needed = [name for name in needed if name in SHARED]
    if missing := sorted(set(needed) - names):
        raise DataError(f"a part lacks the array {missing[0]}")


def check_array(name: str, array: np.ndarray, facts: GraphFacts, part: int, num_listed: int | None = None) -> None:
    """Refuse an ``array`` of a part, read from a file, that is not what its ``name`` promises, see ``Part``.

    The loops over nodes and edges, which are compiled, trust what this check lets pass: an index beyond the last node
    would read memory that is not theirs.

    Args:
        num_listed: for the starts of lists of partners, the number of all partners of this part.

    Raises:
        DataError: one line without the name of the array.
    """
    n, rows, num_nodes = int(facts.partition.sizes[part]), facts.counts.nnz, facts.num_nodes
    base = name.removeprefix("columns_")
    nnz = int((rows[part] if base == name else rows[:, part]).sum())
    listed = name.rpartition("_")[0] in LISTS
    length = nnz if num_listed is None else num_listed
    num_features = facts.nodes.num_features
    expected: dict[str, tuple[str, tuple[int, ...] | None]] = {
        "node_id": ("int64", (n,)),
        "features": (facts.encoded_dtype or "float", (n, facts.encoded_width or num_features)),
        "features_indptr": ("int64", (n + 1,)),
        "features_shape": ("int64", (2,)),
        "features_indices": ("int32", None if num_listed is None else (num_listed,)),
        "features_data": ("float", None),
        "state": ("uint8", None),
        "masks": ("bool", (3, n)),
        "indptr": ("int64", (n + 1,)),
        "indices": ("int32", (nnz,)),
        "weight": ("float", (nnz,)),
        "reads": ("int32", None),
        "reads_train": ("int32", None),
        "first_pairs": ("int64", (3, n)),
        "node_names": ("int64", (n,)),
        "node_names_ends": ("int64", (n + 1,)),
        "node_names_utf8": ("uint8", None),
        "labels": ("number", (n, *array.shape[1:2])),
        "ids": ("int", None),
    }
    key = name.rpartition("_")[2] if listed else base
    if key not in expected:
        return  # of a later version
    kind, shape = expected[key]
    of_kind = {"float": "f", "int": "i", "number": "fi"}
    if not (array.dtype.kind in of_kind[kind] if kind in of_kind else array.dtype == kind) or array.dtype.hasobject:
        raise DataError(f"it holds {quoted(array.dtype)}")
    if array.shape != (shape if shape is not None else (array.size,)):
        raise DataError(f"it has the shape {quoted(array.shape)}")
    starts = key in ("indptr", "features_indptr")
    if starts and (array[0] != 0 or array[-1] != length or (array[1:] < array[:-1]).any()):
        raise DataError("it does not rise from 0 to the number of entries")
    if key == "node_names_ends" and (array[0] != 0 or (array[1:] < array[:-1]).any()):
        raise DataError("it does not rise from 0")
    of_nodes = key in ("node_id", "indices", "reads", "reads_train", "ids")
    if of_nodes and array.size and (array.min() < 0 or array.max() >= num_nodes):
        raise DataError("it names nodes that the graph does not have")
    if key == "features_shape" and array.tolist() != [n, num_features]:
        raise DataError(f"it is {array.tolist()}")
    if key == "features_indices" and array.size and (array.min() < 0 or array.max() >= num_features):
        raise DataError("it names columns that the features do not have")
    if key in ("reads", "reads_train") and (array[1:] <= array[:-1]).any():
        raise DataError("it does not rise")
    if key == "labels" and array.dtype.kind == "i" and array.size:
        top = max(0, facts.num_classes - 1) if array.ndim == 1 else 1
        if array.min() < -1 or array.max() > top:
            raise DataError(f"it has labels beyond {top}")


@dataclass(frozen=True, eq=False)
class PreparedGraph:
    """A graph that is cut into block rows."""

    facts: GraphFacts
    part: Callable[[int], Part]
    key: str = ""  # what the arrays depend on, a hash; empty: it was not computed
    folder: Path | None = None  # that holds the graph; None: memory does

    def parts(self) -> Iterator[Part]:
        """All parts, one after the other."""
        return (self.part(number) for number in range(self.facts.num_parts))

    def train_mask(self) -> np.ndarray:
        """(num_nodes,) bool, in the new order."""
        return np.concatenate([part.masks[0] for part in self.parts()])


def needed_row_ratio(prepared: PreparedGraph) -> float | None:
    """Rows that block rows read of each other, as a fraction of all; None with one block row."""
    facts = prepared.facts
    if facts.num_parts == 1:
        return None
    read = rows_read((part.arrays["reads"] for part in prepared.parts()), facts.partition)
    return halo_share(read, facts.num_nodes)


def rows_read(columns: Iterable[np.ndarray], partition: Partition) -> np.ndarray:
    """(num_parts, num_parts) int64: entry ``[i, j]`` counts the rows of part j that block row i reads.

    These are the distinct columns of block (i, j). Off the diagonal they are the halo rows that rank i must
    receive from rank j for one product; a broadcast would send all of part j.

    Args:
        columns: for each block row, the ascending columns in which it has an entry.
    """
    return np.stack([np.diff(np.searchsorted(of_row, partition.bounds)) for of_row in columns])


def halo_share(read: np.ndarray, num_nodes: int) -> float:
    """Number of halo rows as a fraction of the ``(b - 1) * num_nodes`` rows that b broadcasts send; 0 with one part.

    Args:
        read: the result of :func:`rows_read`; its entries off the diagonal count the halo rows.
    """
    num_sent = (read.shape[0] - 1) * num_nodes
    return float((read.sum() - np.trace(read)) / max(num_sent, 1))


class LazyArrays(Mapping[str, Any]):
    """Arrays by name, each made when it is asked for.

    Args:
        make: makes the array of each name.
    """

    def __init__(self, make: Mapping[str, Callable[[], Any]]):
        self._make = make

    def __getitem__(self, name: str) -> Any:
        return self._make[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._make  # the mixin would make the array

    def __iter__(self) -> Iterator[str]:
        return iter(self._make)

    def __len__(self) -> int:
        return len(self._make)
