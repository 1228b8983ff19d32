"""Sums and maxima of messages, one row for each edge of a stage, over the edges of each target; outside autograd."""

from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.kernels.edges.max_state import MaxState
from fullgnn.kernels.edges.paths import implementation
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
    if csr.nnz:
        implementation("reduce", messages).add_messages(csr, messages.contiguous(), out)


def add_largest(csr: LocalCSR, messages: Tensor, source_id: Tensor, state: MaxState) -> None:
    """Add the (E, F) ``messages`` of a stage to ``state``, in place.

    Args:
        source_id: (m,) int64 GLOBAL original ids of the stage's sources; no source sends a target two messages.
    """
    assert len(messages) == csr.nnz and state.value.shape == (csr.num_rows, messages.shape[1])
    if csr.nnz:
        implementation("reduce", messages).add_largest(csr, messages.contiguous(), source_id.contiguous(), state)


def largest_backward(csr: LocalCSR, source_id: Tensor, winner: Tensor, grad: Tensor) -> Tensor:
    """(E, F) gradient of a stage's messages in a maximum: the target's gradient for the winner alone.

    Args:
        source_id: (m,) int64 GLOBAL original ids of the stage's sources.
        winner: (n, F) int64, of the merged ``MaxState``.
        grad: (n, F) gradient of the maximum.
    """
    out = grad.new_empty(csr.nnz, grad.shape[1])
    if csr.nnz:
        tensors = (source_id.contiguous(), winner.contiguous(), grad.contiguous(), out)
        implementation("reduce", grad).largest_backward(csr, *tensors)
    return out
