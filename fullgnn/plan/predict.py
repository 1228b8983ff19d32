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
from fullgnn.kernels.spmm.blocked import held_bytes
from fullgnn.kernels.support.aligned import pads_rows
from fullgnn.plan.hardware import Hardware
from fullgnn.plan.statistics import PlannedJob
from fullgnn.plan.trace import Trace, trace_epoch
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

    Raises:
        ConfigError: the profile lacks a link that the job needs.
    """
    itemsize = job.dtype.itemsize
    heaviest = int(job.rank_nnz("adj").argmax())
    trace = trace_epoch(job, heaviest, padded=pads_rows(torch.device(hardware.device)))
    received = received_bytes(job, trace)

    own = job.num_own_rows()
    product_s = [_multiply_s(job, name, width * itemsize, hardware) for name, width in trace.products]
    spmm_s = sum(product_s, start=np.zeros(own.shape))
    comm_s = communication_s(job, trace, product_s, hardware)
    dense_s = np.zeros(own.shape)
    for name, width in trace.products:
        if job.folded or reads_in_place(job, name, hardware):  # rows are scaled, or copied to where all read
            dense_s += 2 * own * width * itemsize / hardware.copy_bytes_per_s
    share = own / max(1, own.max())
    for gemm in trace.gemms:
        arithmetic, memory = gemm.flops / hardware.gemm_flops_per_s, gemm.numbers * itemsize / hardware.copy_bytes_per_s
        dense_s += share * (arithmetic + memory) + hardware.op_s
    other_s = OPTIMIZER_PASSES * trace.num_parameters * itemsize / hardware.copy_bytes_per_s + 10 * hardware.op_s

    slowest = np.unravel_index(np.argmax(spmm_s + comm_s + dense_s), own.shape)
    times_s = {"spmm": spmm_s[slowest], "comm": comm_s[slowest], "dense": dense_s[slowest], "other": other_s}
    return Prediction(
        hardware=hardware.name,
        time_ms={phase: 1e3 * float(seconds) for phase, seconds in times_s.items()},
        comm_bytes_per_epoch={name: float(counts.mean()) for name, counts in received.items()},
        comm_bytes_per_rank={name: counts.ravel().tolist() for name, counts in received.items()},
        peak_tensor_bytes=round(trace.peak_tensor_bytes + _block_bytes(job, trace, hardware)),
        memory_bytes=hardware.memory_bytes,
    )


def received_bytes(job: PlannedJob, trace: Trace) -> dict[str, np.ndarray]:
    """(b, r) int64 bytes that each rank receives in one epoch, by collective, as the meter counts them."""
    total = {"all_reduce": np.full(job.num_own_rows().shape, _gradient_bytes(job, trace))}
    for name, width in trace.products:
        for collective, counts in _product_bytes(job, name, width).items():
            total[collective] = total.get(collective, 0) + counts
    return {collective: counts for collective, counts in total.items() if counts.any()}


def _product_bytes(job: PlannedJob, name: str, width: int) -> dict[str, np.ndarray]:
    wire_dtype = job.options.torch_wire_dtype or job.dtype
    halo = job.halo[name]
    return job.products[name].bytes_received(halo, width, job.dtype.itemsize, wire_dtype.itemsize)


def _gradient_bytes(job: PlannedJob, trace: Trace) -> int:
    return 2 * (job.grid.num_ranks - 1) * (trace.num_parameters + 1) * job.dtype.itemsize // job.grid.num_ranks


def communication_s(job: PlannedJob, trace: Trace, product_s: list[np.ndarray], hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of an epoch in which each rank waits for data.

    Args:
        product_s: (b, r) seconds of the local multiplication in each of ``trace.products``.
    """
    total = np.zeros(job.num_own_rows().shape)
    if job.grid.num_ranks == 1:
        return total
    for (name, width), multiply_s in zip(trace.products, product_s):
        total += _exposed_s(job, name, width, multiply_s, hardware)
    return total + hardware.link("all_reduce", job.grid.num_ranks).time_s(_gradient_bytes(job, trace))


def reads_in_place(job: PlannedJob, name: str, hardware: Hardware) -> bool:
    """Whether the ranks read each other's rows where they are in product ``name``, see ``Exchange``."""
    offered = job.local and hardware.device == "cpu" and job.grid.num_ranks > 1 and job.options.shared_memory
    return offered and not (job.products[name].ways == BROADCAST).any()


def kernel_of(cfg: Config, hardware: Hardware) -> str:
    """The kernel that multiplies: ``auto`` is counted as what it is most like."""
    if cfg.kernel["name"] != "auto":
        return cfg.kernel["name"]
    if hardware.device == "cpu":
        return build(cfg.kernel).name_for(torch.device("cpu"), getattr(torch, cfg.runtime.dtype))
    return "csr"


def _multiply_s(job: PlannedJob, name: str, row_bytes: int, hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of the local products of one distributed product."""
    product, locality = job.products[name], job.graph.locality
    table = np.diff(product.in_rows.bounds[:, [0, -1]]).max() * row_bytes
    per_byte = locality / hardware.gather_rate(1) + (1 - locality) / hardware.gather_rate(table)
    out = np.diff(product.out_rows.bounds[:, [0, -1]])  # (b, 1)
    steps = np.array([len(stages) for stages in product.stages])
    again = np.maximum(steps - 1, 0) * out * row_bytes * 2 / hardware.copy_bytes_per_s  # sums are read and written
    return job.rank_nnz(name) * row_bytes * per_byte + again + steps * hardware.op_s


def _exposed_s(job: PlannedJob, name: str, width: int, multiply_s: np.ndarray, hardware: Hardware) -> np.ndarray:
    """(b, r) seconds in which a rank waits for rows, or for partial sums, in product ``name`` of ``width`` columns."""
    product, size = job.products[name], job.grid.num_ranks
    received = _product_bytes(job, name, width)
    steps = np.maximum(np.array([len(stages) for stages in product.stages]), 1)
    travel_s = np.zeros_like(multiply_s)
    for collective in ("broadcast", "exchange"):
        if not received[collective].any():
            continue
        if reads_in_place(job, name, hardware):  # one round; the copy is a dense pass, reading is part of the product
            travel_s += hardware.link("shared", size).latency_s
        else:
            link = hardware.link(collective, size)
            travel_s += received[collective] / link.bytes_per_s + link.latency_s * steps
    first_is_own = bool((np.diag(product.ways) == OWN).all()) and product.stage_order == "diagonal"
    arriving = steps - 1 if first_is_own else steps
    each, product_s = travel_s / np.maximum(arriving, 1), multiply_s / steps
    exposed = (steps - 1) * np.maximum(each - product_s, 0) + (0 if first_is_own else each)
    for collective in ("gather", "reduce_scatter", "all_reduce"):
        if collective in received and received[collective].any():
            link = hardware.link(collective, size)
            exposed = exposed + link.latency_s * (received[collective] > 0) + received[collective] / link.bytes_per_s
    return exposed


def _block_bytes(job: PlannedJob, trace: Trace, hardware: Hardware) -> float:
    """What the blocks of the adjacency take of the memory of ``trace.rank``, in the form that their kernel wants.

    What tile32 and packed take of the rows is counted as csr would take: it depends on the tiles.
    """
    graph, itemsize = job.graph, job.dtype.itemsize
    kernel, value_bytes, total = kernel_of(job.cfg, hardware), 0 if graph.pattern else itemsize, 0.0
    part, replica = job.grid.place(trace.rank)
    for name in sorted(set(job.products) - ({"adj_t"} if graph.symmetric else set())):
        same = {"adj", "adj_t"} if name == "adj" and graph.symmetric else {name}
        row_bytes = {columns * itemsize for multiplied, columns in trace.products if multiplied in same}
        product, halo = job.products[name], job.halo[name]
        stages = product.stages[replica]
        for stage in stages:
            source = product.source(part, stage)
            cuts = product.out_rows.num_slices if stage == stages[-1] else 1  # the last stage goes slice by slice
            num_rows, nnz = product.out_rows.block_size(part) // cuts, int(job.nnz[name][part, source]) // cuts
            num_cols = product.in_rows.block_size(source)
            if halo is not None and product.sends_halo(part, source):
                num_cols = int(halo[part, source].sum())
            if job.nnz[name][part, source] == 0:
                continue
            if kernel == "blocked":
                total += cuts * held_bytes(num_rows, num_cols, nnz, value_bytes, row_bytes)
            elif kernel == "torch":
                total += cuts * (4 * (num_rows + 1) + nnz * (4 + itemsize))
            else:
                total += cuts * (12 * num_rows + nnz * (4 + value_bytes))
    return total
