"""Predict the time, bytes and memory of a traced epoch on a machine.

    SpMM      nnz x columns numbers are gathered, at the rate of the machine for a table of a block's size; the part of
              the reads that an order keeps in cache comes at the rate of the smallest table. A pass over edges one by
              one is like a product (``times.py``)
    comm      latency + bytes / bandwidth of each collective; rows of the next stage travel while this one multiplies,
              so that of every stage but the first only what takes longer than its product is seen
    dense     each product's arithmetic and its matrices' way through memory, neither hiding the other, and the passes
              that are not fused into a product
    other     update of the parameters; draws and scores of a task that finds links

The slowest rank counts. Bytes are exact; times are those of a machine that does nothing else.
"""

import bisect
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import torch

from fullgnn.config import Config, build
from fullgnn.costs.hardware import Hardware
from fullgnn.costs.layout import PlannedBlocks
from fullgnn.costs.statistics import PlannedJob
from fullgnn.costs.times import EpochTimes, summed_bytes
from fullgnn.costs.trace import Trace, trace_epoch
from fullgnn.kernels.spmm.blocked import held_bytes
from fullgnn.kernels.support.aligned import pads_rows


@dataclass(frozen=True)
class Prediction:
    """What one training epoch costs."""

    hardware: str
    time_ms: dict[str, float]  # spmm, comm, dense, other; comm is what is not hidden
    comm_bytes_per_epoch: dict[str, float]  # by collective, mean over the ranks
    comm_bytes_per_rank: dict[str, list[int]]
    fetch: str  # stages or whole: how the rows of other ranks arrive
    peak_tensor_bytes: int  # of the rank that was traced
    memory_bytes: int  # that a rank has

    @property
    def epoch_time_ms(self) -> float:
        return sum(self.time_ms.values())

    @property
    def fits(self) -> bool:
        return self.peak_tensor_bytes <= self.memory_bytes


class _Need(Protocol):
    @property
    def fits(self) -> bool: ...


Need = TypeVar("Need", bound=_Need)


def predict(job: PlannedJob, hardware: Hardware) -> Prediction:
    """Time, bytes and memory of ``job`` on ``hardware``; the memory is that of the rank that multiplies most,
    or draws most, in its training steps.

    Where the job leaves it to the planner (``scheme.fetch=auto``), rows travel packed on a GPU, in the fewest pieces
    that fit; on a CPU, they arrive whole if this is faster and fits, else in stages.

    Raises:
        ConfigError: the profile lacks a link that the job needs.
    """
    rank, padded, grid = heaviest_rank(job), pads_rows(torch.device(hardware.device)), job.grid
    if grid.packs or (grid.fetch == "auto" and hardware.device == "cuda" and grid.num_ranks > 1 and grid.can_pack):
        return fewest_pieces(job, lambda packed: _predict(packed, trace_epoch(packed, rank, padded), hardware))
    trace = trace_epoch(job, rank, padded)
    staged = _predict(job, trace, hardware)
    if grid.fetch != "auto" or grid.num_ranks == 1 or grid.stage_order == "broadcast":
        return staged
    at_once = job.fetching("whole")
    if _predict(at_once, trace, hardware).epoch_time_ms >= staged.epoch_time_ms:  # the memory needs another trace
        return staged
    whole = _predict(at_once, trace_epoch(at_once, rank, padded), hardware)
    return whole if whole.fits else staged


def heaviest_rank(job: PlannedJob) -> int:
    """The rank that multiplies most, or draws most, in its training steps."""
    load = job.products["adj"].rank_nnz if job.links is None else job.links.of_ranks(job.links.draws)
    return int(load.argmax())


def fewest_pieces(job: PlannedJob, cost: Callable[[PlannedJob], Need]) -> Need:
    """The ``cost`` of ``job`` with rows that travel packed, in the fewest pieces with which it fits. If it does not fit
    in any, that of the most pieces, which needs least memory.

    Each piece has all rows, half as many, and so on, to a quarter of the rows that a rank holds; or those that the user
    has chosen.
    """
    piece_rows, of_pieces = list[int](), functools.cache(lambda rows: cost(job.fetching("packed", rows)))
    if of_pieces(job.grid.piece_rows).fits or job.grid.piece_rows is not None:
        return of_pieces(job.grid.piece_rows)
    num_rows = max(int(product.rows_by_place(product.halo).sum(axis=1).max()) for product in job.products.values())
    while num_rows > max(1, int(job.num_own_rows.max()) // 4):
        num_rows = -(-num_rows // 2)
        piece_rows.append(num_rows)
    if not piece_rows or not of_pieces(piece_rows[-1]).fits:
        return of_pieces(piece_rows[-1] if piece_rows else None)
    return of_pieces(piece_rows[bisect.bisect_left(piece_rows, True, key=lambda rows: of_pieces(rows).fits)])


def _predict(job: PlannedJob, trace: Trace, hardware: Hardware) -> Prediction:
    """``predict`` for rows that arrive as the job says, in stages if it says ``auto``."""
    times = EpochTimes(job, hardware)
    passes = times.of_passes(trace.passes)
    by_rank = {
        "spmm": job.num_steps * passes.compute_s,
        "comm": times.communication_s(trace, passes.waiting_s),
        "dense": job.num_steps * (times.dense_s(trace) + passes.copies_s),
        "other": times.other_s(trace),
    }
    fetch = job.grid.fetch if job.grid.fetch != "auto" and job.grid.num_ranks > 1 else "stages"
    peak_bytes = trace.peak_tensor_bytes + block_bytes(job, trace, hardware)
    return prediction_of(by_rank, received_bytes(job, trace), fetch, peak_bytes, hardware)


def prediction_of(
    by_rank: dict[str, np.ndarray],
    received: dict[str, np.ndarray],
    fetch: str,
    peak_bytes: int,
    hardware: Hardware,
) -> Prediction:
    """What the slowest rank takes.

    Args:
        by_rank: seconds of each rank, by phase.
        received: bytes of each rank, by collective.
    """
    slowest = int(np.argmax(sum(by_rank.values())))
    return Prediction(
        hardware=hardware.name,
        time_ms={phase: 1e3 * float(seconds.flat[slowest]) for phase, seconds in by_rank.items()},
        comm_bytes_per_epoch={name: float(counts.mean()) for name, counts in received.items()},
        comm_bytes_per_rank={name: counts.ravel().tolist() for name, counts in received.items()},
        fetch=fetch,
        peak_tensor_bytes=peak_bytes,
        memory_bytes=hardware.memory_bytes,
    )


def received_bytes(job: PlannedJob, trace: Trace) -> dict[str, np.ndarray]:
    """(b, r) int64 bytes that each rank receives in one epoch, by collective, as the meter counts them."""
    total = {"all_reduce": np.full(job.num_own_rows.shape, summed_bytes(job, trace))}
    passes = sorted(trace.passes, key=lambda row_pass: not row_pass.is_product)  # these name their collectives first
    of_steps = [job.products[row_pass.name].bytes_received(move) for row_pass in passes for move in row_pass.moves]
    of_links = {} if job.links is None else job.links.bytes_received(job.output_row_bytes)
    for times, received in [*((job.num_steps, of_step) for of_step in of_steps), (1, of_links)]:
        for collective, counts in received.items():
            total[collective] = total.get(collective, 0) + times * counts
    return {collective: counts for collective, counts in total.items() if counts.any()}


def kernel_of(cfg: Config, hardware: Hardware) -> str:
    """The kernel that multiplies: ``auto`` is counted as what it is most like."""
    if cfg.kernel["name"] != "auto":
        return cfg.kernel["name"]
    if hardware.device == "cpu":
        return build(cfg.kernel).name_for(torch.device("cpu"), getattr(torch, cfg.runtime.dtype))
    return "csr"


def block_bytes(job: PlannedJob, trace: Trace, hardware: Hardware) -> int:
    """Bytes of the blocks of the adjacency on ``trace.rank``: those of products in the form that their kernel wants,
    and the edges that are read one by one.

    What tile32 and packed take of the rows is counted as csr would take: it depends on the tiles. What edges take of
    the rows is part of the trace.
    """
    itemsize, symmetric, kernel = job.dtype.itemsize, job.graph.symmetric, kernel_of(job.cfg, hardware)
    value_bytes, total = 0 if job.graph.pattern else itemsize, 0.0
    matrices = trace.request.propagations
    num_matrices = len({matrix.self_loops for matrix in matrices} if job.graph.pattern else {*matrices})
    for name, layout in job.products.items():
        if name == "adj_t" and symmetric:
            continue  # the blocks of ``adj`` serve both
        names = ("adj", "adj_t") if name == "adj" and symmetric else (name,)
        row_bytes = {product.source_bytes for product in trace.products if product.name in names}
        in_both_orders = name in trace.transposed or hardware.device == "cuda"
        weight_bytes = itemsize if job.graph.weighted else 0
        edge_bytes = 4 + weight_bytes + (8 + weight_bytes if in_both_orders else 0)
        for block in layout.blocks(*job.grid.place(trace.rank)):
            if name in ("adj", "loss"):
                total += len(trace.request.edges) * edge_bytes * block.nnz * block.num_blocks
            total += num_matrices * block.num_blocks * held_by_kernel(kernel, block, value_bytes, row_bytes, itemsize)
    return round(total)


def held_by_kernel(kernel: str, block: PlannedBlocks, value_bytes: int, row_bytes: set[int], itemsize: int) -> float:
    """Bytes of one block in the form that ``kernel`` wants.

    Args:
        value_bytes: of each entry; 0: all are 1.
        row_bytes: bytes of a row of each X that it multiplies.
        itemsize: bytes of a number of X.
    """
    if kernel == "blocked":
        return held_bytes(block.num_rows, block.num_cols, block.nnz, value_bytes, row_bytes)
    if kernel == "torch":
        return 4 * (block.num_rows + 1) + block.nnz * (4 + itemsize)
    return 12 * block.num_rows + block.nnz * (4 + value_bytes)
