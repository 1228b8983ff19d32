"""The seconds of an epoch on each rank of a job.

gathering   a product reads a row for each non-zero; a pass over edges one by one reads what its layer says of the
            source and of the target of an edge: the bytes come at the rate of the smallest table, and each row costs
            as much more as a row of the measured width in a table of this size
waiting     rows of the next stage arrive, and gradients of the last one leave, while a stage is computed
copies      gradients are added where their rows are, and copied to where their owners read them
links       draws, partners' rows on their way, and scores
dense       products of tall matrices, and the passes over H that are not fused into a product
"""

from collections.abc import Iterable
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from fullgnn.costs.hardware import EDGE_ROW_BYTES, Hardware, Link
from fullgnn.costs.passes import Pass
from fullgnn.costs.statistics import PlannedJob
from fullgnn.costs.trace import Trace
from fullgnn.engine.state import EXTRA
from fullgnn.schemes.product_layout import BROADCAST, OWN, RowDistribution

ROWS_OF_SCORE = 2 + 4
"""Rows that the score of a pair reads or writes: its two in the forward pass; in the backward pass these again, and
their gradients."""

DENSE_PASSES = 6
"""Passes over the rows of a rank in a step of a task that finds links: zeros for two gradients, and their sum."""

OPTIMIZER_PASSES = 7
"""Passes of Adam over its parameters: four are read (parameter, gradient, two moments), three written."""


class PassTime(NamedTuple):
    """(b, r) seconds of a ``Pass``, or of several, on each rank."""

    compute_s: np.ndarray
    waiting_s: np.ndarray
    copies_s: np.ndarray  # of a product: none; its rows are scaled or copied by ``dense_s``


def summed_bytes(job: PlannedJob, trace: Trace) -> int:
    """Bytes that each rank receives in the all-reduce of the gradients and the loss, of all steps of an epoch.

    Where a task that finds links has no gradients to sum, the losses of all steps are one sum in float64.
    """
    size = job.grid.num_ranks
    if job.links is not None and not trace.num_parameters:
        return 2 * (size - 1) * EXTRA * 8 // size
    return job.num_steps * (2 * (size - 1) * (trace.num_parameters + EXTRA) * job.dtype.itemsize // size)


class EpochTimes:
    """The times of an epoch of ``job`` on ``hardware``, each (b, r) seconds, of every rank."""

    def __init__(self, job: PlannedJob, hardware: Hardware):
        self.job, self.hardware, self.own_rows = job, hardware, job.num_own_rows
        self.nothing, self.size = np.zeros(self.own_rows.shape), job.grid.num_ranks

    def of_passes(self, passes: Iterable[Pass], measured_s: Iterable[np.ndarray | None] = repeat(None)) -> PassTime:
        """The time of all ``passes``.

        Args:
            measured_s: (b, r) seconds of the local computation of each; None: they are predicted.
        """
        times = [self._of_pass(row_pass, seconds) for row_pass, seconds in zip(passes, measured_s)]
        nothing = PassTime(self.nothing, self.nothing, self.nothing)
        return PassTime(*(sum(parts, start=self.nothing) for parts in zip(nothing, *times)))

    def dense_s(self, trace: Trace) -> np.ndarray:
        """Seconds of the dense products, and of the passes over H that are not fused into a product."""
        total, job = self.nothing.copy(), self.job
        for product in trace.products:
            if job.folded or self._reads_in_place(product.name):  # rows are scaled, or copied to where all read
                total += self._copy_s(2 * self.own_rows * product.source_bytes)
        share = self.own_rows / max(1, self.own_rows.max())
        total += self._copy_s(share * trace.pass_bytes)
        for gemm in trace.gemms:
            arithmetic_s = gemm.flops / self.hardware.gemm_flops_per_s
            total += share * (arithmetic_s + self._copy_s(gemm.numbers * job.dtype.itemsize)) + self.hardware.op_s
        return total

    def other_s(self, trace: Trace) -> np.ndarray:
        """Seconds in which parameters are updated, and in which a task that finds links draws and scores pairs."""
        job, links, row_bytes = self.job, self.job.links, self.job.output_row_bytes
        num_updated = trace.num_parameters + trace.num_row_parameters * self.own_rows
        update_s = self._copy_s(OPTIMIZER_PASSES * num_updated * job.dtype.itemsize) + 10 * self.hardware.op_s
        if links is None:
            return job.num_steps * update_s
        draws = links.of_ranks(links.draws.ravel())
        drawn_s = draws * (links.width - 1) * self.hardware.draw_s
        scores_s = draws * links.width * ROWS_OF_SCORE * row_bytes * self._gather_s_per_byte(job.rows, row_bytes)
        passes_s = self._copy_s(links.num_steps * DENSE_PASSES * self.own_rows * row_bytes)
        return job.num_steps * update_s + (drawn_s + scores_s + passes_s)

    def communication_s(self, trace: Trace, waiting_s: np.ndarray) -> np.ndarray:
        """Seconds in which each rank waits for data.

        Args:
            waiting_s: (b, r) seconds of ``trace.passes``.
        """
        if self.size == 1:
            return waiting_s
        num_sums = self.job.num_steps if trace.num_parameters else 1
        summing_s = self._link("all_reduce").time_s(summed_bytes(self.job, trace), num_sums)
        return self.job.num_steps * waiting_s + summing_s + self._partners_s()

    def _link(self, collective: str) -> Link:
        return self.hardware.link(collective, self.size)

    def _copy_s(self, num_bytes: Any) -> Any:
        return num_bytes / self.hardware.copy_bytes_per_s

    def _reads_in_place(self, name: str) -> bool:
        """Whether the ranks read each other's rows where they are in product ``name``, see ``Exchange``."""
        shares = self.job.shares_memory(self.hardware.device)
        return shares and not (self.job.products[name].transports == BROADCAST).any()

    def _of_pass(self, row_pass: Pass, measured_s: np.ndarray | None) -> PassTime:
        compute_s = self._compute_s(row_pass) if measured_s is None else measured_s
        copies_s, waiting_s, arriving_s, leaving_s = (np.zeros_like(compute_s) for _ in range(4))
        if self.size == 1:
            return PassTime(compute_s, waiting_s, copies_s)
        in_place, product = self._reads_in_place(row_pass.name), self.job.products[row_pass.name]
        for move in row_pass.moves:
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
        waiting_s += self._overlapped_s(row_pass.name, arriving_s, compute_s, leaving_s)
        return PassTime(compute_s, waiting_s, copies_s)

    def _compute_s(self, row_pass: Pass) -> np.ndarray:
        """Seconds of the local computation of a pass."""
        product, op_s = self.job.products[row_pass.name], self.hardware.op_s
        steps, targets = product.steps, product.out_rows.block_sizes[:, None]
        if row_pass.is_product:
            # The sums of a step are read and written again in the next one.
            again = self._copy_s(np.maximum(steps - 1, 0) * targets * row_pass.source_bytes * 2)
            s_per_byte = self._gather_s_per_byte(product.in_rows, row_pass.source_bytes)
            return product.rank_nnz * row_pass.source_bytes * s_per_byte + again + steps * op_s
        tables = [(product.in_rows, row_pass.source_bytes), (product.out_rows, row_pass.target_bytes)]
        total = steps * op_s * sum(num_bytes > 0 for _, num_bytes in tables)
        if self.hardware.device == "cpu":  # of winners, a row is read for each target, and as many numbers are written
            total = total + self._copy_s(steps * targets * 2 * row_pass.winner_bytes)
        else:
            tables.append((product.out_rows, row_pass.winner_bytes))
        for rows, num_bytes in tables:
            if num_bytes:
                total = total + product.rank_nnz * self._row_s(rows, num_bytes)
        return total + self._copy_s(steps * targets * 2 * max(row_pass.source_bytes, row_pass.target_bytes))

    def _row_s(self, rows: RowDistribution, row_bytes: int) -> float:
        """Seconds for a row of ``row_bytes`` that an edge names in a block of ``rows``."""
        if not self.hardware.edge_gather:
            return row_bytes * self._gather_s_per_byte(rows, row_bytes)
        near, far = (self.hardware.edge_rate(size) for size in (1, rows.block_sizes.max() * row_bytes))
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
        product, total, in_place = self.job.products[name], self.nothing.copy(), self._reads_in_place(name)
        for collective in ("broadcast", "exchange"):
            if not received[collective].any():
                continue
            if in_place:  # one round; the copy is a dense pass, reading is part of the product
                total += self._link("shared").latency_s
            else:
                rounds = np.maximum(product.steps, 1) if product.pieces is None else product.pieces.num_exchanges
                total += self._link(collective).time_s(received[collective], rounds)
            if product.pieces is not None and in_place:  # the rows are copied side by side
                total += self._copy_s(2 * received[collective])
        return total

    def _overlapped_s(
        self, name: str, arriving_s: np.ndarray, compute_s: np.ndarray, leaving_s: np.ndarray
    ) -> np.ndarray:
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
        job, links, row_bytes = self.job, self.job.links, self.job.output_row_bytes
        if links is None:
            return self.nothing
        received, messages, num_rounds = links.bytes_received(row_bytes), self._link("exchange"), 2 * links.num_steps
        moved = received["exchange"] + received["push"]
        finding_s = messages.time_s(received["ids"], 5)
        if job.shares_memory(
            self.hardware.device
        ):  # two rounds a step; a row is written to a slot, and read from there
            copied = 2 * moved + num_rounds * self.own_rows * row_bytes
            return finding_s + num_rounds * self._link("shared").latency_s + self._copy_s(copied)
        return finding_s + num_rounds * messages.latency_s + moved / messages.bytes_per_s
