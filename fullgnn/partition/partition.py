"""A partition of the nodes into block rows, consecutive or as a partitioner returns it; the two partitioners that look
at no edge; and the names of the functions that cut and order the nodes."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from fullgnn.errors import PartitionError


@dataclass(frozen=True, eq=False)
class Partition:
    """Consecutive block rows: part ``i`` holds the (reordered) nodes ``bounds[i] .. bounds[i + 1] - 1``.

    A part may be empty; with more parts than nodes, some parts are.
    """

    bounds: np.ndarray  # (num_parts + 1,) int64, GLOBAL node ids, non-decreasing, from 0 to num_nodes

    def __post_init__(self) -> None:
        given = np.asarray(self.bounds)
        if given.ndim != 1 or given.size < 2 or not np.issubdtype(given.dtype, np.integer):
            raise PartitionError(f"Partition bounds are {given.dtype}{given.shape}: give num_parts + 1 integers.")
        bounds = given.astype(np.int64)  # a private copy, made read-only below
        if bounds[0] != 0 or np.any(bounds[1:] < bounds[:-1]):
            raise PartitionError("Partition bounds do not rise from 0: sort them and put 0 in front.")
        bounds.flags.writeable = False
        object.__setattr__(self, "bounds", bounds)

    @classmethod
    def equal(cls, num_nodes: int, num_parts: int) -> Partition:
        """Consecutive parts whose sizes differ by at most one.

        Part ``i`` starts at ``floor(i * num_nodes / num_parts)``, in exact integers, so that every rank computes the
        same bounds from the two numbers alone. With fewer nodes than parts some parts are empty.
        """
        check_num_parts(num_nodes, num_parts)
        return cls(np.arange(num_parts + 1, dtype=np.int64) * num_nodes // num_parts)

    @property
    def num_parts(self) -> int:
        return self.bounds.size - 1

    @property
    def num_nodes(self) -> int:
        return int(self.bounds[-1])

    @property
    def sizes(self) -> np.ndarray:
        """(num_parts,) int64, the number of nodes in each part."""
        return np.diff(self.bounds)

    def slice(self, part: int) -> builtins.slice:
        """The rows of ``part`` as a Python slice, for arrays and sparse matrices alike."""
        assert 0 <= part < self.num_parts, f"part {part} of {self.num_parts}"
        return builtins.slice(int(self.bounds[part]), int(self.bounds[part + 1]))


@dataclass(frozen=True, eq=False)
class Cut:
    """A numbering in which the parts are consecutive; inside a part the nodes keep their old order."""

    perm: np.ndarray  # (num_nodes,) int64, GLOBAL: new node i is old node perm[i]
    partition: Partition  # parts of the new nodes
    used: str  # name of the partitioner that ran; after a fallback it differs from the configured one

    def __post_init__(self) -> None:
        if not is_permutation(self.perm, self.partition.num_nodes):
            raise PartitionError(
                f"Partitioner {self.used} did not return a permutation of its {self.partition.num_nodes} nodes"
                ": return each of 0..n-1 once, as integers."
            )
        descents = np.flatnonzero(self.perm[1:] < self.perm[:-1]) + 1
        if not np.isin(descents, self.partition.bounds).all():
            raise PartitionError(
                f"Partitioner {self.used} did not keep the order of the nodes in each part: sort them."
            )

    @classmethod
    def consecutive(cls, partition: Partition, used: str) -> Cut:
        """The cut into parts that are consecutive already: the nodes keep their numbers."""
        return cls(np.arange(partition.num_nodes, dtype=np.int64), partition, used)

    @classmethod
    def from_part_id(cls, part_id: np.ndarray, num_parts: int, used: str) -> Cut:
        """The cut that puts node ``i`` into part ``part_id[i]``, (num_nodes,) integers from 0 to ``num_parts - 1``."""
        perm = np.argsort(part_id, kind="stable").astype(np.int64, copy=False)
        sizes = np.bincount(part_id, minlength=num_parts)
        return cls(perm, Partition(np.concatenate([[0], np.cumsum(sizes)])), used)


def check_num_parts(num_nodes: int, num_parts: int) -> None:
    """Refuse numbers of nodes and parts that no partition has.

    Raises:
        PartitionError: one of them is too small.
    """
    if num_nodes < 0 or num_parts < 1:
        raise PartitionError(f"Cannot cut {num_nodes} nodes into {num_parts} parts: give at least 1 part.")


def num_nodes_of(adj: sparse.csr_array) -> int:
    """The number of rows of a square ``adj``.

    Raises:
        PartitionError: it is not square.
    """
    num_rows, num_columns = adj.shape
    if num_rows != num_columns:
        raise PartitionError(f"Cannot cut a {num_rows} x {num_columns} adjacency: give a square one.")
    return num_rows


def is_permutation(order: np.ndarray, size: int) -> bool:
    """Whether ``order`` holds each of ``0 .. size - 1`` once."""
    if order.shape != (size,):
        return False
    if size == 0:  # numpy gives an empty list the dtype float64
        return True
    if not np.issubdtype(order.dtype, np.integer):
        return False
    seen = np.zeros(size, dtype=bool)
    seen[order[(order >= 0) & (order < size)]] = True
    return bool(seen.all())  # ``size`` entries and ``size`` distinct values: each occurs exactly once


def imbalance(load: np.ndarray) -> float:
    """Largest load of a part divided by the mean load. 1 is perfect; the result is also 1 without any load."""
    return float(load.max() / load.mean()) if load.any() else 1.0


def contiguous(adj: sparse.csr_array, train_mask: np.ndarray, num_parts: int, seed: int) -> Cut:
    """Parts of consecutive nodes whose sizes differ by at most one: see :meth:`Partition.equal`."""
    return Cut.consecutive(Partition.equal(num_nodes_of(adj), num_parts), used="contiguous")


def random(adj: sparse.csr_array, train_mask: np.ndarray, num_parts: int, seed: int) -> Cut:
    """Put each node into a random part; the sizes of the parts differ by at most one.

    A random cut balances everything in expectation and keeps no locality: it is the baseline of the other partitioners.
    """
    num_nodes = num_nodes_of(adj)
    sizes = Partition.equal(num_nodes, num_parts).sizes
    part_id = np.repeat(np.arange(num_parts), sizes)
    return Cut.from_part_id(np.random.default_rng(seed).permutation(part_id), num_parts, used="random")


@dataclass(frozen=True)
class UsedMethods:
    """The methods that ordered the nodes, and how long they took. The fields are named as those of ``RunRecord``."""

    partition: str  # name of the partitioner that ran; after a fallback it differs from the configured one
    reorder: str  # name of the reordering that ran; after a fallback it differs as well
    reorder_num_blocks: int  # number of blocks that were ordered separately
    partition_time_s: float = 0.0  # 0 if the order was loaded
    reorder_time_s: float = 0.0


def base_function(method: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, also where Hydra has wrapped it in a ``functools.partial``."""
    return getattr(method, "func", method)


def name_of(method: Callable[..., Any]) -> str:
    """The name of the function, such as ``rcm``, also where it is wrapped in a ``functools.partial``."""
    function = base_function(method)
    return getattr(function, "__name__", repr(function))
