"""Sums, means and maxima of a user's own messages, one row for each edge of a stage, over the edges of each target."""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fullgnn.kernels.edges.index import edge_targets, repeat_targets
from fullgnn.kernels.edges.max_state import MaxState
from fullgnn.kernels.edges.paths import path_of
from fullgnn.kernels.edges.reference import largest_backward_torch, largest_torch
from fullgnn.kernels.spmm.base import LocalCSR

Reduction = Literal["sum", "mean", "max"]


def reduce_edges(csr: LocalCSR, messages: Tensor, reduction: Reduction, source_id: Tensor | None = None) -> Tensor:
    """Reduce (E, F) ``messages`` to (n, F) over the edges of each target; differentiable once.

    All edges of a target must be in this stage; ``add_messages``, ``add_largest`` and ``MaxState`` are for several.

    Args:
        csr: (n, m) block whose edges' order the messages have.
        messages: (E, F) float32 or float64.
        source_id: (m,) int64 GLOBAL original ids. Among equal messages, the one from the lowest id is the maximum and
            gets the gradient; None: from the first source.

    Returns:
        (n, F), 0 for a target without edges.
    """
    if reduction == "max":
        ids = torch.arange(csr.num_cols, device=messages.device) if source_id is None else source_id
        return _Largest.apply(csr, messages, ids)
    total = _Sum.apply(csr, messages)
    if reduction == "sum":
        return total
    return total / csr.indptr.diff().clamp(min=1)[:, None]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, csr: LocalCSR, messages: Tensor) -> Tensor:
        ctx.csr = csr
        out = messages.new_zeros(csr.num_rows, messages.shape[1])
        add_messages(csr, messages, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return None, repeat_targets(ctx.csr, grad)


class _Largest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, csr: LocalCSR, messages: Tensor, source_id: Tensor) -> Tensor:
        state = MaxState.empty(csr.num_rows, messages.shape[1], messages)
        add_largest(csr, messages, source_id, state)
        ctx.csr = csr
        ctx.save_for_backward(source_id, state.winner)
        return state.finish()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        source_id, winner = ctx.saved_tensors
        return None, largest_backward(ctx.csr, source_id, winner, grad), None


def add_messages(csr: LocalCSR, messages: Tensor, out: Tensor) -> None:
    """Add the sums of the (E, F) ``messages`` of a stage to the contiguous (n, F) ``out``, outside autograd.

    A mean over several stages is their sum, divided by the number of edges of each target in all of them.
    """
    assert len(messages) == csr.nnz and out.shape == (csr.num_rows, messages.shape[1]) and out.is_contiguous()
    path = path_of(messages)
    if path == "torch":
        out.index_add_(0, edge_targets(csr), messages)
        return
    if csr.nnz == 0:
        return
    if path == "triton":
        from fullgnn.kernels.edges._reduce_gpu import add_messages_gpu

        add_messages_gpu(csr, messages.contiguous(), out)
        return
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.kernels.edges import _reduce_cpu
    from fullgnn.kernels.edges._rows_cpu import over_rows_of_arrays

    arrays = (messages.detach().contiguous().numpy(), out.detach().numpy())
    over_rows_of_arrays(_reduce_cpu.add_messages, csr.indptr, csr.indices, *arrays)


def add_largest(csr: LocalCSR, messages: Tensor, source_id: Tensor, state: MaxState) -> None:
    """Add the (E, F) ``messages`` of a stage to ``state``, in place, outside autograd.

    Args:
        source_id: (m,) int64 GLOBAL original ids of the stage's sources; no source sends a target two messages.
    """
    assert len(messages) == csr.nnz and state.value.shape == (csr.num_rows, messages.shape[1])
    path = path_of(messages)
    if path == "torch":
        largest_torch(csr, messages, source_id, state)
        return
    if csr.nnz == 0:
        return
    if path == "triton":
        from fullgnn.kernels.edges._reduce_gpu import add_largest_gpu

        add_largest_gpu(csr, messages.contiguous(), source_id.contiguous(), state)
        return
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.kernels.edges import _reduce_cpu
    from fullgnn.kernels.edges._rows_cpu import over_rows_of_arrays

    arrays = [one.detach().contiguous().numpy() for one in (messages, source_id)]
    updated = (state.value.numpy(), state.winner.numpy())
    over_rows_of_arrays(_reduce_cpu.add_largest, csr.indptr, csr.indices, *arrays, *updated)


def largest_backward(csr: LocalCSR, source_id: Tensor, winner: Tensor, grad: Tensor) -> Tensor:
    """(E, F) gradient of a stage's messages in a maximum: the target's gradient for the winner alone.

    Args:
        source_id: (m,) int64 GLOBAL original ids of the stage's sources.
        winner: (n, F) int64, of the merged ``MaxState``.
        grad: (n, F) gradient of the maximum.
    """
    path = path_of(grad)
    if path == "torch":
        return largest_backward_torch(csr, source_id, winner, grad)
    out = grad.new_empty(csr.nnz, grad.shape[1])
    if csr.nnz == 0:
        return out
    if path == "triton":
        from fullgnn.kernels.edges._reduce_gpu import largest_backward_gpu

        largest_backward_gpu(csr, source_id.contiguous(), winner.contiguous(), grad.contiguous(), out)
        return out
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.kernels.edges import _reduce_cpu
    from fullgnn.kernels.edges._rows_cpu import over_rows_of_arrays

    arrays = [one.contiguous().numpy() for one in (source_id, winner, grad, out)]
    over_rows_of_arrays(_reduce_cpu.largest_gradient, csr.indptr, csr.indices, *arrays)
    return out
