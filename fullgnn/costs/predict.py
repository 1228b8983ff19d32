"""Predict the time, bytes and memory of a traced epoch on a machine.

    SpMM      a product reads a row for each non-zero; a pass over edges one by one reads what its layer says of the
              source and of the target of an edge. The bytes come at the rate of the machine for a table of a block's
              size; the part of the reads that an order keeps in cache comes at the rate of the smallest table. In a
              pass over edges, each row costs as much more as a row of the measured width in a table of this size
    comm      latency + bytes / bandwidth of each collective; rows of the next stage arrive, and gradients of the last
              one leave, while a stage is computed, so that only what takes longer than that is seen
    dense     each product's arithmetic and its matrices' way through memory, neither hiding the other; the passes over
              H that are not fused into a product; gradients that are added where their rows are, and copied
    other     update of the parameters; draws and scores of a task that finds links

The slowest rank counts. Bytes are exact; times are those of a machine that does nothing else.
"""

import bisect
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import torch

from fullgnn.config import Config, build
from fullgnn.costs.hardware import EDGE_ROW_BYTES, Hardware, Link, interpolated
from fullgnn.costs.layout import PlannedBlocks
from fullgnn.costs.statistics import PlannedJob
from fullgnn.costs.trace import Pass, Trace, trace_epoch
from fullgnn.engine.state import EXTRA
from fullgnn.kernels.spmm.blocked import held_bytes
from fullgnn.kernels.support.aligned import pads_rows
from fullgnn.schemes.product_layout import BROADCAST, OWN, RowDistribution

ROWS_OF_SCORE = 2 + 4
"""Rows that the score of a pair reads or writes: its two in the forward pass; in the backward pass these again, and
their gradients."""

DENSE_PASSES = 6
"""Passes over the rows of a rank in a step of a task that finds links: zeros for two gradients, and their sum."""

ID_BYTES = 8
"""Bytes of the id of a winner, see ``RowReads``."""

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
    """Time, bytes and memory of ``job`` on ``hardware``; the memory is that of the rank that multiplies most,
    or draws most, in its training steps.

    Where the job leaves it to the planner (``scheme.fetch=auto``), rows travel packed on a GPU, in the fewest pieces
    that fit; on a CPU, they arrive whole if this is faster and fits, else in stages.

    Raises:
        ConfigError: the profile lacks a link that the job needs.
    """
    grid, device = job.grid, torch.device(hardware.device)
    traced = functools.cache(lambda job: _predict(job, heaviest_trace(job, device), hardware))
    if grid.packs or (grid.fetch == "auto" and device.type == "cuda" and grid.num_ranks > 1 and grid.can_pack):
        return traced(fewest_pieces(job, lambda packed: traced(packed).fits))
    trace = heaviest_trace(job, device)
    staged = _predict(job, trace, hardware)
    if grid.fetch != "auto" or grid.num_ranks == 1 or grid.stage_order == "broadcast":
        return staged
    at_once = job.fetching("whole")
    if _predict(at_once, trace, hardware).epoch_time_ms >= staged.epoch_time_ms:  # the memory needs another trace
        return staged
    return whole if (whole := traced(at_once)).fits else staged


def heaviest_trace(job: PlannedJob, device: torch.device) -> Trace:
    """The epoch, on such a ``device``, of the rank that multiplies most, or draws most, in its training steps."""
    load = job.products["adj"].rank_nnz if job.links is None else job.links.of_ranks(job.links.draws)
    return trace_epoch(job, int(load.argmax()), pads_rows(device))


def fewest_pieces(job: PlannedJob, fits: Callable[[PlannedJob], bool]) -> PlannedJob:
    """``job`` with rows that travel packed, in the fewest pieces with which it ``fits``. If it does not fit in any, in
    the most pieces, which need least memory.

    Each piece has all rows, half as many, and so on, to a quarter of the rows that a rank holds; or those that the user
    has chosen.
    """
    piece_rows, packed = list[int](), functools.cache(lambda rows: job.fetching("packed", rows))
    if job.grid.piece_rows is not None or fits(packed(None)):
        return packed(job.grid.piece_rows)
    num_rows = max(int(product.rows_by_place(product.halo).sum(axis=1).max()) for product in job.products.values())
    while num_rows > max(1, int(job.num_own_rows.max()) // 4):
        num_rows = -(-num_rows // 2)
        piece_rows.append(num_rows)
    if not piece_rows or not fits(packed(piece_rows[-1])):
        return packed(piece_rows[-1] if piece_rows else None)
    return packed(piece_rows[bisect.bisect_left(piece_rows, True, key=lambda rows: fits(packed(rows)))])


def _predict(job: PlannedJob, trace: Trace, hardware: Hardware) -> Prediction:
    """``predict`` for rows that arrive as the job says, in stages if it says ``auto``."""
    by_rank = EpochTimes(job, trace, hardware).by_phase()
    fetch = job.grid.fetch if job.grid.fetch != "auto" and job.grid.num_ranks > 1 else "stages"
    peak_bytes = trace.peak_tensor_bytes + block_bytes(job, trace, hardware.device)
    return prediction_of(by_rank, received_bytes(job, trace), fetch, peak_bytes, hardware)


def prediction_of(
    by_rank: dict[str, np.ndarray], received: dict[str, np.ndarray], fetch: str, peak_bytes: int, hardware: Hardware
) -> Prediction:
    """What the slowest rank takes.

    Args:
        by_rank: seconds of each rank, by phase.
        received: bytes of each rank, by collective.
    """
    slowest = int(np.argmax(sum(by_rank.values())))
    time_ms = {phase: 1e3 * float(seconds.flat[slowest]) for phase, seconds in by_rank.items()}
    means = {name: float(counts.mean()) for name, counts in received.items()}
    by_collective = {name: counts.ravel().tolist() for name, counts in received.items()}
    return Prediction(hardware.name, time_ms, means, by_collective, fetch, peak_bytes, hardware.memory_bytes)


def received_bytes(job: PlannedJob, trace: Trace) -> dict[str, np.ndarray]:
    """(b, r) int64 bytes that each rank receives in one epoch, by collective, as the meter counts them."""
    total = {"all_reduce": np.full(job.num_own_rows.shape, gradient_sums(job, trace)[0])}
    passes = sorted(trace.passes, key=lambda row_pass: not row_pass.is_product)  # these name their collectives first
    of_steps = [job.products[row_pass.name].bytes_received(move) for row_pass in passes for move in row_pass.moves]
    of_links = {} if job.links is None else job.links.bytes_received(job.output_row_bytes)
    for times, received in [*((job.num_steps, of_step) for of_step in of_steps), (1, of_links)]:
        for collective, counts in received.items():
            total[collective] = total.get(collective, 0) + times * counts
    return {collective: counts for collective, counts in total.items() if counts.any()}


def kernel_of(cfg: Config, device: str) -> str:
    """The kernel that multiplies on such a ``device``: ``auto`` is counted as what it is most like."""
    name = cfg.kernel["name"]
    if name == "auto" and device == "cpu":
        return build(cfg.kernel).name_for(torch.device("cpu"), getattr(torch, cfg.runtime.dtype))
    return "csr" if name == "auto" else name


def block_bytes(job: PlannedJob, trace: Trace, device: str) -> int:
    """Bytes of the blocks of the adjacency on ``trace.rank``: those of products in the form that their kernel wants on
    such a ``device``, and the edges that are read one by one.

    What tile32 and packed take of the rows is counted as csr would take: it depends on the tiles. What edges take of
    the rows is part of the trace.
    """
    itemsize, symmetric, kernel = job.dtype.itemsize, job.graph.symmetric, kernel_of(job.cfg, device)
    value_bytes, total = 0 if job.graph.pattern else itemsize, 0.0
    matrices = trace.request.propagations
    num_matrices = len({matrix.self_loops for matrix in matrices} if job.graph.pattern else {*matrices})
    for name, layout in job.products.items():
        if name == "adj_t" and symmetric:
            continue  # the blocks of ``adj`` serve both
        names = ("adj", "adj_t") if name == "adj" and symmetric else (name,)
        row_bytes = {product.reads.sources * itemsize for product in trace.products if product.name in names}
        in_both_orders = name in trace.transposed or device == "cuda"
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


def gradient_sums(job: PlannedJob, trace: Trace) -> tuple[int, int]:
    """Bytes that each rank receives in the all-reduces of the gradients and the loss, in an epoch, and the number of
    these all-reduces: one a step.

    Where a task that finds links has no gradients to sum, the losses of all steps are one sum in float64.
    """
    has_losses_alone, size = job.links is not None and not trace.num_parameters, job.grid.num_ranks
    num_sums, itemsize = (1, 8) if has_losses_alone else (job.num_steps, job.dtype.itemsize)
    return num_sums * (2 * (size - 1) * (trace.num_parameters + EXTRA) * itemsize // size), num_sums


class EpochTimes:
    """The times of a ``trace`` of ``job`` on ``hardware``, each (b, r) seconds, of every rank."""

    def __init__(self, job: PlannedJob, trace: Trace, hardware: Hardware):
        self.job, self.trace, self.hardware, self.own_rows = job, trace, hardware, job.num_own_rows
        self.nothing, self.size, self.itemsize = np.zeros(self.own_rows.shape), job.grid.num_ranks, job.dtype.itemsize
        self.shares_memory = job.shares_memory(hardware.device)

    def by_phase(self, measured_s: Iterable[np.ndarray | None] = repeat(None)) -> dict[str, np.ndarray]:
        """Seconds of an epoch: spmm, comm (waiting for data), dense and other.

        Args:
            measured_s: (b, r) seconds of the local computation of each pass of the trace; None: they are predicted.
        """
        of_passes = (self._of_pass(row_pass, seconds) for row_pass, seconds in zip(self.trace.passes, measured_s))
        compute_s, waiting_s, copies_s = sum(of_passes, start=np.stack([self.nothing] * 3))
        return {
            "spmm": self.job.num_steps * compute_s,
            "comm": self._communication_s(waiting_s),
            "dense": self.job.num_steps * (self.dense_s() + copies_s),
            "other": self.other_s(),
        }

    def dense_s(self) -> np.ndarray:
        """Seconds of the dense products of a step, and of the passes over H that are not fused into a product."""
        total = self.nothing.copy()
        for product in self.trace.products:
            if self.job.folded or self._reads_in_place(product.name):  # rows are scaled, or copied to where all read
                total += self._copy_s(2 * self.own_rows * product.reads.sources * self.itemsize)
        share = self.own_rows / max(1, self.own_rows.max())
        total += self._copy_s(share * self.trace.pass_bytes)
        for m, k, n in self.trace.gemms:  # each number is read or written once
            arithmetic_s = 2 * m * k * n / self.hardware.gemm_flops_per_s
            moved_s = self._copy_s((m * k + k * n + m * n) * self.itemsize)
            total += share * (arithmetic_s + moved_s) + self.hardware.op_s
        return total

    def other_s(self) -> np.ndarray:
        """Seconds in which parameters are updated, and in which a task that finds links draws and scores pairs."""
        job, links, row_bytes = self.job, self.job.links, self.job.output_row_bytes
        num_updated = self.trace.num_parameters + self.trace.num_row_parameters * self.own_rows
        update_s = self._copy_s(OPTIMIZER_PASSES * num_updated * self.itemsize) + 10 * self.hardware.op_s
        if links is None:
            return job.num_steps * update_s
        draws = links.of_ranks(links.draws.ravel())
        drawn_s = draws * links.task.num_negatives * self.hardware.draw_s
        num_rows = draws * (1 + links.task.num_negatives) * ROWS_OF_SCORE
        scores_s = num_rows * row_bytes * self._gather_s_per_byte(job.rows, row_bytes)
        passes_s = self._copy_s(job.num_steps * DENSE_PASSES * self.own_rows * row_bytes)
        return job.num_steps * update_s + (drawn_s + scores_s + passes_s)

    def _communication_s(self, waiting_s: np.ndarray) -> np.ndarray:
        """Seconds in which each rank waits for data, of which ``waiting_s`` in the passes of a step."""
        if self.size == 1:
            return waiting_s
        summing_s = self._link("all_reduce").time_s(*gradient_sums(self.job, self.trace))
        return self.job.num_steps * waiting_s + summing_s + self._partners_s()

    def _link(self, collective: str) -> Link:
        return self.hardware.link(collective, self.size)

    def _copy_s(self, num_bytes: Any) -> Any:
        return num_bytes / self.hardware.copy_bytes_per_s

    def _reads_in_place(self, name: str) -> bool:
        """Whether the ranks read each other's rows where they are in product ``name``, see ``Exchange``."""
        return self.shares_memory and not (self.job.products[name].transports == BROADCAST).any()

    def _of_pass(self, row_pass: Pass, measured_s: np.ndarray | None) -> np.ndarray:
        """(3, b, r) seconds in which a pass computes, waits, and copies; the rows of a product are copied by
        ``dense_s``."""
        compute_s = self._compute_s(row_pass) if measured_s is None else measured_s
        copies_s, waiting_s, arriving_s, leaving_s = (np.zeros_like(compute_s) for _ in range(4))
        in_place, product = self._reads_in_place(row_pass.name), self.job.products[row_pass.name]
        for move in row_pass.moves if self.size > 1 else ():
            received = product.bytes_received(move)
            if move.kind == "fetch":
                arriving_s += self._travel_s(row_pass.name, received)
                if not row_pass.is_product:
                    copies_s += self._copy_s(in_place * 2 * self.own_rows * move.wire_bytes)
            if move.kind == "push":
                gradients = received.pop("push")
                copies_s += self._copy_s(3 * gradients)  # each is read and added to a sum
                if in_place:
                    leaving_s += self._link("shared").latency_s
                    copies_s += self._copy_s(2 * gradients.mean())
                else:
                    leaving_s += self._link("exchange").time_s(gradients, product.steps)
            for collective, num_bytes in received.items():  # nothing hides those along the replicas
                if collective in ("gather", "reduce_scatter", "all_reduce") and num_bytes.any():
                    waiting_s += self._link(collective).time_s(num_bytes, num_bytes > 0)
        waiting_s += self._stalled_s(row_pass.name, arriving_s, compute_s, leaving_s)
        return np.stack([compute_s, waiting_s, copies_s])

    def _compute_s(self, row_pass: Pass) -> np.ndarray:
        """Seconds of the local computation of a pass."""
        product, op_s, reads = self.job.products[row_pass.name], self.hardware.op_s, row_pass.reads
        steps, targets = product.steps, product.out_rows.block_sizes[:, None]
        source_bytes, target_bytes = reads.sources * self.itemsize, reads.targets * self.itemsize
        if row_pass.is_product:
            # The sums of a step are read and written again in the next one.
            again = self._copy_s(np.maximum(steps - 1, 0) * targets * source_bytes * 2)
            s_per_byte = self._gather_s_per_byte(product.in_rows, source_bytes)
            return product.rank_nnz * source_bytes * s_per_byte + again + steps * op_s
        winner_bytes = reads.winners * ID_BYTES
        tables = [(product.in_rows, source_bytes), (product.out_rows, target_bytes)]
        total = steps * op_s * sum(num_bytes > 0 for _, num_bytes in tables)
        if self.hardware.device == "cpu":  # of winners, a row is read for each target, and as many numbers are written
            total = total + self._copy_s(steps * targets * 2 * winner_bytes)
        else:
            tables.append((product.out_rows, winner_bytes))
        for rows, num_bytes in tables:
            total = total + product.rank_nnz * self._row_s(rows, num_bytes)
        return total + self._copy_s(steps * targets * 2 * max(source_bytes, target_bytes))

    def _row_s(self, rows: RowDistribution, row_bytes: int) -> float:
        """Seconds for a row of ``row_bytes`` that an edge names in a block of ``rows``."""
        if not self.hardware.edge_gather:
            return row_bytes * self._gather_s_per_byte(rows, row_bytes)
        near, far = (interpolated(self.hardware.edge_gather, size) for size in (1, rows.block_sizes.max() * row_bytes))
        missing_s = EDGE_ROW_BYTES * (1 / far - 1 / near)  # caches find the rest of a row that is wider by themselves
        return row_bytes / near + (1 - self.job.graph.locality) * missing_s

    def _gather_s_per_byte(self, rows: RowDistribution, row_bytes: int) -> float:
        """Seconds for a byte of rows of a block of ``rows`` that are gathered."""
        return self.hardware.gather_s_per_byte(rows.block_sizes.max() * row_bytes, self.job.graph.locality)

    def _travel_s(self, name: str, received: dict[str, np.ndarray]) -> np.ndarray:
        """Seconds in which the rows of a product travel.

        Args:
            received: bytes by collective; only those of rows of X count.
        """
        product, moving = self.job.products[name], [name for name in ("broadcast", "exchange") if received[name].any()]
        if self._reads_in_place(name) and moving:  # one round; the copy is a dense pass, reading is part of the product
            side_by_side_s = self._copy_s(2 * received["exchange"] * (product.pieces is not None))
            return self._link("shared").latency_s + side_by_side_s
        rounds = np.maximum(product.steps, 1) if product.pieces is None else product.pieces.num_exchanges
        return sum((self._link(name).time_s(received[name], rounds) for name in moving), start=self.nothing)

    def _stalled_s(self, name: str, arriving_s: np.ndarray, compute_s: np.ndarray, leaving_s: np.ndarray) -> np.ndarray:
        """Seconds in which a rank waits for transfers that travel while it computes.

        Args:
            arriving_s: of the rows. Those of a step travel while the step before is computed.
            compute_s: of all steps.
            leaving_s: of the gradients at these rows, which travel while the step after is computed.
        """
        product = self.job.products[name]
        steps = np.maximum(product.steps, 1)
        if product.pieces is not None:
            own_s = compute_s * product.own_nnz / np.maximum(product.rank_nnz, 1)
            return np.maximum(arriving_s - own_s, 0) + leaving_s
        first_is_own = bool((np.diag(product.transports) == OWN).all()) and product.stage_order == "diagonal"
        num_moved = np.maximum(steps - 1 if first_is_own else steps, 1)
        arriving, leaving = arriving_s / num_moved, leaving_s / num_moved
        hidden = (steps - 1) * np.maximum(arriving + leaving - compute_s / steps, 0)
        return hidden + (0 if first_is_own else arriving) + leaving

    def _partners_s(self) -> np.ndarray:
        """Seconds in which each rank waits for the rows of partners, and for gradients of its own."""
        links, row_bytes = self.job.links, self.job.output_row_bytes
        if links is None:
            return self.nothing
        received, messages, num_rounds = links.bytes_received(row_bytes), self._link("exchange"), 2 * self.job.num_steps
        moved = received["exchange"] + received["push"]
        finding_s = messages.time_s(received["ids"], 5)
        if self.shares_memory:  # two rounds a step; a row is written to a slot, and read from there
            copied = 2 * moved + num_rounds * self.own_rows * row_bytes
            return finding_s + num_rounds * self._link("shared").latency_s + self._copy_s(copied)
        return finding_s + num_rounds * messages.latency_s + moved / messages.bytes_per_s
