"""Sampling by separate operators, as it was before they were fused: what ``sampling/neighbors.py`` is compared with.

    SampleNeighbors    draws the edges of a hop and writes them as pairs (source, target) of GLOBAL ids
    toBlock            gives the nodes of these pairs LOCAL ids, in the order in which they are found, and rewrites both
                       ends of each edge

In DGL, ``toBlock`` fills two hash tables, one of the targets and one of all nodes, from nothing in every hop; every
edge is then sought twice more. ``toBlockFast`` (Li et al., "Fused sampling and overlapped transfer", 2025) has one
table, and two bitmaps, which answer whether a node is there: the targets set their bits in the first bitmap, which is
copied to the second one. The target of an edge is always known and is only looked up; its source is looked up if its
bit in the second bitmap is set, otherwise it gets the next number. Both ends are done at the same time. The table
serves the next hop too, whose targets are the nodes that it has.

Both draw the same neighbours as the fused sampler with the same seed, so that nothing but the operators differs.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch

from fullgnn.kernels.dropout.philox import LOW
from fullgnn.kernels.support.process import even_slices, parallel_for
from fullgnn.sampling.neighbors import ALL, CHUNKS_PER_THREAD, SAMPLING
from fullgnn.tasks.draws import stream_key

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Pairs:
    """A hop as pairs of nodes."""

    sources: np.ndarray  # (num_sources,) int32 GLOBAL ids, the targets first
    num_targets: int
    src: np.ndarray  # (num_edges,) int32 LOCAL ids among the sources
    dst: np.ndarray  # (num_edges,) int32 LOCAL ids among the targets

    @property
    def num_edges(self) -> int:
        return len(self.src)


@dataclass
class OperatorTimes:
    """What the operators have taken since the last ``Separate.spent`` was replaced."""

    sample_s: float = 0.0
    block_s: float = 0.0
    searches: int = 0  # of a hash table
    inserted: int = 0  # searches that found nothing, and so were needed

    def add(self, seconds: str, operator: Callable[..., T], *args: Any) -> T:
        """The result of an operator, whose time counts in the field ``seconds``."""
        begin = time.perf_counter()
        result = operator(*args)
        setattr(self, seconds, getattr(self, seconds) + time.perf_counter() - begin)
        return result

    def details(self) -> dict[str, float]:
        """Shares of ``toBlock`` in the time of both operators, and of its searches that find a node that is known."""
        redundant = {"redundant_share": 1 - self.inserted / self.searches} if self.searches else {}
        return {"block_share": self.block_s / (self.sample_s + self.block_s), **redundant}


@dataclass
class Separate:
    """Samples neighbours without replacement, by separate operators.

    Args:
        indptr: (n + 1,) int64; indices: (nnz,) int32, as ``NeighborSampler`` has them.
        fanouts: from the targets outwards; ``ALL`` takes all neighbours.
        fast: True: ``toBlockFast``; False: ``toBlock``.
    """

    indptr: np.ndarray
    indices: np.ndarray
    fanouts: Sequence[int]
    seed: int = 0
    fast: bool = False
    spent: OperatorTimes = field(default_factory=OperatorTimes)

    def __post_init__(self) -> None:
        from fullgnn.bench import _separate_cpu  # imports numba

        self._cpu = _separate_cpu
        num_words = -(-(len(self.indptr) - 1) // 64)
        self._bits_1, self._bits_2 = np.zeros(num_words, np.uint64), np.zeros(num_words, np.uint64)

    def sample(self, targets: np.ndarray, epoch: int) -> list[Pairs]:
        """Sample the hops of a batch.

        Args:
            targets: (num_targets,) int32 GLOBAL ids, all different.

        Returns:
            one ``Pairs`` for each fan-out, from the targets outwards.
        """
        hops, table = list[Pairs](), None
        nodes = targets
        for hop, fanout in enumerate(self.fanouts):
            src, dst = self.spent.add("sample_s", self._sample_neighbors, nodes, fanout, hop, epoch)
            if self.fast:
                table = table or self.spent.add("block_s", self._table_of, nodes)
                hops.append(self.spent.add("block_s", self._to_block_fast, table, len(nodes), src, dst))
            else:
                hops.append(self.spent.add("block_s", self._to_block, nodes, src, dst))
            nodes = hops[-1].sources
        if table is not None:
            self._clear(nodes)
        return hops

    def _sample_neighbors(self, targets: np.ndarray, fanout: int, hop: int, epoch: int) -> tuple[np.ndarray, ...]:
        degree = self.indptr[targets + 1] - self.indptr[targets]
        counts = degree if fanout == ALL else np.minimum(degree, fanout)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        src, dst = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int32)
        words = (np.uint64(word) for word in (*stream_key(self.seed, SAMPLING), epoch & LOW))
        drawn = hop, *words, starts, src, dst

        def run(rows: slice) -> None:
            self._cpu.sample_neighbors(self.indptr, self.indices, targets, rows.start, rows.stop, fanout, *drawn)

        parallel_for(run, _parts(len(targets)))
        return src, dst

    def _to_block(self, targets: np.ndarray, src: np.ndarray, dst: np.ndarray) -> Pairs:
        of_targets, of_nodes = _Table.of(len(targets)), _Table.of(len(targets) + len(src))
        nodes = np.empty(len(targets) + len(src), np.int32)
        num_targets = self._cpu.insert(targets, of_targets.keys, of_targets.values, nodes, 0)
        count = self._cpu.insert(targets, of_nodes.keys, of_nodes.values, nodes, 0)
        count = self._cpu.insert(src, of_nodes.keys, of_nodes.values, nodes, count)
        local_src, local_dst = np.empty_like(src), np.empty_like(dst)
        ends = [(src, of_nodes, local_src), (dst, of_targets, local_dst)]

        def run(task: tuple[slice, np.ndarray, "_Table", np.ndarray]) -> None:
            edges, ids, table, local = task
            self._cpu.look_up(ids[edges], table.keys, table.values, local[edges])

        parallel_for(run, [(edges, *end) for end in ends for edges in _parts(len(src))])
        self.spent.searches += 2 * len(targets) + 3 * len(src)
        self.spent.inserted += num_targets + count
        return Pairs(nodes[:count], num_targets, local_src, local_dst)

    def _table_of(self, targets: np.ndarray) -> "_Table":
        """The table and the bitmaps of a batch, with its targets."""
        most, reached = len(targets), float(len(targets))
        mean = len(self.indices) / max(1, len(self.indptr) - 1)
        for fanout in self.fanouts:
            reached *= 1 + (mean if fanout == ALL else fanout)
            most = int(min(len(self.indptr) - 1, reached))
        table = _Table.of(most)
        table.nodes = np.empty(most, np.int32)
        local = np.empty(len(targets), np.int32)
        table.count = self._cpu.insert_by_bitmap(targets, table.keys, table.values, self._bits_1, table.nodes, 0, local)
        self._bits_2[:] = self._bits_1
        return table

    def _to_block_fast(self, table: "_Table", num_targets: int, src: np.ndarray, dst: np.ndarray) -> Pairs:
        local_src, local_dst, before = np.empty_like(src), np.empty_like(dst), table.count

        def sources() -> None:
            table.count = self._cpu.insert_by_bitmap(
                src, table.keys, table.values, self._bits_2, table.nodes, before, local_src
            )  # only this one writes to the table, and never to a slot in use

        parallel_for(lambda run: run(), [sources, lambda: self._cpu.look_up(dst, table.keys, table.values, local_dst)])
        self.spent.searches += len(dst) + len(src)
        self.spent.inserted += table.count - before
        return Pairs(table.nodes[: table.count], num_targets, local_src, local_dst)

    def _clear(self, nodes: np.ndarray) -> None:
        self._cpu.clear_bits(nodes, self._bits_1)
        self._cpu.clear_bits(nodes, self._bits_2)


@dataclass
class _Table:
    """A hash table, see ``_separate_cpu.py``."""

    keys: np.ndarray
    values: np.ndarray
    nodes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))  # its keys, in the order of their values
    count: int = 0

    @classmethod
    def of(cls, most: int) -> "_Table":
        """An empty table for ``most`` keys, at most half full."""
        size = 1 << max(6, int(2 * most - 1).bit_length())
        return cls(np.full(size, -1, np.int32), np.empty(size, np.int32))


def _parts(length: int) -> list[slice]:
    return even_slices(length, CHUNKS_PER_THREAD * torch.get_num_threads() if torch.get_num_threads() > 1 else 1)
