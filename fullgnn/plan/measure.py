"""Measuring this machine: rates of one rank while all ranks do the same.

    copy     one tensor into another, both larger than the cache
    gemm     X W with a tall X, as ``kernels/dense/dense.py`` multiplies
    op       an operator on one number
    gather   the sparse product of ``kernel=auto`` by a random pattern, with tables of several sizes
    links    messages around a ring, broadcasts from every rank in turn, all-reduces, and rounds in shared memory, each
             in two sizes: a line through both is a latency and a rate

Every time is the median over rounds of the slowest rank's; before a round all ranks meet.

A round in shared memory is what its ranks spend on moving rows: each copies its own to its slot, and waits until the
others' are there. Reading them there is part of the product, and of its gather rate. A rank receives what all the
others have written.
"""

import itertools
import json
import logging
import math
import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from fullgnn.config import RuntimeConfig
from fullgnn.distributed import (
    Axis,
    SharedSlots,
    World,
    broadcast_object,
    can_share_memory,
    init_world,
    report_failure,
    wait_for_others,
)
from fullgnn.errors import FullGNNError, UnsupportedError
from fullgnn.kernels.dense.dense import matmul
from fullgnn.kernels.spmm import AutoKernel, LocalCSR
from fullgnn.kernels.support.process import keep_freed_memory
from fullgnn.plan.hardware import Hardware, Link, cache_path, cached_hardware, keep_hardware, write_hardware
from fullgnn.telemetry.logger import setup_logging
from fullgnn.telemetry.machine import hardware as machine
from fullgnn.telemetry.meter import Meter

log = logging.getLogger("fullgnn.plan.measure")  # also when this file is __main__

ROUNDS = 9
WIDTH, DEGREE = 64, 50  # of the products: float32 columns of the table, edges of a row in the mean
IN_CHANNELS, OUT_CHANNELS = 128, 64  # of W
COPY_CACHES = 4  # a copied tensor is so many times as large as the cache
BUSY_SPREAD = 1.25  # of a median time over the shortest; 1.1 at most where nothing else runs
MEMORY_SHARE = 1 / 16  # of a rank's memory: larger tables are left out

MIB = 1 << 20


@dataclass(frozen=True)
class Sizes:
    """Of what is measured; the defaults take about ten seconds."""

    tables: tuple[int, ...] = (MIB // 2, 4 * MIB, 16 * MIB, 64 * MIB, 192 * MIB)
    """Bytes of the tables that are gathered from."""
    num_edges: int = 4_000_000
    """Of each product: 10 to 50 ms on two cores."""
    num_rows: int = 100_000
    """Of X in X W."""
    messages: tuple[int, int] = (64 << 10, 8 * MIB)
    """Bytes of the tensors that the links move."""
    round_s: float = 0.03
    """Least time of a round, in which the work is repeated."""


def measured_hardware(world: World, runtime: RuntimeConfig) -> Hardware:
    """This machine's profile inside a job, called on every rank: what was measured before, or what is measured now,
    and then kept."""
    found = broadcast_object(cached_hardware(runtime, world.size) if world.rank == 0 else None)
    if found is None:
        log.info("hardware=auto: measuring this machine, for %s", cache_path(runtime, world.size))
        found = measure(world)
        if world.rank == 0:
            keep_hardware(found, runtime, world.size)
    return found


def measure(world: World, sizes: Sizes = Sizes()) -> Hardware:  # noqa: B008
    """The profile of this machine with the ranks and threads of ``world``; called on every rank, the same on all.

    A world of one rank needs no process group.

    Raises:
        UnsupportedError: on every rank, if they are on several machines; or this one hides its caches.
    """
    if world.size > world.local_size:
        raise UnsupportedError("hardware=auto measures one machine, and this job has more: give a profile of them")
    keep_freed_memory()  # as training does
    clock = _Clock(world, sizes.round_s)
    memory_bytes, cache_bytes = _memory_bytes(world), _cache_bytes(world)
    tables = [table for table in sizes.tables if table <= MEMORY_SHARE * memory_bytes]
    copy_bytes_per_s = _copy_rate(clock, COPY_CACHES * cache_bytes)
    gemm_flops_per_s = _gemm_rate(clock, sizes.num_rows)
    op_s = _op_seconds(clock)
    gather = {table: _gather_rate(clock, table, sizes.num_edges) for table in tables}
    busy = clock.spread > BUSY_SPREAD
    if busy and world.rank == 0:
        log.warning(
            "the machine is busy (one work took %.1f times as long as it can): delete the profile to measure it again",
            clock.spread,
        )
    here = machine(world.device)
    processor, ranks = here["gpu"] or here["cpu"], f"{world.size} ranks x {torch.get_num_threads()} threads"
    found = Hardware(
        name="auto",
        source=f"measured on {processor}, {ranks}, {date.today()}" + (", while it was busy" if busy else ""),
        device=world.device.type,
        ranks_per_node=world.size,
        memory_bytes=memory_bytes,
        cache_bytes=cache_bytes,
        copy_bytes_per_s=copy_bytes_per_s,
        gemm_flops_per_s=gemm_flops_per_s,
        op_s=op_s,
        gather=gather,
        links=_links(clock, sizes.messages) if world.size > 1 else {},
        network=None,
    )
    return found if world.size == 1 else broadcast_object(found)  # the date may differ


class _Clock:
    """Times work that all ranks of ``world`` do at once. ``spread`` is the largest ratio so far of a median time to the
    shortest of the same work."""

    def __init__(self, world: World, round_s: float):
        self.world, self.device, self._round_s = world, world.device, round_s
        self.spread = 1.0

    def seconds(self, work: Callable[[], object]) -> float:
        """Of one call of ``work``, which repeats it until a round is long enough; the same on every rank."""
        self._round(work, 1)  # compiles, chooses, touches its memory
        repeats = max(1, math.ceil(self._round_s / self._round(work, 1)))
        times = [self._round(work, repeats) for _ in range(ROUNDS)]
        median = statistics.median(times)
        self.spread = max(self.spread, median / min(times))
        return median

    def _round(self, work: Callable[[], object], repeats: int) -> float:
        self._slowest(0.0)  # all are here
        self._synchronize()
        begin = time.perf_counter()
        for _ in range(repeats):
            work()
        self._synchronize()
        return self._slowest(time.perf_counter() - begin) / repeats

    def _slowest(self, seconds: float) -> float:
        if self.world.size == 1:
            return seconds
        largest = torch.tensor(seconds, dtype=torch.float64)  # on the host: over NCCL the others would spin
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return float(largest)

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _copy_rate(clock: _Clock, num_bytes: int) -> float:
    source, copy = (torch.ones(num_bytes // 4, device=clock.device) for _ in range(2))
    return 2 * source.nbytes / clock.seconds(lambda: copy.copy_(source))


def _gemm_rate(clock: _Clock, num_rows: int) -> float:
    x = torch.rand(num_rows, IN_CHANNELS, device=clock.device)
    weight = torch.rand(IN_CHANNELS, OUT_CHANNELS, device=clock.device)
    return 2 * x.numel() * OUT_CHANNELS / clock.seconds(lambda: matmul(x, weight))


def _op_seconds(clock: _Clock) -> float:
    x = torch.ones(1, device=clock.device)
    return clock.seconds(lambda: torch.add(x, x))


def _gather_rate(clock: _Clock, table_bytes: int, num_edges: int) -> float:
    x = torch.rand(max(1, table_bytes // (4 * WIDTH)), WIDTH, device=clock.device)
    adj = random_pattern(num_edges // DEGREE, len(x), num_edges, seed=clock.world.rank)
    adj = LocalCSR(adj.indptr.to(x.device), adj.indices.to(x.device), None, adj.num_rows, adj.num_cols)
    out = x.new_empty(adj.num_rows, WIDTH)
    kernel = AutoKernel()
    block = kernel.prepare(adj, x.dtype)
    return adj.nnz * WIDTH * x.itemsize / clock.seconds(lambda: kernel.spmm(block, x, out, accumulate=False))


def random_pattern(num_rows: int, num_cols: int, nnz: int, seed: int) -> LocalCSR:
    """``nnz`` ones at uniformly random places, rows and columns independent; a place may have several."""
    places = np.random.default_rng(seed).integers(0, num_rows * num_cols, nnz)
    places.sort()
    rows, columns = np.divmod(places, num_cols)
    indptr = np.zeros(num_rows + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=num_rows), out=indptr[1:])
    return LocalCSR(torch.from_numpy(indptr), torch.from_numpy(columns.astype(np.int32)), None, num_rows, num_cols)


_Moves = tuple[Callable[[], object], float]
"""Moving data once, and the bytes that a rank receives by it."""


def _links(clock: _Clock, sizes: tuple[int, int]) -> dict[str, Link]:
    world = clock.world
    meter = Meter(world.device)
    axis = Axis(world.group, meter)
    kinds: dict[str, Callable[[Axis, Tensor], _Moves]] = {"exchange": _ring, "broadcast": _turns, "all_reduce": _sum}
    if can_share_memory(world):
        kinds["shared"] = _shared_rounds
    links = {}
    for name, make in kinds.items():
        points = []
        for size in sizes:
            move, num_bytes = make(axis, torch.ones(size // (4 * WIDTH), WIDTH, device=world.device))
            with meter.untimed():
                points.append((num_bytes, clock.seconds(move)))
        links[name] = line(*points)
    return links


def _ring(axis: Axis, x: Tensor) -> _Moves:
    arriving = torch.empty_like(x)
    following, previous = (axis.index + 1) % axis.size, (axis.index - 1) % axis.size

    def move() -> None:
        sent, received = axis.exchange([(x, following)], [(arriving, previous)])
        for pending in (*received, *sent):
            pending.wait()

    return move, x.nbytes


def _turns(axis: Axis, x: Tensor) -> _Moves:
    turn = itertools.count()
    return lambda: axis.broadcast(x, next(turn) % axis.size).wait(), x.nbytes


def _sum(axis: Axis, x: Tensor) -> _Moves:
    x.zero_()  # however often it is added
    return lambda: axis.all_reduce(x), 2 * (axis.size - 1) / axis.size * x.nbytes


def _shared_rounds(axis: Axis, x: Tensor) -> _Moves:
    slots = SharedSlots([len(x)] * axis.size, x.shape[1], x.dtype, timeout_s=60, rank=axis.index)
    others = [rank for rank in range(axis.size) if rank != axis.index]

    def move() -> None:
        slots.begin(others).copy_(x)
        slots.publish()
        for rank in others:
            slots.read(rank)
        slots.end()

    return move, len(others) * x.nbytes


def line(small: tuple[float, float], large: tuple[float, float]) -> Link:
    """Through two points (bytes, seconds); where its latency would be negative, from no time to the larger one."""
    (small_bytes, small_s), (large_bytes, large_s) = small, large
    s_per_byte = (large_s - small_s) / (large_bytes - small_bytes)
    latency_s = small_s - small_bytes * s_per_byte
    if s_per_byte <= 0 or latency_s < 0:
        return Link(0.0, large_bytes / large_s)
    return Link(latency_s, 1 / s_per_byte)


def _memory_bytes(world: World) -> int:
    """Of the GPU or the machine, or what a container may use of it, divided by the ranks that share it."""
    if world.device.type == "cuda":
        return torch.cuda.get_device_properties(world.device).total_memory // _ranks_per_gpu(world)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        total = min(total, int(text))
    return total // world.local_size


def _cache_bytes(world: World, cpus: Path = Path("/sys/devices/system/cpu")) -> int:
    """Of a GPU's L2, or of the last-level cache of a core, one rank's share; one rank alone sees one cache at most."""
    if world.device.type == "cuda":
        return torch.cuda.get_device_properties(world.device).L2_cache_size // _ranks_per_gpu(world)
    caches = {}  # by the cores that share one
    for cpu in os.sched_getaffinity(0):
        levels = [
            (int((index / "level").read_text()), index) for index in (cpus / f"cpu{cpu}" / "cache").glob("index*")
        ]
        if levels:
            _, last = max(levels)
            caches[(last / "shared_cpu_list").read_text()] = (last / "size").read_text().strip()
    if not caches:
        raise UnsupportedError(f"hardware=auto finds no caches in {cpus}: give a profile of this machine as a .yaml")
    size = max(_num_bytes(text) for text in caches.values())
    return size * len(caches) // max(world.local_size, len(caches))


def _num_bytes(text: str) -> int:
    """``32768K`` as the kernel writes it."""
    number, unit = re.fullmatch(r"(\d+)([KMG]?)", text).groups()  # type: ignore[union-attr]
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]


def _ranks_per_gpu(world: World) -> int:
    return -(-world.local_size // torch.cuda.device_count())


def main() -> None:
    """``python -m fullgnn.plan.measure FILE RUNTIME``, as ``load_hardware`` starts each of its ranks: measure with the
    runtime configuration that is given as JSON, and write the profile."""
    setup_logging(int(os.environ["RANK"]))
    path, runtime = sys.argv[1:]
    try:
        with init_world(RuntimeConfig(**json.loads(runtime))) as world:
            found = measure(world)
            if world.rank == 0:
                write_hardware(found, Path(path))
    except FullGNNError as error:
        log.error("%s", " ".join(str(error).split()))
        report_failure(error)
        wait_for_others()
        sys.exit(1)
    except Exception as error:
        report_failure(error)
        raise


if __name__ == "__main__":
    main()
