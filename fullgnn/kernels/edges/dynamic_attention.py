"""Dynamic graph attention over one stage of edges, fused: no tensor has a row for each edge.

The result of target i is, head by head,

    out_i = sum_j c_ij p_ij x_j        p_ij = softmax over j of a . LeakyReLU(x_j + y_i)

(Brody, Alon and Yahav, "How Attentive are Graph Attention Networks?", 2022, equation 7), with rows x_j of the sources
and y_i of the targets, and a vector a for each head. In the attention of ``attention.py`` the order of the neighbours
by p is the same for all targets; here it depends on the target. The factor c of an edge is that of ``attention.py``:
its weight in the graph, times the factor of an attention dropout.

``attend_dynamic`` adds one stage to a ``SoftmaxState``. ``attend_dynamic_backward`` computes the logits z and p again;
with g the gradient of the result, and s the slope that the LeakyReLU has in each column, 1 or its negative slope,

    grad z       = p (c <g_i, x_j> - <g_i, out_i>)
    grad x_j     = sum_i c p g_i + a s grad z
    grad y_i     = sum_j a s grad z
    grad a       = sum_ij LeakyReLU(x_j + y_i) grad z

Gradients of sources are pulled along the transposed index, and each target has its own part of the gradient of a, so no
number of threads changes a bit.
"""

import torch
from torch import Tensor

from fullgnn.kernels.edges.attention import number_like
from fullgnn.kernels.edges.dynamic_rows import DynamicRows
from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.edges.mask import EdgeMask, check_heads
from fullgnn.kernels.edges.paths import path_of
from fullgnn.kernels.edges.reference import attend_dynamic_backward_torch, attend_dynamic_torch
from fullgnn.kernels.edges.softmax_state import SoftmaxState
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.aligned import as_rows


def attend_dynamic(
    csr: LocalCSR,
    x: Tensor,
    x_target: Tensor,
    vector: Tensor,
    slope: float,
    mask: EdgeMask | None,
    state: SoftmaxState,
) -> None:
    """Add the edges of a stage to ``state``, in place. Shapes are local to the stage: n targets, m sources, K heads.

    Args:
        csr: (n, m); its values, the edge weights, are of the dtype of ``x``.
        x: (m, K * D) float32 or float64, any row stride.
        x_target: (n, K * D), of the dtype of ``x``.
        vector: (K, D), the same dtype.
        slope: negative slope of the LeakyReLU.
        mask: the attention dropout; None: none. It applies to the softmax, so ``state.total`` does not depend on it.

    Raises:
        ConfigError: a dropout with more than 1,024 heads.
    """
    num_heads, depth = vector.shape
    _check(csr, x, x_target, vector, mask)
    assert state.maximum.shape == (csr.num_rows, num_heads) and state.weighted.shape == x_target.shape
    assert state.weighted.dtype == x.dtype, (state.weighted.dtype, x.dtype)
    assert all(part.is_contiguous() for part in (state.maximum, state.total, state.weighted))
    if csr.nnz == 0:
        return
    path = path_of(x)
    if path == "torch":
        attend_dynamic_torch(csr, x, x_target, vector, slope, mask, state)
        return
    x, x_target, vector = as_rows(x), x_target.contiguous(), vector.contiguous()
    if path == "triton":
        from fullgnn.kernels.edges._attention_gpu import attend_gpu

        attend_gpu(csr, vector, x_target, x, slope, mask, state, dynamic=True)
        return
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.kernels.edges._attention_cpu import attend_loop
    from fullgnn.kernels.edges._mask_cpu import factor_arguments
    from fullgnn.kernels.edges._rows_cpu import over_rows

    size = x.element_size()
    loop = attend_loop(8 * size, num_heads, depth, dynamic=True)
    given = (vector, x_target, x, x.stride(0) * size, number_like(x, slope))
    states, factors = (state.maximum, state.total, state.weighted), factor_arguments(csr.values, mask, x)
    over_rows(loop, csr.indptr, csr.indices, *given, *states, *factors)


def attend_dynamic_backward(
    csr: LocalCSR,
    transposed: Transposed,
    x: Tensor,
    vector: Tensor,
    slope: float,
    mask: EdgeMask | None,
    rows: DynamicRows,
) -> Tensor:
    """(m, K * D) gradient at the sources of a stage; those at its targets, and their parts of the gradient of
    ``vector``, are added to ``rows``.

    Args:
        csr, x, vector, slope, mask: those of ``attend_dynamic``.
        transposed: ``transpose(csr)``.
        rows: what the backward pass of all stages reads of the targets.
    """
    num_heads, depth = vector.shape
    _check(csr, x, rows.x_target, vector, mask)
    assert rows.grad.shape == rows.x_target.shape and rows.grad.dtype == x.dtype, (rows.grad.shape, x.dtype)
    assert transposed.num_sources == csr.num_cols and len(transposed.targets) == csr.nnz
    assert all(one.is_contiguous() for one in (rows.x_target, rows.grad, rows.grad_x_target, rows.grad_vector))
    if csr.nnz == 0:
        return torch.zeros_like(x)
    path = path_of(x)
    if path == "torch":
        return attend_dynamic_backward_torch(csr, x, vector, slope, mask, rows)
    x, vector = as_rows(x), vector.contiguous()
    if path == "triton":
        from fullgnn.kernels.edges._dynamic_backward_gpu import attend_dynamic_backward_gpu

        return attend_dynamic_backward_gpu(csr, transposed, x, vector, slope, mask, rows)
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.kernels.edges._dynamic_backward_cpu import source_gradient_loop, target_gradient_loop
    from fullgnn.kernels.edges._mask_cpu import factor_arguments
    from fullgnn.kernels.edges._rows_cpu import over_rows

    size, grad_x = x.element_size(), x.new_empty(x.shape)
    key = (8 * size, num_heads, depth)
    common = (vector, rows.x_target, x, x.stride(0) * size, number_like(x, slope), rows.table, rows.grad)
    of_targets = (rows.grad_x_target, rows.grad_vector)
    factors = factor_arguments(csr.values, mask, x)
    over_rows(target_gradient_loop(*key), csr.indptr, csr.indices, *common, *of_targets, *factors)
    factors = factor_arguments(transposed.values, mask, x)
    over_rows(source_gradient_loop(*key), transposed.indptr, transposed.targets, *common, grad_x, *factors)
    return grad_x


def _check(csr: LocalCSR, x: Tensor, x_target: Tensor, vector: Tensor, mask: EdgeMask | None) -> None:
    assert len(x) == csr.num_cols and x_target.shape == (csr.num_rows, x.shape[1]), (x.shape, x_target.shape)
    assert vector.numel() == x.shape[1] > 0, (vector.shape, x.shape)
    assert x.dtype == x_target.dtype == vector.dtype, (x.dtype, x_target.dtype, vector.dtype)
    assert csr.values is None or csr.values.dtype == x.dtype, (csr.values.dtype, x.dtype)
    if mask is not None:
        check_heads(len(vector))
        assert len(mask.target_id) == csr.num_rows and len(mask.source_id) == csr.num_cols
