"""Predict the time, bytes and memory of a traced epoch on a machine.

    SpMM      nnz x columns numbers are gathered, at the rate of the machine for a table of a block's size; the part of
              the reads that an order keeps in cache comes at the rate of the smallest table
    comm      latency + bytes / bandwidth of each collective; rows of the next stage travel while this one multiplies,
              so that of every stage but the first only what takes longer than its product is seen
    dense     each product's arithmetic and its matrices' way through memory, neither hiding the other, and the passes
              that are not fused into a product
    other     update of the parameters

The slowest rank counts. Bytes are exact; times are those of a machine that does nothing else.
"""

from dataclasses import dataclass

import numpy as np
import torch

from fullgnn.config import Config, build
from fullgnn.costs.hardware import Hardware
from fullgnn.costs.statistics import PlannedJob
from fullgnn.costs.trace import Trace, trace_epoch
from fullgnn.engine.state import EXTRA
from fullgnn.kernels.spmm.blocked import held_bytes
from fullgnn.kernels.support.aligned import pads_rows
from fullgnn.schemes.traffic import BROADCAST, OWN

OPTIMIZER_PASSES = 7
"""Passes of Adam over its parameters: four are read (parameter, gradient, two moments), three written."""


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


def predict(job: PlannedJob, hardware: Hardware) -> Prediction:
    """Time, bytes and memory of ``job`` on ``hardware``; the memory is that of the rank that multiplies most.

    Where the job leaves it to the planner (``scheme.fetch=auto``), rows arrive whole if this is faster and fits.

    Raises:
        ConfigError: the profile lacks a link that the job needs.
    """
    heaviest, padded = int(job.products["adj"].rank_nnz.argmax()), pads_rows(torch.device(hardware.device))
    trace, grid = trace_epoch(job, heaviest, padded), job.grid
    staged = _predict(job, trace, hardware)
    if grid.fetch != "auto" or grid.num_ranks == 1 or grid.stage_order == "broadcast":
        return staged
    at_once = job.fetching("whole")
    if _predict(at_once, trace, hardware).epoch_time_ms >= staged.epoch_time_ms:  # the memory needs another trace
        return staged
    whole = _predict(at_once, trace_epoch(at_once, heaviest, padded), hardware)
    return whole if whole.fits else staged


def _predict(job: PlannedJob, trace: Trace, hardware: Hardware) -> Prediction:
    """``predict`` for rows that arrive as the job says, in stages if it says ``auto``."""
    received = received_bytes(job, trace)

    product_s = [_multiply_s(job, name, width, hardware) for name, width in trace.products]
    by_rank = {
        "spmm": sum(product_s, start=np.zeros(job.num_own_rows.shape)),
        "comm": communication_s(job, trace, product_s, hardware),
        "dense": _dense_s(job, trace, hardware),
    }
    slowest = np.unravel_index(np.argmax(by_rank["spmm"] + by_rank["comm"] + by_rank["dense"]), job.num_own_rows.shape)
    update_bytes = OPTIMIZER_PASSES * trace.num_parameters * job.dtype.itemsize
    other_s = update_bytes / hardware.copy_bytes_per_s + 10 * hardware.op_s
    times_s = {phase: seconds[slowest] for phase, seconds in by_rank.items()} | {"other": other_s}
    return Prediction(
        hardware=hardware.name,
        time_ms={phase: 1e3 * float(seconds) for phase, seconds in times_s.items()},
        comm_bytes_per_epoch={name: float(counts.mean()) for name, counts in received.items()},
        comm_bytes_per_rank={name: counts.ravel().tolist() for name, counts in received.items()},
        fetch="whole" if job.grid.fetches_whole else "stages",
        peak_tensor_bytes=round(trace.peak_tensor_bytes + _block_bytes(job, trace, kernel_of(job.cfg, hardware))),
        memory_bytes=hardware.memory_bytes,
    )


def received_bytes(job: PlannedJob, trace: Trace) -> dict[str, np.ndarray]:
    """(b, r) int64 bytes that each rank receives in one epoch, by collective, as the meter counts them."""
    total = {"all_reduce": np.full(job.num_own_rows.shape, _gradient_bytes(job, trace))}
    for name, width in trace.products:
        for collective, counts in job.bytes_received(name, width).items():
            total[collective] = total.get(collective, 0) + counts
    return {collective: counts for collective, counts in total.items() if counts.any()}


def communication_s(job: PlannedJob, trace: Trace, product_s: list[np.ndarray], hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of an epoch in which each rank waits for data.

    Args:
        product_s: (b, r) seconds of the local multiplication in each of ``trace.products``.
    """
    total = np.zeros(job.num_own_rows.shape)
    if job.grid.num_ranks == 1:
        return total
    for (name, width), multiply_s in zip(trace.products, product_s):
        total += _exposed_s(job, name, width, multiply_s, hardware)
    return total + hardware.link("all_reduce", job.grid.num_ranks).time_s(_gradient_bytes(job, trace))


def kernel_of(cfg: Config, hardware: Hardware) -> str:
    """The kernel that multiplies: ``auto`` is counted as what it is most like."""
    if cfg.kernel["name"] != "auto":
        return cfg.kernel["name"]
    if hardware.device == "cpu":
        return build(cfg.kernel).name_for(torch.device("cpu"), getattr(torch, cfg.runtime.dtype))
    return "csr"


def _gradient_bytes(job: PlannedJob, trace: Trace) -> int:
    """Bytes that each rank receives in the all-reduce of the gradients and the loss."""
    return 2 * (job.grid.num_ranks - 1) * (trace.num_parameters + EXTRA) * job.dtype.itemsize // job.grid.num_ranks


def _reads_in_place(job: PlannedJob, name: str, hardware: Hardware) -> bool:
    """Whether the ranks read each other's rows where they are in product ``name``, see ``Exchange``."""
    offered = job.local and hardware.device == "cpu" and job.grid.num_ranks > 1 and job.options.shared_memory
    return offered and not (job.products[name].transports == BROADCAST).any()


def _multiply_s(job: PlannedJob, name: str, width: int, hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of the local products of product ``name``."""
    product, locality, row_bytes = job.products[name], job.graph.locality, width * job.dtype.itemsize
    table_bytes = product.in_rows.block_sizes.max() * row_bytes
    s_per_byte = locality / hardware.gather_rate(1) + (1 - locality) / hardware.gather_rate(table_bytes)
    steps, out_rows = product.steps, product.out_rows.block_sizes[:, None]
    again = np.maximum(steps - 1, 0) * out_rows * row_bytes * 2 / hardware.copy_bytes_per_s  # sums: read and written
    return product.rank_nnz * row_bytes * s_per_byte + again + steps * hardware.op_s


def _dense_s(job: PlannedJob, trace: Trace, hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of the dense products, and of the passes over H that are not fused into a product."""
    own_rows, itemsize = job.num_own_rows, job.dtype.itemsize
    total = np.zeros(own_rows.shape)
    for name, width in trace.products:
        if job.folded or _reads_in_place(job, name, hardware):  # rows are scaled, or copied to where all read
            total += 2 * own_rows * width * itemsize / hardware.copy_bytes_per_s
    share = own_rows / max(1, own_rows.max())
    for gemm in trace.gemms:
        arithmetic_s, memory_s = (
            gemm.flops / hardware.gemm_flops_per_s,
            gemm.numbers * itemsize / hardware.copy_bytes_per_s,
        )
        total += share * (arithmetic_s + memory_s) + hardware.op_s
    return total


def _exposed_s(job: PlannedJob, name: str, width: int, multiply_s: np.ndarray, hardware: Hardware) -> np.ndarray:
    """(b, r) seconds in which a rank waits for rows, or for partial sums, in product ``name`` of ``width`` columns."""
    product, size = job.products[name], job.grid.num_ranks
    received, steps = job.bytes_received(name, width), np.maximum(product.steps, 1)
    travel_s = np.zeros_like(multiply_s)
    for collective in ("broadcast", "exchange"):
        if not received[collective].any():
            continue
        if _reads_in_place(job, name, hardware):  # one round; the copy is a dense pass, reading is part of the product
            travel_s += hardware.link("shared", size).latency_s
        else:
            link = hardware.link(collective, size)
            rounds = 1 if product.whole else steps
            travel_s += received[collective] / link.bytes_per_s + link.latency_s * rounds
        if product.whole and _reads_in_place(job, name, hardware):  # the rows are copied side by side
            travel_s += 2 * received[collective] / hardware.copy_bytes_per_s
    first_is_own = bool((np.diag(product.transports) == OWN).all()) and product.stage_order == "diagonal"
    arriving = steps - 1 if first_is_own else steps
    each, product_s = travel_s / np.maximum(arriving, 1), multiply_s / steps
    exposed = (steps - 1) * np.maximum(each - product_s, 0) + (0 if first_is_own else each)
    if product.whole:
        own_s = multiply_s * product.own_nnz / np.maximum(product.rank_nnz, 1)
        exposed = np.maximum(travel_s - own_s, 0)
    for collective in ("gather", "reduce_scatter", "all_reduce"):
        if collective in received and received[collective].any():
            link = hardware.link(collective, size)
            exposed = exposed + link.latency_s * (received[collective] > 0) + received[collective] / link.bytes_per_s
    return exposed


def _block_bytes(job: PlannedJob, trace: Trace, kernel: str) -> int:
    """Bytes of the blocks of the adjacency on ``trace.rank``, in the form that their ``kernel`` wants.

    What tile32 and packed take of the rows is counted as csr would take: it depends on the tiles.
    """
    itemsize, symmetric = job.dtype.itemsize, job.graph.symmetric
    value_bytes, total = 0 if job.graph.pattern else itemsize, 0
    part, replica = job.grid.place(trace.rank)
    for name, product in job.products.items():
        if name == "adj_t" and symmetric:
            continue  # the blocks of ``adj`` serve both
        names = ("adj", "adj_t") if name == "adj" and symmetric else (name,)
        row_bytes = {columns * itemsize for multiplied, columns in trace.products if multiplied in names}
        for stage in product.stages[replica]:
            source = product.source(part, stage)
            last = stage == product.stages[replica][-1]
            slices = product.out_rows.num_slices if last else 1  # the last stage goes slice by slice
            num_rows, nnz = product.out_rows.block_size(part) // slices, int(product.nnz[part, source]) // slices
            num_cols = product.in_rows.block_size(source)
            if product.halo is not None and product.sends_halo(part, source):
                num_cols = int(product.halo[part, source].sum())
            if product.nnz[part, source] == 0:
                continue
            if kernel == "blocked":
                total += slices * held_bytes(num_rows, num_cols, nnz, value_bytes, row_bytes)
            elif kernel == "torch":
                total += slices * (4 * (num_rows + 1) + nnz * (4 + itemsize))
            else:
                total += slices * (12 * num_rows + nnz * (4 + value_bytes))
    return total
