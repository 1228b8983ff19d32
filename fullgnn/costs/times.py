"""How long the passes of an epoch take, and what a task that finds links does beside the model.

gathering   a product reads a row for each non-zero; a pass over edges one by one reads what its layer says of the
            source and of the target of an edge: the bytes come at the rate of the smallest table, and each row costs
            as much more as a row of the measured width in a table of this size
waiting     rows of the next stage arrive, and gradients of the last one leave, while a stage is computed
copies      gradients are added where their rows are, and copied to where their owners read them
links       draws, partners' rows on their way, and scores
"""

from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

import numpy as np

from fullgnn.costs.hardware import EDGE_ROW_BYTES, Hardware
from fullgnn.costs.passes import Pass
from fullgnn.costs.statistics import PlannedJob
from fullgnn.schemes.product_layout import BROADCAST, OWN, RowDistribution

ROWS_OF_SCORE = 2 + 4
"""Rows that the score of a pair reads or writes: its two in the forward pass; in the backward pass these again, and
their gradients."""

DENSE_PASSES = 6
"""Passes over the rows of a rank in a step of a task that finds links: zeros for two gradients, and their sum."""


class PassTime(NamedTuple):
    """(b, r) seconds of a ``Pass``, or of several, on each rank."""

    compute_s: np.ndarray
    waiting_s: np.ndarray
    copies_s: np.ndarray  # of a product: none; its rows are scaled or copied by ``dense_s``


def time_of_passes(
    job: PlannedJob, passes: Iterable[Pass], hardware: Hardware, measured_s: Iterable[np.ndarray | None] = repeat(None)
) -> PassTime:
    """The time of all ``passes``.

    Args:
        measured_s: (b, r) seconds of the local computation of each; None: they are predicted.
    """
    nothing = np.zeros(job.num_own_rows.shape)
    times = [_pass_time(job, row_pass, hardware, seconds) for row_pass, seconds in zip(passes, measured_s)]
    return PassTime(*(sum(parts, start=nothing) for parts in zip(PassTime(nothing, nothing, nothing), *times)))


def _pass_time(job: PlannedJob, row_pass: Pass, hardware: Hardware, measured_s: np.ndarray | None) -> PassTime:
    compute_s = _compute_s(job, row_pass, hardware) if measured_s is None else measured_s
    copies_s, waiting_s, arriving_s, leaving_s = (np.zeros_like(compute_s) for _ in range(4))
    if job.grid.num_ranks == 1:
        return PassTime(compute_s, waiting_s, copies_s)
    in_place, product = reads_in_place(job, row_pass.name, hardware), job.products[row_pass.name]
    for move in row_pass.moves:
        received = product.bytes_received(move)
        if move.kind == "fetch":
            arriving_s += _travel_s(job, row_pass.name, received, hardware)
            if not row_pass.is_product:
                copies_s += in_place * 2 * job.num_own_rows * move.wire_bytes / hardware.copy_bytes_per_s
        if move.kind == "push":
            gradients = received.pop("push")
            copies_s += 3 * gradients / hardware.copy_bytes_per_s  # each is read and added to a sum
            if in_place:
                leaving_s += hardware.link("shared", job.grid.num_ranks).latency_s
                copies_s += 2 * gradients.mean() / hardware.copy_bytes_per_s
            else:
                leaving_s += hardware.link("exchange", job.grid.num_ranks).time_s(gradients, product.steps)
        waiting_s += _joining_s(job, received, hardware)
    waiting_s += _overlapped_s(job, row_pass.name, arriving_s, compute_s, leaving_s)
    return PassTime(compute_s, waiting_s, copies_s)


def reads_in_place(job: PlannedJob, name: str, hardware: Hardware) -> bool:
    """Whether the ranks read each other's rows where they are in product ``name``, see ``Exchange``."""
    return job.shares_memory(hardware.device) and not (job.products[name].transports == BROADCAST).any()


def _compute_s(job: PlannedJob, row_pass: Pass, hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of the local computation of a pass."""
    product = job.products[row_pass.name]
    steps, targets, copy_bytes_per_s = product.steps, product.out_rows.block_sizes[:, None], hardware.copy_bytes_per_s
    if row_pass.is_product:
        # The sums of a step are read and written again in the next one.
        again = np.maximum(steps - 1, 0) * targets * row_pass.source_bytes * 2 / copy_bytes_per_s
        s_per_byte = _gather_s_per_byte(job, product.in_rows, row_pass.source_bytes, hardware)
        return product.rank_nnz * row_pass.source_bytes * s_per_byte + again + steps * hardware.op_s
    tables = [(product.in_rows, row_pass.source_bytes), (product.out_rows, row_pass.target_bytes)]
    total = steps * hardware.op_s * sum(num_bytes > 0 for _, num_bytes in tables)
    if hardware.device == "cpu":  # of winners, a row is read for each target, and as many numbers are written
        total = total + steps * targets * 2 * row_pass.winner_bytes / copy_bytes_per_s
    else:
        tables.append((product.out_rows, row_pass.winner_bytes))
    for rows, num_bytes in tables:
        if num_bytes:
            total = total + product.rank_nnz * _row_s(job, rows, num_bytes, hardware)
    return total + steps * targets * 2 * max(row_pass.source_bytes, row_pass.target_bytes) / copy_bytes_per_s


def _row_s(job: PlannedJob, rows: RowDistribution, row_bytes: int, hardware: Hardware) -> float:
    """Seconds for a row of ``row_bytes`` that an edge names in a block of ``rows``."""
    if not hardware.edge_gather:
        return row_bytes * _gather_s_per_byte(job, rows, row_bytes, hardware)
    near, far = (hardware.edge_rate(size) for size in (1, rows.block_sizes.max() * row_bytes))
    missing_s = EDGE_ROW_BYTES * (1 / far - 1 / near)  # caches find the rest of a row that is wider by themselves
    return row_bytes / near + (1 - job.graph.locality) * missing_s


def _gather_s_per_byte(job: PlannedJob, rows: RowDistribution, row_bytes: int, hardware: Hardware) -> float:
    """Seconds for a byte of rows of a block of ``rows`` that are gathered."""
    return hardware.gather_s_per_byte(rows.block_sizes.max() * row_bytes, job.graph.locality)


def _travel_s(job: PlannedJob, name: str, received: dict[str, np.ndarray], hardware: Hardware) -> np.ndarray:
    """(b, r) seconds in which the rows of a product travel.

    Args:
        received: bytes by collective; only those of rows of X count.
    """
    product, size = job.products[name], job.grid.num_ranks
    total, in_place = np.zeros(job.num_own_rows.shape), reads_in_place(job, name, hardware)
    for collective in ("broadcast", "exchange"):
        if not received[collective].any():
            continue
        if in_place:  # one round; the copy is a dense pass, reading is part of the product
            total += hardware.link("shared", size).latency_s
        else:
            rounds = np.maximum(product.steps, 1) if product.pieces is None else product.pieces.num_exchanges
            total += hardware.link(collective, size).time_s(received[collective], rounds)
        if product.pieces is not None and in_place:  # the rows are copied side by side
            total += 2 * received[collective] / hardware.copy_bytes_per_s
    return total


def _overlapped_s(
    job: PlannedJob, name: str, arriving_s: np.ndarray, compute_s: np.ndarray, leaving_s: np.ndarray
) -> np.ndarray:
    """(b, r) seconds in which a rank waits for transfers that travel while it computes.

    Args:
        arriving_s: of the rows. Those of a step travel while the step before is computed.
        compute_s: of all steps.
        leaving_s: of the gradients at these rows, which travel while the step after is computed.
    """
    product = job.products[name]
    steps = np.maximum(product.steps, 1)
    if product.pieces is not None:
        own_s = compute_s * product.own_nnz / np.maximum(product.rank_nnz, 1)
        return np.maximum(arriving_s - own_s, 0) + leaving_s
    first_is_own = bool((np.diag(product.transports) == OWN).all()) and product.stage_order == "diagonal"
    num_moved = np.maximum(steps - 1 if first_is_own else steps, 1)
    arriving, leaving = arriving_s / num_moved, leaving_s / num_moved
    hidden = (steps - 1) * np.maximum(arriving + leaving - compute_s / steps, 0)
    return hidden + (0 if first_is_own else arriving) + leaving


def _joining_s(job: PlannedJob, received: dict[str, np.ndarray], hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of the collectives among ``received`` that nothing hides: those along the replicas."""
    total = np.zeros(job.num_own_rows.shape)
    for collective in ("gather", "reduce_scatter", "all_reduce"):
        num_bytes = received.get(collective)
        if num_bytes is not None and num_bytes.any():
            total += hardware.link(collective, job.grid.num_ranks).time_s(num_bytes, num_bytes > 0)
    return total


def link_s(job: PlannedJob, hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of an epoch in which each rank draws and scores pairs; 0 without pairs."""
    links, row_bytes = job.links, job.output_row_bytes
    if links is None:
        return np.zeros(job.num_own_rows.shape)
    draws = links.of_ranks(links.draws.ravel())
    drawn_s = draws * (links.width - 1) * hardware.draw_s
    scores_s = draws * links.width * ROWS_OF_SCORE * row_bytes * _gather_s_per_byte(job, job.rows, row_bytes, hardware)
    passes_s = links.num_steps * DENSE_PASSES * job.num_own_rows * row_bytes / hardware.copy_bytes_per_s
    return drawn_s + scores_s + passes_s


def link_waiting_s(job: PlannedJob, hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of an epoch in which each rank waits for the rows of partners, and for gradients of its own."""
    links, row_bytes, size = job.links, job.output_row_bytes, job.grid.num_ranks
    if links is None or size == 1:
        return np.zeros(job.num_own_rows.shape)
    received = links.bytes_received(row_bytes)
    moved = received["exchange"] + received["push"]
    messages, num_rounds = hardware.link("exchange", size), 2 * links.num_steps
    finding_s = messages.time_s(received["ids"], 5)
    if job.shares_memory(hardware.device):  # two rounds a step; a row is written to a slot, and read from there
        copied = 2 * moved + num_rounds * job.num_own_rows * row_bytes
        rounds_s = num_rounds * hardware.link("shared", size).latency_s
        return finding_s + rounds_s + copied / hardware.copy_bytes_per_s
    return finding_s + num_rounds * messages.latency_s + moved / messages.bytes_per_s
