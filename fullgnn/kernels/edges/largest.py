"""The largest rows among the sources of each target, column by column, over one stage of edges: no tensor has a row for
each edge. Outside autograd."""

from collections.abc import Callable

from torch import Tensor

from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.edges.max_state import MaxState
from fullgnn.kernels.edges.paths import implementation
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.aligned import as_rows


def largest_rows(csr: LocalCSR, x: Tensor, source_id: Tensor, state: MaxState) -> None:
    """Add the edges of a stage to ``state``, in place, where the message of an edge is the row of its source, times the
    edge's weight.

    Args:
        csr: (n, m); its values, the edge weights, are of the dtype of ``x``.
        x: (m, F) float32 or float64, any row stride.
        source_id: (m,) int64 GLOBAL original ids of the stage's sources, which differ.
    """
    assert len(x) == len(source_id) == csr.num_cols, (x.shape, source_id.shape, csr.num_cols)
    assert state.value.shape == (csr.num_rows, x.shape[1]) and state.value.dtype == x.dtype, (
        state.value.shape,
        x.dtype,
    )
    assert state.value.is_contiguous() and state.winner.is_contiguous()
    assert csr.values is None or csr.values.dtype == x.dtype, (csr.values.dtype, x.dtype)
    if csr.nnz and x.shape[1]:
        implementation("largest", x).largest_rows(csr, as_rows(x), source_id.contiguous(), state)


def largest_rows_backward(
    csr: LocalCSR, transposed: Callable[[], Transposed], source_id: Tensor, winner: Tensor, grad: Tensor
) -> Tensor:
    """(m, F) gradient of the rows of a stage's sources in a maximum: the sum of the targets' gradients, times the
    weights of the edges, in those columns that the source has won. No number of threads changes a bit.

    Args:
        csr, source_id: those of ``largest_rows``.
        transposed: returns ``transpose(csr)``; called on a GPU alone.
        winner: (n, F) int64, of the merged ``MaxState``. A winner among the sources of this stage has won by an edge of
            this stage.
        grad: (n, F) gradient of the maximum.
    """
    assert winner.shape == grad.shape and len(grad) == csr.num_rows and len(source_id) == csr.num_cols
    if csr.nnz == 0 or grad.shape[1] == 0:
        return grad.new_zeros(csr.num_cols, grad.shape[1])
    tensors = (source_id.contiguous(), winner.contiguous(), grad.contiguous())
    return implementation("largest", grad).largest_rows_backward(csr, transposed, *tensors)
