"""Sums and maxima of messages, one row for each edge of a stage, over the edges of each target; outside autograd."""

from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.kernels.edges.index import edge_targets
from fullgnn.kernels.edges.max_state import MaxState
from fullgnn.kernels.edges.paths import path_of
from fullgnn.kernels.edges.reference import largest_backward_torch, largest_torch
from fullgnn.kernels.spmm.base import LocalCSR

AGGREGATIONS = ("sum", "mean", "max")


def check_aggregation(aggregation: str) -> None:
    """Refuse another aggregation than those of ``AGGREGATIONS``.

    Raises:
        ConfigError: one line with the names to choose from.
    """
    if aggregation not in AGGREGATIONS:
        raise ConfigError(f"aggregation={aggregation} is not known: choose one of {', '.join(AGGREGATIONS)}")


def add_messages(csr: LocalCSR, messages: Tensor, out: Tensor) -> None:
    """Add the sums of the (E, F) ``messages`` of a stage to the contiguous (n, F) ``out``.

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
    """Add the (E, F) ``messages`` of a stage to ``state``, in place.

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
