"""Measuring this machine: rates of one rank while all ranks do the same.

    copy     one tensor into another, both larger than the cache
    gemm     X W with a tall X, as ``kernels/dense/dense.py`` multiplies
    op       an operator on one number
    gather   the sparse product of ``kernel=auto`` by a random pattern, with tables of several sizes; and a forward pass
             of attention over the edges of such patterns, one by one
    draw     the pairs and negatives of an epoch of a task that finds links, on the host
    links    messages around a ring, broadcasts from every rank in turn, all-reduces, and rounds in shared memory, each
             in two sizes: a line through both is a latency and a rate

Every time is that of the slowest rank, the median over rounds; before a round all ranks meet.

In a round in shared memory each rank copies its rows to its slot, and waits until the rows of the others are there.
Reading these rows is part of the product, and of its gather rate. A rank receives what all others have written.

Measuring all this takes longer than many trainings of a small graph. Such a graph reads small tables only, and shorter
measurements of these give the same rates within the noise of a machine. Passes over edges one by one, and draws of
pairs, are measured only for runs that have them: compiling their kernels takes longer than measuring them.
"""

import functools
import itertools
import json
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fullgnn.config import Config, RuntimeConfig
from fullgnn.costs import hardware as profiles
from fullgnn.costs.hardware import EDGE_ROW_BYTES, SMALL, WHOLE, Hardware, Link, NeededPart
from fullgnn.costs.statistics import GraphStatistics
from fullgnn.distributed import Axis, SharedSlots, World, broadcast_object, can_share_memory, from_rank0, init_world
from fullgnn.distributed.command import run_command
from fullgnn.distributed.mesh import num_cores
from fullgnn.errors import UnsupportedError
from fullgnn.graph import Graph
from fullgnn.graph.links import LinkFacts, Lists
from fullgnn.kernels.dense.dense import matmul
from fullgnn.kernels.edges.attention import attend
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.softmax_state import SoftmaxState
from fullgnn.kernels.spmm import AutoKernel, LocalCSR
from fullgnn.kernels.support.process import keep_freed_memory, return_freed_memory
from fullgnn.nn.contract import block_request, trial_model
from fullgnn.prepare.source import loaded_dataset
from fullgnn.tasks import takes_links
from fullgnn.tasks.draws import TRAINING, draw, stream_key
from fullgnn.telemetry import machine
from fullgnn.telemetry.meter import Meter
from fullgnn.telemetry.timing import JobClock, copy_rate

log = logging.getLogger("fullgnn.costs.measure")  # also when this file is __main__

WIDTH, DEGREE = 64, 50  # float32 columns of a table, and mean edges of a row, in the sparse products
IN_CHANNELS, OUT_CHANNELS = 128, 64  # shape of W
NUM_OWNERS = 4096  # of pairs that are drawn, each with ``DEGREE`` of them
HEADS = 8  # of a row, in the passes of attention
BUSY_SPREAD = 1.25  # a larger median time over the shortest means a busy machine; a quiet one has 1.1 at most

MIB = 1 << 20


@dataclass(frozen=True)
class Sizes:
    """Sizes of what is measured; the defaults take 10 to 20 seconds."""

    tables: tuple[int, ...] = (MIB // 2, 4 * MIB, 16 * MIB, 64 * MIB, 192 * MIB)
    """Bytes of the tables that are gathered from."""
    num_edges: int = 4_000_000
    """Edges of each sparse product, which takes 10 to 50 ms on two cores. A pass of attention has a quarter of them."""
    num_rows: int = 100_000
    """Rows of X in X W."""
    messages: tuple[int, int] = (64 << 10, 8 * MIB)
    """Bytes of the tensors that the links move."""
    round_s: float = 0.03
    """Shortest time of a round, in which the work is repeated."""
    num_rounds: int = 9
    edges: bool = True
    """Whether passes over edges one by one are measured."""
    draws: bool = True
    """Whether the draws of a task that finds links are measured."""


SMALL_SIZES = Sizes(
    Sizes.tables[:3], num_edges=200_000, num_rows=10_000, messages=(64 << 10, MIB), round_s=0.005, num_rounds=7
)
"""For small graphs, see ``needed_part``: tables that hold their rows, and about a tenth of the work."""


MOST_NNZ = 1_000_000
"""Non-zeros of a small graph at most: an epoch takes some 10 ms."""

EDGES, DRAWS = "edges", "draws"
"""The words in the name of a part that includes the work on single edges, and on pairs that are drawn."""


def needed_part(cfg: Config, graph: Graph | GraphStatistics | None = None) -> str:
    """The part of this machine that the prediction of a run needs: ``WHOLE``, or a name that begins with ``SMALL``.

    Args:
        graph: None: that of ``cfg.dataset``, which this process loads and keeps.
    """
    graph = loaded_dataset(cfg.dataset) if graph is None else graph
    nnz = graph.nnz if isinstance(graph, GraphStatistics) else graph.num_edges
    row_bytes = max(1, cfg.model.get("hidden_channels", 1)) * getattr(torch, cfg.runtime.dtype).itemsize
    if nnz > MOST_NNZ or graph.num_nodes * row_bytes > SMALL_SIZES.tables[-1]:  # of the hidden features
        return WHOLE
    parts = {SMALL: True, EDGES: block_request(trial_model(cfg), cfg.optimizations).edges, DRAWS: takes_links(cfg.task)}
    return "-".join(part for part, is_needed in parts.items() if is_needed)


def sizes_of(part: str) -> Sizes:
    """What is measured for a ``part`` of the machine; see ``needed_part``."""
    return Sizes() if part == WHOLE else replace(SMALL_SIZES, edges=EDGES in part, draws=DRAWS in part)


def measured_hardware(
    world: World, runtime: RuntimeConfig, remeasure: bool = False, needed: NeededPart = lambda: WHOLE
) -> Hardware:
    """This machine's profile inside a job: the one that was kept, or one that is measured and kept now. Called on every
    rank. The memory of measuring does not count in the peak of the process.

    Args:
        remeasure: whether it is measured also if a profile is kept, which is replaced.
        needed: called on rank 0.

    Raises:
        FullGNNError: of ``needed``; the same on every rank.
    """
    wanted = runtime, world.size, needed, remeasure
    profile, part = broadcast_object(from_rank0(lambda: profiles.kept_or_needed(*wanted)))
    if profile is None:
        profile = measure(world, sizes_of(part))
        if world.rank == 0:
            profiles.keep_hardware(profile, runtime, world.size, part)
        return_freed_memory()
        machine.forget_peak_process_bytes()
    if world.rank == 0:
        profiles.warn_if_busy(profile, "scheme.remeasure=true")
    return profile


def measure(world: World, sizes: Sizes = Sizes()) -> Hardware:
    """The profile of this machine with the ranks and threads of ``world``; called on every rank, the same on all.

    A world of one rank needs no process group.

    Raises:
        UnsupportedError: on every rank, if the ranks are on several machines, or this machine hides its caches.
    """
    if world.size > world.local_size:
        raise UnsupportedError("hardware=auto measures one machine, and this job has more: give a profile of them")
    keep_freed_memory()  # as training does
    device, clock = world.device, JobClock(world.device, world.size, sizes.round_s, sizes.num_rounds)
    memory_bytes, cache_bytes = machine.memory_bytes(device) // world.ranks_per_device, _cache_bytes(world)
    x = torch.rand(sizes.num_rows, IN_CHANNELS, device=device)
    weight, number = torch.rand(IN_CHANNELS, OUT_CHANNELS, device=device), torch.ones(1, device=device)
    tables = [table for table in sizes.tables if table <= memory_bytes / 16]
    edge_tables, num_edges = tables if sizes.edges else [], sizes.num_edges
    profile = Hardware(  # measured in this order
        name="auto",
        device=device.type,
        ranks_per_node=world.size,
        memory_bytes=memory_bytes,
        cache_bytes=cache_bytes,
        copy_bytes_per_s=copy_rate(device, 4 * cache_bytes, clock.seconds),
        gemm_flops_per_s=2 * x.numel() * OUT_CHANNELS / clock.seconds(lambda: matmul(x, weight)),
        op_s=clock.seconds(lambda: torch.add(number, number)),
        gather={table: _gather_rate(clock, world, table, num_edges) for table in tables},
        edge_gather={table: _edge_gather_rate(clock, world, table, num_edges // 4) for table in edge_tables},
        source=_source(clock, world),
        links=_links(clock, world, sizes.messages) if world.size > 1 else {},
        network=None,
        **({"draw_s": _draw_s(clock)} if sizes.draws else {}),
    )
    return profile if world.size == 1 else broadcast_object(profile)  # the date may differ


def _source(clock: JobClock, world: World) -> str:
    """Where and when the profile is measured, and whether the machine is busy, of which the log warns."""
    # Ranks that take turns on the cores keep each other busy, and no other machine is quieter.
    takes_turns = world.device.type == "cpu" and world.local_size * torch.get_num_threads() > num_cores()
    busy = clock.spread > BUSY_SPREAD and not takes_turns
    if busy and world.rank == 0:
        log.warning("the machine is busy: one work took %.1f times as long as it can", clock.spread)
    here, ranks = machine.hardware(world.device), f"{world.size} ranks x {torch.get_num_threads()} threads"
    return f"measured on {here['gpu'] or here['cpu']}, {ranks}, {date.today()}" + (profiles.BUSY if busy else "")


def _gather_rate(clock: JobClock, world: World, table_bytes: int, num_edges: int) -> float:
    """Bytes of rows of a table that a sparse product reads in a second."""
    x = torch.rand(max(1, table_bytes // (4 * WIDTH)), WIDTH, device=world.device)
    adj = random_pattern(num_edges // DEGREE, len(x), num_edges, seed=world.rank, device=world.device)
    out = x.new_empty(adj.num_rows, WIDTH)
    kernel = AutoKernel()
    block = kernel.prepare(adj, x.dtype)
    return adj.nnz * WIDTH * x.itemsize / clock.seconds(lambda: kernel.spmm(block, x, out, accumulate=False))


def _edge_gather_rate(clock: JobClock, world: World, table_bytes: int, num_edges: int) -> float:
    """Bytes of rows of a table, and of their logits, that a forward pass of attention reads in a second."""
    x = torch.rand(max(1, table_bytes // EDGE_ROW_BYTES), WIDTH + HEADS, device=world.device)
    adj = random_pattern(max(1, num_edges // DEGREE), len(x), num_edges, seed=world.rank, device=world.device)
    of_targets = x.new_zeros(adj.num_rows, HEADS)
    state = SoftmaxState.empty(adj.num_rows, HEADS, WIDTH, x)
    stage = AttentionStage(adj, x[:, WIDTH:], x[:, :WIDTH], 0.2, None)
    return adj.nnz * EDGE_ROW_BYTES / clock.seconds(lambda: attend(stage, of_targets, state))


def _draw_s(clock: JobClock) -> float:
    """Seconds for a draw of a pair and a negative, in batches."""
    facts = LinkFacts(num_nodes=NUM_OWNERS, num_train=NUM_OWNERS * DEGREE)
    partners = np.sort(np.random.default_rng(0).integers(0, NUM_OWNERS, (NUM_OWNERS, DEGREE)), axis=1)
    pairs = Lists(np.arange(0, partners.size + 1, DEGREE), partners.ravel())
    epoch = functools.partial(draw, pairs, pairs.indptr[:-1], pairs, facts, stream_key(0, TRAINING), 1, 1, NUM_OWNERS)
    return clock.seconds(epoch) / partners.size


def random_pattern(num_rows: int, num_cols: int, nnz: int, seed: int, device: torch.device) -> LocalCSR:
    """``nnz`` ones at uniformly random places, rows and columns independent; a place may have several."""
    places = np.sort(np.random.default_rng(seed).integers(0, num_rows * num_cols, nnz))
    rows, columns = np.divmod(places, num_cols)
    indptr = np.searchsorted(rows, np.arange(num_rows + 1))
    first, second = (torch.from_numpy(array.astype(np.int32)).to(device) for array in (indptr, columns))
    return LocalCSR(first, second, None, num_rows, num_cols)


Movement = tuple[Callable[[], object], float]
"""A function that moves data once, and the bytes that a rank receives by one call."""


def _links(clock: JobClock, world: World, sizes: tuple[int, int]) -> dict[str, Link]:
    meter = Meter(world.device)
    axis, times = Axis(world.group, meter), defaultdict(list)
    for size in sizes:
        x = torch.zeros(size // (4 * WIDTH), WIDTH, device=world.device)
        moves = _moves(axis, x) | ({"shared": _shared_round(axis, x)} if can_share_memory(world) else {})
        for name, (move, num_bytes) in moves.items():
            with meter.untimed():
                times[name].append((num_bytes, clock.seconds(move)))
    return {name: line(*points) for name, points in times.items()}


def _moves(axis: Axis, x: Tensor) -> dict[str, Movement]:
    """The collectives of ``axis`` with ``x``, which is zero: an all-reduce adds it again and again."""
    arriving, turn = torch.empty_like(x), itertools.count()
    following, previous = (axis.index + 1) % axis.size, (axis.index - 1) % axis.size

    def ring() -> None:
        sent, received = axis.exchange([(x, following)], [(arriving, previous)])
        for pending in (*received, *sent):
            pending.wait()

    return {
        "exchange": (ring, x.nbytes),
        "broadcast": (lambda: axis.broadcast(x, next(turn) % axis.size).wait(), x.nbytes),
        "all_reduce": (lambda: axis.all_reduce(x), 2 * (axis.size - 1) / axis.size * x.nbytes),
    }


def _shared_round(axis: Axis, x: Tensor) -> Movement:
    slots, num_rows = SharedSlots(axis.size, axis.index, timeout_s=60), [len(x)] * axis.size
    others = [rank for rank in range(axis.size) if rank != axis.index]

    def move() -> None:
        slots.begin(num_rows, x.shape[1], x.dtype, others).copy_(x)
        slots.publish()
        for rank in others:
            slots.read(rank)
        slots.end()

    return move, len(others) * x.nbytes


def line(small: tuple[float, float], large: tuple[float, float]) -> Link:
    """The link with the times of two messages, each (bytes, seconds).

    If its latency or rate would be negative, the link has no latency, and the time of the larger message.
    """
    (small_bytes, small_s), (large_bytes, large_s) = small, large
    s_per_byte = (large_s - small_s) / (large_bytes - small_bytes)
    latency_s = small_s - small_bytes * s_per_byte
    if s_per_byte <= 0 or latency_s < 0:
        return Link(0.0, large_bytes / large_s)
    return Link(latency_s, 1 / s_per_byte)


def _cache_bytes(world: World) -> int:
    """One rank's part of a GPU's L2 or of the last-level caches of the CPU; at most one cache."""
    if world.device.type == "cuda":
        return (machine.cache_bytes(world.device) or 0) // world.ranks_per_device
    caches = machine.last_level_caches()
    if not caches:
        raise UnsupportedError("hardware=auto finds no caches of this CPU: give a profile of this machine as a .yaml")
    return max(caches.values()) * len(caches) // max(world.local_size, len(caches))


def run(arguments: list[str]) -> None:
    """Measure as one of the ranks that ``load_hardware`` starts.

    Args:
        arguments: the file that the profile is written to, the runtime configuration as JSON, and the part.
    """
    path, runtime, part = arguments
    with init_world(RuntimeConfig(**json.loads(runtime))) as world:
        profile = measure(world, sizes_of(part))
        if world.rank == 0:
            profiles.write_hardware(profile, Path(path))


if __name__ == "__main__":
    run_command(run, lambda: f"{run.__doc__}")
