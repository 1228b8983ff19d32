"""The operations of this package as torch operations, for devices and dtypes without compiled code.

They are short rather than fast: temporaries have E x K x D numbers.
"""

import torch
from torch import Tensor

from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.dynamic_rows import DynamicRows
from fullgnn.kernels.edges.index import edge_targets
from fullgnn.kernels.edges.mask import EdgeMask, edge_factors
from fullgnn.kernels.edges.max_state import NO_WINNER, MaxState
from fullgnn.kernels.edges.softmax_state import SoftmaxState, by_head
from fullgnn.kernels.spmm.base import LocalCSR


def attend_torch(
    csr: LocalCSR,
    logit_source: Tensor,
    logit_target: Tensor,
    x: Tensor,
    slope: float,
    mask: EdgeMask | None,
    state: SoftmaxState,
) -> None:
    """See :func:`fullgnn.kernels.edges.attention.attend`."""
    target, source = edge_targets(csr), csr.indices
    logits = torch.nn.functional.leaky_relu(logit_source[source] + logit_target[target], slope)
    _add_edges(csr, logits, x, mask, state)


def _add_edges(csr: LocalCSR, logits: Tensor, x: Tensor, mask: EdgeMask | None, state: SoftmaxState) -> None:
    """Add edges with the (E, K) ``logits`` to ``state``."""
    target, source = edge_targets(csr), csr.indices
    before = state.maximum.clone()
    state.maximum.scatter_reduce_(0, target[:, None].expand_as(logits), logits, "amax")
    factor = torch.where(before == -torch.inf, 0, before - state.maximum).exp_()  # without edges so far, sums are 0
    by_head(state.weighted, factor).mul_(factor[:, :, None])
    base = torch.where(state.maximum == -torch.inf, 0, state.maximum)
    weights = (logits - base[target]).exp_()
    state.total.mul_(factor).index_add_(0, target, weights)
    weights *= _factors(csr, mask, weights)
    state.weighted.index_add_(0, target, (weights[:, :, None] * by_head(x[source], weights)).flatten(1))


def _factors(csr: LocalCSR, mask: EdgeMask | None, like: Tensor) -> Tensor | float:
    """The factors of the edges, which multiply a softmax ``like``, (E, K)."""
    factors = 1.0 if csr.values is None else csr.values[:, None]
    if mask is None:
        return factors
    return factors * edge_factors(mask, edge_targets(csr), csr.indices, like.shape[1], like.dtype)


def attend_backward_torch(
    csr: LocalCSR,
    logit_source: Tensor,
    x: Tensor,
    slope: float,
    mask: EdgeMask | None,
    rows: AttentionRows,
) -> tuple[Tensor, Tensor]:
    """See :func:`fullgnn.kernels.edges.attention.attend_backward`."""
    target, source = edge_targets(csr), csr.indices
    logits = logit_source[source] + rows.logit_target[target]
    weights = (torch.nn.functional.leaky_relu(logits, slope) - rows.maximum[target]).exp_() / rows.total[target]
    factors = _factors(csr, mask, weights)
    grad = by_head(rows.grad[target], weights)
    grad_weights = (grad * by_head(x[source], weights)).sum(2) * factors
    grad_logits = weights * (grad_weights - rows.dot[target])
    grad_logits = torch.where(logits > 0, grad_logits, slope * grad_logits)
    rows.grad_logit_target.index_add_(0, target, grad_logits)
    grad_x = torch.zeros_like(x).index_add_(0, source, ((weights * factors)[:, :, None] * grad).flatten(1))
    return torch.zeros_like(logit_source).index_add_(0, source, grad_logits), grad_x


def attend_dynamic_torch(
    csr: LocalCSR,
    x: Tensor,
    x_target: Tensor,
    vector: Tensor,
    slope: float,
    mask: EdgeMask | None,
    state: SoftmaxState,
) -> None:
    """See :func:`fullgnn.kernels.edges.dynamic_attention.attend_dynamic`."""
    target, source = edge_targets(csr), csr.indices
    ends = by_head(x[source] + x_target[target], state.maximum)
    logits = (torch.nn.functional.leaky_relu(ends, slope) * vector).sum(2)
    _add_edges(csr, logits, x, mask, state)


def attend_dynamic_backward_torch(
    csr: LocalCSR, x: Tensor, vector: Tensor, slope: float, mask: EdgeMask | None, rows: DynamicRows
) -> Tensor:
    """See :func:`fullgnn.kernels.edges.dynamic_attention.attend_dynamic_backward`."""
    target, source = edge_targets(csr), csr.indices
    ends = by_head(x[source] + rows.x_target[target], rows.total)
    logits = (torch.nn.functional.leaky_relu(ends, slope) * vector).sum(2)
    weights = (logits - rows.maximum[target]).exp_() / rows.total[target]
    factors = _factors(csr, mask, weights)
    grad = by_head(rows.grad[target], weights)
    grad_weights = (grad * by_head(x[source], weights)).sum(2) * factors
    grad_logits = (weights * (grad_weights - rows.dot[target]))[:, :, None]
    sloped = torch.where(ends > 0, grad_logits, slope * grad_logits)
    rows.grad_vector.index_add_(0, target, (sloped * ends).flatten(1))
    grad_ends = sloped * vector
    rows.grad_x_target.index_add_(0, target, grad_ends.flatten(1))
    of_rows = grad_ends + (weights * factors)[:, :, None] * grad
    return torch.zeros_like(x).index_add_(0, source, of_rows.flatten(1))


def weighted_sum_torch(targets: Tensor, sources: Tensor, values: Tensor, x: Tensor, out: Tensor) -> None:
    """Add values[e] x[sources[e]], head by head, to row targets[e] of ``out`` for each edge e."""
    out.index_add_(0, targets, (values[:, :, None] * by_head(x[sources], values)).flatten(1))


def edge_dots_torch(targets: Tensor, sources: Tensor, a: Tensor, b: Tensor, num_heads: int) -> Tensor:
    """(E, K) dot products of row targets[e] of ``a`` and row sources[e] of ``b``, head by head."""
    return (a[targets] * b[sources]).view(len(targets), num_heads, a.shape[1] // max(1, num_heads)).sum(2)


def largest_torch(csr: LocalCSR, messages: Tensor, source_id: Tensor, state: MaxState) -> None:
    """See :func:`fullgnn.kernels.edges.reduce.add_largest`."""
    target = edge_targets(csr)[:, None].expand_as(messages)
    before = state.value.clone()
    state.value.scatter_reduce_(0, target, messages, "amax")
    risen = (state.value > before) | (state.value.isnan() & ~before.isnan())
    wins = (messages == state.value.gather(0, target)) | messages.isnan()
    candidate = torch.where(wins, source_id[csr.indices][:, None], NO_WINNER)
    state.winner.masked_fill_(risen, NO_WINNER).scatter_reduce_(0, target, candidate, "amin")


def largest_backward_torch(csr: LocalCSR, source_id: Tensor, winner: Tensor, grad: Tensor) -> Tensor:
    """See :func:`fullgnn.kernels.edges.reduce.largest_backward`."""
    target = edge_targets(csr)
    return torch.where(winner[target] == source_id[csr.indices][:, None], grad[target], 0)


def largest_rows_backward_torch(csr: LocalCSR, source_id: Tensor, winner: Tensor, grad: Tensor) -> Tensor:
    """See :func:`fullgnn.kernels.edges.largest.largest_rows_backward`."""
    of_edges = largest_backward_torch(csr, source_id, winner, grad)
    of_edges = of_edges if csr.values is None else of_edges * csr.values[:, None]
    return grad.new_zeros(csr.num_cols, grad.shape[1]).index_add_(0, csr.indices, of_edges)
