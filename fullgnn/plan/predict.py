"""From a traced epoch and a machine to time, bytes and memory.

    SpMM      nnz x columns numbers are gathered, at the rate of the machine for a table of a block's size; the part of
              the reads that an order keeps in cache comes at the rate of the smallest table
    comm      latency + bytes / bandwidth of each collective; rows of the next stage travel while this one multiplies,
              so that of every stage but the first only what takes longer than its product is seen
    dense     each product's arithmetic and its matrices' way through memory, neither hiding the other, and the passes
              that have no product to ride in
    other     update of the parameters

The slowest rank counts. Bytes are exact; times are those of a machine that does nothing else.
"""

from dataclasses import dataclass

import numpy as np
import torch

from fullgnn.config import Config
from fullgnn.plan.hardware import Hardware
from fullgnn.plan.memory import block_bytes
from fullgnn.plan.statistics import GraphStatistics, Traffic
from fullgnn.plan.trace import Trace
from fullgnn.schemes.traffic import BROADCAST, OWN, Product

OPTIMIZER_PASSES = 7
"""Of Adam over its parameters: four are read (parameter, gradient, two moments), three written."""


@dataclass(frozen=True)
class Prediction:
    """Of one training epoch."""

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


def received_bytes(cfg: Config, traffic: Traffic, trace: Trace) -> dict[str, np.ndarray]:
    """(b, r) int64 bytes that each rank receives in one epoch, by collective, as the meter counts them."""
    total = {
        "all_reduce": np.full((traffic.grid.num_parts, traffic.grid.replication), _gradient_bytes(cfg, traffic, trace))
    }
    for name, width in trace.products:
        for collective, counts in _product_bytes(cfg, traffic, name, width).items():
            total[collective] = total.get(collective, 0) + counts
    return {collective: counts for collective, counts in total.items() if counts.any()}


def _product_bytes(cfg: Config, traffic: Traffic, name: str, width: int) -> dict[str, np.ndarray]:
    itemsize, wire_dtype = getattr(torch, cfg.runtime.dtype).itemsize, cfg.scheme.get("wire_dtype")
    wire = itemsize if wire_dtype is None else getattr(torch, wire_dtype).itemsize
    return traffic.products[name].bytes_received(traffic.needed[name], width, itemsize, wire)


def _gradient_bytes(cfg: Config, traffic: Traffic, trace: Trace) -> int:
    size = traffic.grid.num_ranks
    return 2 * (size - 1) * (trace.num_parameters + 1) * getattr(torch, cfg.runtime.dtype).itemsize // size


def predict(
    cfg: Config,
    graph: GraphStatistics,
    traffic: Traffic,
    trace: Trace,
    hardware: Hardware,
    kernel: str,
    local: bool,
) -> Prediction:
    """Of a run of ``trace`` on every rank of ``traffic.grid``.

    Args:
        kernel: that multiplies.
        local: all ranks are on one machine.
    """
    itemsize = getattr(torch, cfg.runtime.dtype).itemsize
    received = received_bytes(cfg, traffic, trace)
    size = traffic.grid.num_ranks

    own = traffic.num_own_rows()
    product_s = [_multiply_s(graph, traffic, name, width * itemsize, hardware) for name, width in trace.products]
    spmm_s = sum(product_s, start=np.zeros((traffic.grid.num_parts, traffic.grid.replication)))
    comm_s = communication_s(cfg, traffic, trace, product_s, hardware, local)
    dense_s = np.zeros_like(spmm_s)
    for name, width in trace.products:
        in_place = reads_in_place(cfg, traffic.products[name], hardware, size, local)
        if in_place or (graph.pattern and cfg.normalization != "none"):  # rows are scaled, or copied to where all read
            dense_s += 2 * own * width * itemsize / hardware.copy_bytes_per_s
    share = own / max(1, own.max())
    for gemm in trace.gemms:
        arithmetic, memory = gemm.flops / hardware.gemm_flops_per_s, gemm.numbers * itemsize / hardware.copy_bytes_per_s
        dense_s += share * (arithmetic + memory) + hardware.op_s
    other_s = OPTIMIZER_PASSES * trace.num_parameters * itemsize / hardware.copy_bytes_per_s + 10 * hardware.op_s

    slowest = np.unravel_index(np.argmax(spmm_s + comm_s + dense_s), spmm_s.shape)
    peak = trace.peak_tensor_bytes + block_bytes(traffic, graph, trace.products, kernel, itemsize, trace.rank)
    return Prediction(
        hardware=hardware.name,
        time_ms={
            "spmm": 1e3 * float(spmm_s[slowest]),
            "comm": 1e3 * float(comm_s[slowest]),
            "dense": 1e3 * float(dense_s[slowest]),
            "other": 1e3 * other_s,
        },
        comm_bytes_per_epoch={name: float(counts.mean()) for name, counts in received.items()},
        comm_bytes_per_rank={name: counts.ravel().tolist() for name, counts in received.items()},
        peak_tensor_bytes=round(peak),
        memory_bytes=hardware.memory_bytes,
    )


def communication_s(
    cfg: Config, traffic: Traffic, trace: Trace, product_s: list[np.ndarray], hardware: Hardware, local: bool
) -> np.ndarray:
    """(b, r) seconds of an epoch in which each rank waits for data.

    Args:
        product_s: (b, r) seconds of the local multiplication in each of ``trace.products``.
    """
    size = traffic.grid.num_ranks
    total = np.zeros((traffic.grid.num_parts, traffic.grid.replication))
    if size == 1:
        return total
    for (name, width), multiply_s in zip(trace.products, product_s):
        product = traffic.products[name]
        in_place = reads_in_place(cfg, product, hardware, size, local)
        total += _exposed_s(product, _product_bytes(cfg, traffic, name, width), multiply_s, hardware, size, in_place)
    return total + hardware.link("all_reduce", size).time_s(_gradient_bytes(cfg, traffic, trace))


def reads_in_place(cfg: Config, product: Product, hardware: Hardware, size: int, local: bool) -> bool:
    """Whether the ranks read each other's rows where they are, see ``Exchange``."""
    offered = local and hardware.device == "cpu" and size > 1 and cfg.scheme.get("shared_memory", False)
    return offered and not (product.ways == BROADCAST).any()


def _multiply_s(graph: GraphStatistics, traffic: Traffic, name: str, row_bytes: int, hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of the local products of one distributed one."""
    product = traffic.products[name]
    table = np.diff(product.in_rows.bounds[:, [0, -1]]).max() * row_bytes
    near = hardware.gather_rate(1)
    per_byte = graph.locality / near + (1 - graph.locality) / hardware.gather_rate(table)
    out = np.diff(product.out_rows.bounds[:, [0, -1]])  # (b, 1)
    steps = np.array([len(stages) for stages in product.stages])
    again = np.maximum(steps - 1, 0) * out * row_bytes * 2 / hardware.copy_bytes_per_s  # sums are read and written
    return traffic.rank_nnz(name) * row_bytes * per_byte + again + steps * hardware.op_s


def _exposed_s(
    product: Product,
    received: dict[str, np.ndarray],
    multiply_s: np.ndarray,
    hardware: Hardware,
    size: int,
    in_place: bool,
) -> np.ndarray:
    """(b, r) seconds in which a rank waits for rows, or for partial sums, in one product."""
    steps = np.maximum(np.array([len(stages) for stages in product.stages]), 1)
    travel_s = np.zeros_like(multiply_s)
    for collective in ("broadcast", "exchange"):
        if not received[collective].any():
            continue
        if in_place:  # one round; the copy is among the dense passes, and reading is part of the product
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
