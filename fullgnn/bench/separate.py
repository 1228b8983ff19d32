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

import math
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
        whole_s = self.sample_s + self.block_s
        return {"block_share": self.block_s / whole_s, **redundant} if whole_s else {}


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

        self._cpu, num_words = _separate_cpu, -(-(len(self.indptr) - 1) // 64)
        self._bits = [np.zeros(num_words, np.uint64) for _ in range(2)]  # of the targets, and of all nodes
        self._table: _Table | None = None  # that of toBlockFast, in a batch

    def sample(self, targets: np.ndarray, epoch: int) -> list[Pairs]:
        """Sample the hops of a batch.

        Args:
            targets: (num_targets,) int32 GLOBAL ids, all different.

        Returns:
            one ``Pairs`` for each fan-out, from the targets outwards.
        """
        hops, nodes = list[Pairs](), targets
        for hop, fanout in enumerate(self.fanouts):
            pairs = self.spent.add("sample_s", self._sample_neighbors, nodes, fanout, hop, epoch)
            hops.append(self.spent.add("block_s", self._to_block_fast if self.fast else self._to_block, nodes, *pairs))
            nodes = hops[-1].sources
        if self.fast:
            self._table = None
            for bits in self._bits:
                self._cpu.clear_bits(nodes, bits)
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
        of_targets, of_nodes = _Table(len(targets)), _Table(len(targets) + len(src))
        for table, ids in ((of_targets, targets), (of_nodes, targets), (of_nodes, src)):
            table.count = self._cpu.insert(ids, table.keys, table.values, table.nodes, table.count)
        local_src, local_dst = np.empty_like(src), np.empty_like(dst)
        ends = [(src, of_nodes, local_src), (dst, of_targets, local_dst)]

        def run(task: tuple[slice, np.ndarray, "_Table", np.ndarray]) -> None:
            edges, ids, table, local = task
            self._cpu.look_up(ids[edges], table.keys, table.values, local[edges])

        parallel_for(run, [(edges, *end) for end in ends for edges in _parts(len(src))])
        self.spent.searches += 2 * len(targets) + 3 * len(src)
        self.spent.inserted += of_targets.count + of_nodes.count
        return Pairs(of_nodes.nodes[: of_nodes.count], of_targets.count, local_src, local_dst)

    def _to_block_fast(self, targets: np.ndarray, src: np.ndarray, dst: np.ndarray) -> Pairs:
        if self._table is None:
            empty = _Table(self._most_nodes(len(targets)))
            self._table = self._insert(empty, targets, self._bits[0], np.empty_like(targets))
            self._bits[1][:] = self._bits[0]
        table, before = self._table, self._table.count
        local_src, local_dst = np.empty_like(src), np.empty_like(dst)
        ends = [
            lambda: self._insert(table, src, self._bits[1], local_src),  # only this one writes, and to free slots alone
            lambda: self._cpu.look_up(dst, table.keys, table.values, local_dst),
        ]
        parallel_for(lambda run: run(), ends)
        self.spent.searches += len(dst) + len(src)
        self.spent.inserted += table.count - before
        return Pairs(table.nodes[: table.count], len(targets), local_src, local_dst)

    def _insert(self, table: "_Table", ids: np.ndarray, bits: np.ndarray, local: np.ndarray) -> "_Table":
        table.count = self._cpu.insert_by_bitmap(ids, table.keys, table.values, bits, table.nodes, table.count, local)
        return table

    def _most_nodes(self, num_targets: int) -> int:
        """The nodes that a batch reaches, at most; with ``ALL``, those of the graph: a degree has no other bound."""
        drawn = math.inf if ALL in self.fanouts else num_targets * math.prod(1 + fanout for fanout in self.fanouts)
        return int(min(len(self.indptr) - 1, drawn))


class _Table:
    """A hash table for ``most`` keys, see ``_separate_cpu.py``; at most half full."""

    def __init__(self, most: int):
        size = 1 << max(6, int(2 * most - 1).bit_length())
        self.keys, self.values = np.full(size, -1, np.int32), np.empty(size, np.int32)
        self.nodes, self.count = np.empty(most, np.int32), 0  # its keys, in the order of their values


def _parts(length: int) -> list[slice]:
    return even_slices(length, CHUNKS_PER_THREAD * torch.get_num_threads() if torch.get_num_threads() > 1 else 1)
