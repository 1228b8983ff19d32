"""One distributed sparse matrix M, and Y = M @ X: stages, partial sums, reduction over the replicas.

With block rows i, block columns j and the rank at (i, k) of the (b, r) mesh:

    1. The rank's own rows of X are scaled by ``col_scale``, unless the producer of X has scaled them. The rows of the
       stage's source block arrive (``exchange.py``).
    2. T += M_ij X_j. ``row_scale`` is applied in the epilogue of the last stage.
    3. If r > 1, the r partial sums T of block row i are added. If each replica holds a slice of the rows, it receives
       the others' partial sums of its slice and adds them in replica order (a reduce-scatter, (r-1) n_i F/r words);
       each slice is sent while the next one is multiplied. If the replicas hold the same rows, this is an all-reduce.

M is A, some rows of it, or the transpose of either; its rows and columns may be distributed differently.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.distributed import Work
from fullgnn.kernels.epilogue.epilogue import apply_epilogue_
from fullgnn.kernels.spmm import NO_EPILOGUE, Epilogue, Kernel, LocalCSR
from fullgnn.schemes.exchange import EVERY_COLUMN, Exchange, StageRows
from fullgnn.schemes.replicas import add_in_order, sum_slices
from fullgnn.schemes.step_plan import StepPlan


@dataclass(frozen=True, eq=False)
class _RowSlice:
    """Some rows of the matrix of a stage."""

    rows: slice  # which rows of the block row
    block: Any  # prepared by the kernel; None if it has no non-zeros


class DistributedMultiplication:
    """The blocks of M that this rank multiplies, and the exchange that brings it the rows of X: a ``Multiplication``.

    Args:
        exchange: brings every row for which a matrix has a column, and possibly others.
        matrices: one for each stage of this rank, (rows of block row i, rows of the source block), on the host.
        pattern: whether every stored entry is 1.
    """

    def __init__(
        self, kernel: Kernel, exchange: Exchange, matrices: list[csr_array], pattern: bool, dtype: torch.dtype
    ):
        context, out_rows = exchange.context, exchange.product.out_rows
        self.context, self._kernel, self._meter, self._dtype = context, kernel, context.world.meter, dtype
        self.num_rows = out_rows.block_size(context.part)
        """Rows of M: those of block row i."""
        self._num_forward_rows = min(out_rows.total, exchange.rows.total)  # also if M is a transpose
        self._slices, self._replica = out_rows.slices(context.part), context.replica
        own = context.replica % len(self._slices)
        self._send_order = [*self._slices[own + 1 :], *self._slices[: own + 1]]
        self._row_scale: Tensor | None = None
        self._col_scale: Tensor | None = None

        self.exchange = exchange
        self.stages: list[list[_RowSlice]] = []
        self.nnz = 0
        for step, plan in enumerate(exchange.plans):
            matrix = self._matrix(plan, matrices)
            last = step == len(exchange.plans) - 1
            slices = self._send_order if last and not exchange.packed else [slice(0, self.num_rows)]
            self.stages.append([self._row_slice(matrix, rows, pattern) for rows in slices])
            self.nnz += matrix.nnz

    def _matrix(self, plan: StepPlan, matrices: list[csr_array]) -> csr_array:
        """(rows of block row i, rows that arrive in a step), what multiplies the rows of ``plan``."""
        return plan.matrix(matrices)

    def _row_slice(self, matrix: csr_array, rows: slice, pattern: bool) -> _RowSlice:
        csr = local_csr(matrix if len(self._slices) == 1 else matrix[rows], pattern, self.context.device)
        return _RowSlice(rows, self._kernel.prepare(csr, self._dtype) if csr.nnz else None)

    def scaled(self, row_scale: np.ndarray | None, col_scale: np.ndarray | None) -> Self:
        """Return diag(row_scale) M diag(col_scale), which shares its blocks and exchange with this multiplication.

        Args:
            row_scale: (rows of block row i,); None: all 1.
            col_scale: (own rows of X,); None: all 1.
        """

        def tensor(scale: np.ndarray | None) -> Tensor | None:
            return None if scale is None else torch.from_numpy(scale).to(self.context.device, self._dtype)

        other = copy.copy(self)
        other._row_scale, other._col_scale = tensor(row_scale), tensor(col_scale)
        return other

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        blocks = [part.block for parts in self.stages for part in parts if part.block is not None]
        held = [tensor for block in blocks for tensor in self._kernel.tensors(block)]
        return [*held, *(s for s in (self._row_scale, self._col_scale) if s is not None), *self.exchange.tensors()]

    @property
    def input_scale(self) -> Tensor | None:
        """(own rows of X,) column scale, which a producer of X may pre-apply; None: all 1."""
        return self._col_scale

    def __call__(self, x: Tensor, epilogue: Epilogue = NO_EPILOGUE, *, scaled: bool = False) -> Tensor:
        """Map (own rows of X, F) to (own rows of Y, F) and apply ``epilogue``, outside autograd. ``x`` is not changed.

        Args:
            scaled: whether ``x`` is diag(input_scale) X already.
        """
        assert self._col_scale is not None or not scaled
        pieces = self.exchange.pieces(x, None if scaled else self._col_scale)
        return self._multiply_pieces(pieces, x.new_empty(self.num_rows, x.shape[1]), epilogue)

    def multiply_stages(self, stages: Iterable[Tensor | None], out: Tensor, epilogue: Epilogue = NO_EPILOGUE) -> Tensor:
        """Multiply the rows of each stage in turn, as ``__call__`` does, and apply ``epilogue``.

        Args:
            stages: what ``exchange.steps`` yields for (own rows of X, F), times ``input_scale``.
            out: (``num_rows``, F), uninitialised, for the sum of this rank's stages.

        Returns:
            (own rows of Y, F).
        """
        return self._multiply_pieces(((step, EVERY_COLUMN, h) for step, h in enumerate(stages)), out, epilogue)

    def _multiply_pieces(self, pieces: Iterable[StageRows], out: Tensor, epilogue: Epilogue) -> Tensor:
        """Implement ``multiply_stages``. The pieces of a step follow each other, and have all columns together."""
        assert epilogue.scale is None
        self._meter.count("spmm_columns", out.shape[1])
        self._meter.count("spmm_rows", self._num_forward_rows)
        reduction = _Reduction(self, out)
        # Without replicas the sums need no reduction. A dropout needs all columns of a row.
        complete = self.context.replication == 1 and not self.exchange.cuts_columns
        last_epilogue = replace(epilogue if complete else NO_EPILOGUE, scale=self._row_scale)
        first: int | None = None  # the step that writes; those after it add
        for step, columns, h in pieces:
            if h is None:
                continue
            first = step if first is None else first
            last = step == len(self.stages) - 1
            for part in self.stages[step]:
                end = last_epilogue.of(part.rows) if last else NO_EPILOGUE
                self.multiply_slice(part, h, out[part.rows, columns], step != first, end)
                if last:
                    reduction.send(part.rows)
        if not self.stages:
            out.zero_()
            for rows in self._send_order:
                reduction.send(rows)
        total = reduction.finish()
        return total if complete else apply_epilogue_(total, epilogue)

    def multiply_slice(self, part: _RowSlice, h: Tensor, target: Tensor, accumulate: bool, epilogue: Epilogue) -> None:
        if part.block is not None and h.numel():
            with self._meter.phase("spmm"):
                self._kernel.spmm(part.block, h, target, accumulate, epilogue)
        else:
            apply_epilogue_(target if accumulate else target.zero_(), epilogue)


class _Reduction:
    """Adds the replicas' partial sums ``out``. Each slice of a partial sum is sent as soon as it is complete, or all of
    them by one all-to-all at the end, where rows travel side by side.

    In round d, replica k sends slice k + d to its owner and receives its own slice from replica k - d (mod r): every
    send meets its receive in the same round, as NCCL requires.
    """

    def __init__(self, multiplication: "DistributedMultiplication", out: Tensor):
        self._axis, self._slices, self._out = multiplication.context.replicas, multiplication._slices, out
        self._replica, self._packed, self._round = multiplication._replica, multiplication.exchange.packed, 0
        self._sent: list[Work] = []
        self._arriving: dict[int, Work] = {}  # by the replica that sends

    def send(self, rows: slice) -> None:
        """Send the complete partial sum of ``rows``. Replica k sends the slices k + 1, k + 2, ..., k (mod r)."""
        self._round += 1
        num_replicas = len(self._slices)
        if self._packed or self._round >= num_replicas:  # this rank's own slice, or the only one, is not sent
            return
        own = self._slices[self._replica]
        receiver, sender = ((self._replica + d) % num_replicas for d in (self._round, -self._round))
        partial = self._out.new_empty(own.stop - own.start, self._out.shape[1])
        sent, arriving = self._axis.exchange([(self._out[rows], receiver)], [(partial, sender)], "reduce_scatter")
        self._sent.extend(sent)
        self._arriving[sender] = arriving[0]

    def finish(self) -> Tensor:
        """Return the (own rows, F) sum over the replicas, added in replica order."""
        if len(self._slices) == 1:
            return self._axis.all_reduce(self._out)
        if self._packed:
            return sum_slices(self._out, self._slices, self._axis, packed=True)
        own = self._out[self._slices[self._replica]]
        parts = [own if k == self._replica else self._arriving[k].wait() for k in range(len(self._slices))]
        total = add_in_order(parts)
        for work in self._sent:
            work.wait()
        return total


def local_csr(matrix: csr_array, pattern: bool, device: torch.device) -> LocalCSR:
    """``matrix`` on ``device``; its entries are not kept if it is a ``pattern``."""

    def tensor(array: np.ndarray, dtype: type) -> Tensor:
        return torch.from_numpy(np.require(array.astype(dtype, copy=False), requirements=["C", "W"])).to(device)

    values = None if pattern else torch.from_numpy(np.ascontiguousarray(matrix.data)).to(device)
    indptr, indices = tensor(matrix.indptr, np.int32), tensor(matrix.indices, np.int32)
    return LocalCSR(indptr, indices, values, *matrix.shape)
