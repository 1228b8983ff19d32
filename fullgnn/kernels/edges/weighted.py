"""Products and softmax with values per edge that are given at run time, for one stage of edges."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fullgnn.kernels.edges.index import Transposed, edge_targets
from fullgnn.kernels.edges.paths import path_of
from fullgnn.kernels.edges.reference import (
    edge_dots_torch,
    edge_softmax_backward_torch,
    edge_softmax_torch,
    weighted_sum_torch,
)
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.aligned import as_rows

NO_PLACES = torch.empty(0, dtype=torch.int32)


def edge_spmm(csr: LocalCSR, transposed: Transposed, values: Tensor, x: Tensor) -> Tensor:
    """The sum over each target's edges e of ``values[e] * x[source of e]``, head by head; differentiable once.

    Shapes are local to the stage: n targets, m sources, E edges, K heads of D columns.

    Args:
        csr: (n, m); its own values are not read.
        transposed: ``transpose(csr)``, for the gradient of ``x``.
        values: (E, K), in the order of the edges of ``csr``, of the dtype of ``x``.
        x: (m, K * D) float32 or float64, any row stride.

    Returns:
        (n, K * D), 0 for a target without edges.
    """
    return _EdgeSpmm.apply(csr, transposed, values, x)


class _EdgeSpmm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, csr: LocalCSR, transposed: Transposed, values: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(values, x)
        ctx.edges = (csr, transposed)
        out = x.new_zeros(csr.num_rows, x.shape[1])
        edge_spmm_into(csr, values, x, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        values, x = ctx.saved_tensors
        csr, transposed = ctx.edges
        of_values = edge_dots(csr, grad, x, values.shape[1]) if ctx.needs_input_grad[2] else None
        of_x = edge_spmm_transposed(csr, transposed, values, grad) if ctx.needs_input_grad[3] else None
        return None, None, of_values, of_x


def edge_spmm_into(csr: LocalCSR, values: Tensor, x: Tensor, out: Tensor) -> None:
    """Add ``edge_spmm`` to the contiguous (n, K * D) ``out``, outside autograd, as one of several stages."""
    assert len(x) == csr.num_cols and out.shape == (csr.num_rows, x.shape[1]), (x.shape, out.shape)
    if path_of(x) == "torch":
        weighted_sum_torch(edge_targets(csr), csr.indices, values, x, out)
    else:
        _weighted_sum(csr.indptr, csr.indices, None, values, x, out)


def edge_spmm_transposed(csr: LocalCSR, transposed: Transposed, values: Tensor, grad: Tensor) -> Tensor:
    """(m, K * D) gradient of ``x`` in ``edge_spmm``, for the (n, K * D) gradient ``grad`` of its result."""
    out = grad.new_zeros(csr.num_cols, grad.shape[1])
    if path_of(grad) == "torch":
        weighted_sum_torch(csr.indices, edge_targets(csr), values, grad, out)
    else:
        _weighted_sum(transposed.indptr, transposed.targets, transposed.places, values, grad, out)
    return out


def _weighted_sum(
    indptr: Tensor, indices: Tensor, places: Tensor | None, values: Tensor, x: Tensor, out: Tensor
) -> None:
    """Add to row i of ``out`` the rows ``indices[e]`` of ``x``, weighted by ``values[places[e]]``, for its edges e."""
    num_edges, num_heads = values.shape
    assert num_edges == len(indices) and values.dtype == x.dtype == out.dtype, (values.shape, values.dtype, x.dtype)
    assert out.is_contiguous() and x.shape[1] % num_heads == 0, (x.shape, num_heads)
    if num_edges == 0:
        return
    x, values = as_rows(x), values.contiguous()
    if path_of(x) == "triton":
        from fullgnn.kernels.edges._weighted_gpu import weighted_sum_gpu

        weighted_sum_gpu(indptr, indices, places, values, x, out)
        return
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.kernels.edges._rows_cpu import over_rows
    from fullgnn.kernels.edges._weighted_cpu import weighted_sum_loop

    size, moved = x.element_size(), NO_PLACES if places is None else places
    loop = weighted_sum_loop(8 * size, num_heads, x.shape[1] // num_heads)
    over_rows(loop, indptr, indices, moved.numpy(), values, x, x.stride(0) * size, out)


def edge_dots(csr: LocalCSR, of_targets: Tensor, of_sources: Tensor, num_heads: int) -> Tensor:
    """(E, K) dot products of the rows of each edge's target and source, head by head, outside autograd (SDDMM).

    Args:
        of_targets: (n, K * D).
        of_sources: (m, K * D), any row stride.
    """
    assert len(of_targets) == csr.num_rows and len(of_sources) == csr.num_cols
    if path_of(of_sources) == "torch":
        return edge_dots_torch(edge_targets(csr), csr.indices, of_targets, of_sources, num_heads)
    out = of_sources.new_empty(csr.nnz, num_heads)
    rows, x, size = of_targets.contiguous(), as_rows(of_sources), of_sources.element_size()
    if csr.nnz == 0:
        return out
    if path_of(x) == "triton":
        from fullgnn.kernels.edges._weighted_gpu import edge_dots_gpu

        edge_dots_gpu(csr, rows, x, out)
        return out
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.kernels.edges._rows_cpu import over_rows
    from fullgnn.kernels.edges._weighted_cpu import edge_dots_loop

    loop = edge_dots_loop(8 * size, num_heads, x.shape[1] // num_heads)
    over_rows(loop, csr.indptr, csr.indices, rows, x, x.stride(0) * size, out)
    return out


def edge_softmax(csr: LocalCSR, logits: Tensor) -> Tensor:
    """The softmax of (E, K) ``logits`` over the edges of each target, column by column; differentiable once.

    All edges of a target must be in this stage; ``SoftmaxState`` is for several stages. Where all logits of a target
    are -inf, the result is nan, as of ``torch.softmax``.
    """
    return _EdgeSoftmax.apply(csr, logits)


class _EdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, csr: LocalCSR, logits: Tensor) -> Tensor:
        assert len(logits) == csr.nnz, (logits.shape, csr.nnz)
        softmax = _softmax(csr, logits.contiguous())
        ctx.save_for_backward(softmax)
        ctx.csr = csr
        return softmax

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (softmax,) = ctx.saved_tensors
        return None, _softmax_gradient(ctx.csr, softmax, grad.contiguous())


def _softmax(csr: LocalCSR, logits: Tensor) -> Tensor:
    path = path_of(logits)
    if path == "torch" or csr.nnz == 0:
        return edge_softmax_torch(csr, logits)
    softmax = torch.empty_like(logits)
    if path == "triton":
        from fullgnn.kernels.edges._weighted_gpu import edge_softmax_gpu

        edge_softmax_gpu(csr, logits, softmax)
        return softmax
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.kernels.edges._rows_cpu import over_rows
    from fullgnn.kernels.edges._weighted_cpu import edge_softmax_loop

    loop = edge_softmax_loop(8 * logits.element_size(), logits.shape[1])
    over_rows(loop, csr.indptr, csr.indices, logits, softmax)
    return softmax


def _softmax_gradient(csr: LocalCSR, softmax: Tensor, grad: Tensor) -> Tensor:
    path = path_of(grad)
    if path == "torch" or csr.nnz == 0:
        return edge_softmax_backward_torch(csr, softmax, grad)
    out = torch.empty_like(softmax)
    if path == "triton":
        from fullgnn.kernels.edges._weighted_gpu import edge_softmax_gradient_gpu

        edge_softmax_gradient_gpu(csr, softmax, grad, out)
        return out
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.kernels.edges._rows_cpu import over_rows
    from fullgnn.kernels.edges._weighted_cpu import edge_softmax_gradient_loop

    loop = edge_softmax_gradient_loop(8 * grad.element_size(), grad.shape[1])
    over_rows(loop, csr.indptr, csr.indices, softmax, grad, out)
    return out
