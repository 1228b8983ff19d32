"""Graph attention over one stage of edges, fused: no tensor has a row for each edge.

The result of target i is, head by head,

    out_i = sum_j c_ij p_ij x_j        p_ij = softmax over j of LeakyReLU(a_source[j] + a_target[i])

(Velickovic et al., "Graph Attention Networks", 2018, equations 3 and 4). The factor c of an edge is its weight in the
graph, 1 in a graph without weights, times the factor of an attention dropout; the softmax reads neither of them.

``attend`` adds one stage to a ``SoftmaxState``, as in flash attention (Dao et al., 2022). ``attend_backward`` computes
p again; with g the gradient of the result,

    grad x_j     = sum_i c p g_i
    grad logit   = p (c <g_i, x_j> - <g_i, out_i>), times the slope where the LeakyReLU has it

Gradients of sources are pulled along the transposed index, so no number of threads changes a bit.
"""

import torch
from torch import Tensor

from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.edges.mask import EdgeMask, check_heads
from fullgnn.kernels.edges.paths import path_of
from fullgnn.kernels.edges.reference import attend_backward_torch, attend_torch
from fullgnn.kernels.edges.softmax_state import SoftmaxState
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.aligned import as_rows


def attend(
    csr: LocalCSR,
    logit_source: Tensor,
    logit_target: Tensor,
    x: Tensor,
    slope: float,
    mask: EdgeMask | None,
    state: SoftmaxState,
) -> None:
    """Add the edges of a stage to ``state``, in place. Shapes are local to the stage: n targets, m sources, K heads.

    Args:
        csr: (n, m); its values, the edge weights, are of the dtype of ``x``.
        logit_source: (m, K), of the dtype of ``x``.
        logit_target: (n, K).
        x: (m, K * D) float32 or float64, any row stride.
        slope: negative slope of the LeakyReLU.
        mask: the attention dropout; None: none. It applies to the softmax, so ``state.total`` does not depend on it.

    Raises:
        ConfigError: a dropout with more than 1,024 heads.
    """
    num_heads = logit_source.shape[1]
    depth = _check(csr, logit_source, x, mask)
    assert logit_target.shape == state.maximum.shape == (csr.num_rows, num_heads), (logit_target.shape, num_heads)
    assert state.weighted.shape == (csr.num_rows, x.shape[1]), state.weighted.shape
    assert logit_target.dtype == state.weighted.dtype == x.dtype, (logit_target.dtype, state.weighted.dtype, x.dtype)
    assert all(part.is_contiguous() for part in (state.maximum, state.total, state.weighted))
    if csr.nnz == 0:
        return
    path = path_of(x)
    if path == "torch":
        attend_torch(csr, logit_source, logit_target, x, slope, mask, state)
        return
    if path == "triton":
        from fullgnn.kernels.edges._attention_gpu import attend_gpu

        attend_gpu(csr, logit_source, logit_target, as_rows(x), slope, mask, state)
        return
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.kernels.edges._attention_cpu import attend_loop
    from fullgnn.kernels.edges._mask_cpu import factor_arguments
    from fullgnn.kernels.edges._rows_cpu import over_rows

    x, logit_source, logit_target = as_rows(x), logit_source.contiguous(), logit_target.contiguous()
    size = x.element_size()
    over_rows(
        attend_loop(8 * size, num_heads, depth),
        csr.indptr,
        csr.indices,
        logit_source,
        logit_target,
        x,
        x.stride(0) * size,
        number_like(x, slope),
        state.maximum,
        state.total,
        state.weighted,
        *factor_arguments(csr.values, mask, x),
    )


def attend_backward(
    csr: LocalCSR,
    transposed: Transposed,
    logit_source: Tensor,
    x: Tensor,
    slope: float,
    mask: EdgeMask | None,
    rows: AttentionRows,
) -> tuple[Tensor, Tensor]:
    """The gradients at the sources of a stage; those of its targets are added to ``rows.grad_logit_target``.

    Args:
        csr, logit_source, x, slope, mask: those of ``attend``.
        transposed: ``transpose(csr)``.
        rows: what the backward pass of all stages reads of the targets.

    Returns:
        (m, K) gradient of ``logit_source`` and (m, K * D) gradient of ``x``.
    """
    num_heads = logit_source.shape[1]
    depth = _check(csr, logit_source, x, mask)
    assert rows.grad.shape == (csr.num_rows, x.shape[1]) and rows.grad.dtype == x.dtype, (rows.grad.shape, x.dtype)
    assert transposed.num_sources == csr.num_cols and len(transposed.targets) == csr.nnz
    assert rows.grad_logit_target.is_contiguous()
    if csr.nnz == 0:
        return torch.zeros_like(logit_source), torch.zeros_like(x)
    path = path_of(x)
    if path == "torch":
        return attend_backward_torch(csr, logit_source, x, slope, mask, rows)
    if path == "triton":
        from fullgnn.kernels.edges._attention_backward_gpu import attend_backward_gpu

        return attend_backward_gpu(csr, transposed, logit_source, as_rows(x), slope, mask, rows)
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.kernels.edges._attention_backward_cpu import source_gradient_loop, target_gradient_loop
    from fullgnn.kernels.edges._mask_cpu import factor_arguments
    from fullgnn.kernels.edges._rows_cpu import over_rows

    x, logit_source, grad = as_rows(x), logit_source.contiguous(), rows.grad.contiguous()
    size = x.element_size()
    key = (8 * size, num_heads, depth)
    common = (logit_source, x, x.stride(0) * size, number_like(x, slope), rows.table, grad)
    factors = factor_arguments(csr.values, mask, x)
    over_rows(target_gradient_loop(*key), csr.indptr, csr.indices, *common, rows.grad_logit_target, *factors)
    outputs = torch.empty_like(logit_source), x.new_empty(x.shape)
    factors = factor_arguments(transposed.values, mask, x)
    over_rows(source_gradient_loop(*key), transposed.indptr, transposed.targets, *common, *outputs, *factors)
    return outputs


def _check(csr: LocalCSR, logit_source: Tensor, x: Tensor, mask: EdgeMask | None) -> int:
    """The columns of a head."""
    num_heads = logit_source.shape[1]
    assert len(x) == len(logit_source) == csr.num_cols, (x.shape, logit_source.shape, csr.num_cols)
    assert num_heads > 0 and x.shape[1] > 0 and x.shape[1] % num_heads == 0, (x.shape, num_heads)
    assert logit_source.dtype == x.dtype, (logit_source.dtype, x.dtype)
    assert csr.values is None or csr.values.dtype == x.dtype, (csr.values.dtype, x.dtype)
    if mask is not None:
        check_heads(num_heads)
        assert len(mask.target_id) == csr.num_rows and len(mask.source_id) == csr.num_cols
    return x.shape[1] // num_heads


def number_like(x: Tensor, number: float) -> object:
    """``number`` as a NumPy number of the dtype of ``x``."""
    return x.new_tensor(number).numpy()[()]
