"""The time of a pass over edges one by one, as ``product_time.py`` has it for a product.

gathered    what an edge reads of its source, and of its target: the bytes come at the rate of the smallest table, and
            each row costs as much more as a row of the measured width in a table of this size
waiting     rows of the next stage arrive, and gradients of the last one leave, while a stage is computed
copies      gradients are added where their rows are, and copied to where their owners read them
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fullgnn.costs.edge_passes import FETCH, PUSH, EdgePass
from fullgnn.costs.hardware import EDGE_ROW_BYTES, Hardware
from fullgnn.costs.product_time import gather_s_per_byte, joining_s, overlapped_s, reads_in_place, travel_s
from fullgnn.costs.statistics import PlannedJob
from fullgnn.schemes.product_layout import RowDistribution


class EdgeTime(NamedTuple):
    """(b, r) seconds of an ``EdgePass`` on each rank."""

    compute_s: np.ndarray
    waiting_s: np.ndarray
    copies_s: np.ndarray


def edge_time(job: PlannedJob, one: EdgePass, hardware: Hardware, measured_s: np.ndarray | None = None) -> EdgeTime:
    """The time of ``one`` pass.

    Args:
        measured_s: (b, r) seconds of the local computation; None: they are predicted.
    """
    compute_s = _compute_s(job, one, hardware) if measured_s is None else measured_s
    copies_s, waiting_s = np.zeros_like(compute_s), np.zeros_like(compute_s)
    if job.grid.num_ranks == 1:
        return EdgeTime(compute_s, waiting_s, copies_s)
    in_place = reads_in_place(job, one.name, hardware)
    arriving_s, leaving_s = np.zeros_like(compute_s), np.zeros_like(compute_s)
    for move in one.moves:
        received = job.bytes_moved(one.name, move)
        if move.kind == FETCH:
            arriving_s += travel_s(job, one.name, received, hardware)
            copies_s += in_place * 2 * job.num_own_rows * move.wire_bytes / hardware.copy_bytes_per_s
        if move.kind == PUSH:
            gradients = received.pop("push")
            copies_s += 3 * gradients / hardware.copy_bytes_per_s  # each is read and added to a sum
            if in_place:
                leaving_s += hardware.link("shared", job.grid.num_ranks).latency_s
                copies_s += 2 * gradients.mean() / hardware.copy_bytes_per_s
            else:
                link = hardware.link("exchange", job.grid.num_ranks)
                leaving_s += gradients / link.bytes_per_s + link.latency_s * job.products[one.name].steps
        waiting_s += joining_s(job, received, hardware)
    waiting_s += overlapped_s(job, one.name, arriving_s, compute_s, leaving_s)
    return EdgeTime(compute_s, waiting_s, copies_s)


def sum_of(times: Iterable[EdgeTime], part: str, job: PlannedJob) -> np.ndarray:
    """(b, r) seconds of one ``part`` of all ``times``."""
    return sum((getattr(time, part) for time in times), start=np.zeros(job.num_own_rows.shape))


def _compute_s(job: PlannedJob, one: EdgePass, hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of the local computation of a pass."""
    product = job.products[one.name]
    if one.reads is None:
        return np.zeros(job.num_own_rows.shape)
    targets, steps = product.out_rows.block_sizes[:, None], product.steps
    tables = [(product.in_rows, one.source_bytes), (product.out_rows, one.target_bytes)]
    total = steps * hardware.op_s * sum(num_bytes > 0 for _, num_bytes in tables)
    if hardware.device == "cpu":  # of winners, a row is read for each target, and as many numbers are written
        total = total + steps * targets * 2 * one.winner_bytes / hardware.copy_bytes_per_s
    else:
        tables.append((product.out_rows, one.winner_bytes))
    for rows, num_bytes in tables:
        if num_bytes:
            total = total + product.rank_nnz * _row_s(job, rows, num_bytes, hardware)
    return total + steps * targets * 2 * max(one.source_bytes, one.target_bytes) / hardware.copy_bytes_per_s


def _row_s(job: PlannedJob, rows: RowDistribution, row_bytes: int, hardware: Hardware) -> float:
    """Seconds for a row of ``row_bytes`` that an edge names in a block of ``rows``."""
    if not hardware.edge_gather:
        return row_bytes * gather_s_per_byte(job, rows, row_bytes, hardware)
    near, far = (hardware.edge_rate(size) for size in (1, rows.block_sizes.max() * row_bytes))
    missing_s = EDGE_ROW_BYTES * (1 / far - 1 / near)  # caches find the rest of a row that is wider by themselves
    return row_bytes / near + (1 - job.graph.locality) * missing_s
