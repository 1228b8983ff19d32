"""The operations of this package as torch operations, for devices and dtypes without compiled code.

They are short rather than fast: temporaries have E x K x D numbers.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.index import Transposed, edge_rows
from fullgnn.kernels.edges.mask import edge_factors
from fullgnn.kernels.edges.max_state import NO_WINNER, MaxState
from fullgnn.kernels.edges.softmax_state import SoftmaxState, by_head
from fullgnn.kernels.spmm.base import LocalCSR


def attend(stage: AttentionStage, of_targets: Tensor, state: SoftmaxState) -> None:
    """See :func:`fullgnn.kernels.edges.attention.attend`."""
    target, source = edge_rows(stage.csr), stage.csr.indices
    _, logits = _logits(stage, of_targets)
    before = state.maximum.clone()
    state.maximum.scatter_reduce_(0, target[:, None].expand_as(logits), logits, "amax")
    factor = torch.where(before == -torch.inf, 0, before - state.maximum).exp_()  # without edges so far, sums are 0
    by_head(state.weighted, factor).mul_(factor[:, :, None])
    base = torch.where(state.maximum == -torch.inf, 0, state.maximum)
    weights = (logits - base[target]).exp_()
    state.total.mul_(factor).index_add_(0, target, weights)
    weights *= _factors(stage)
    state.weighted.index_add_(0, target, (weights[:, :, None] * by_head(stage.x[source], weights)).flatten(1))


def _logits(stage: AttentionStage, of_targets: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of both ends of each edge, (E, K) or in dynamic attention (E, K, D), and the (E, K) logits."""
    target, source = edge_rows(stage.csr), stage.csr.indices
    if not stage.dynamic:
        ends = stage.of_sources[source] + of_targets[target]
        return ends, torch.nn.functional.leaky_relu(ends, stage.slope)
    ends = (stage.x[source] + of_targets[target]).unflatten(1, stage.of_sources.shape)
    return ends, (torch.nn.functional.leaky_relu(ends, stage.slope) * stage.of_sources).sum(2)


def _factors(stage: AttentionStage) -> Tensor | float:
    """(E, K) or (E, 1) factors of the edges, which multiply a softmax."""
    csr = stage.csr
    factors = 1.0 if csr.values is None else csr.values[:, None]
    if stage.mask is None:
        return factors
    return factors * edge_factors(stage.mask, edge_rows(csr), csr.indices, stage.num_heads, stage.x.dtype)


def attend_backward(
    stage: AttentionStage, transposed: Transposed, rows: AttentionRows, outputs: tuple[Tensor, ...]
) -> None:
    """See :func:`fullgnn.kernels.edges.attention.attend_backward`, whose results are written to ``outputs``."""
    target, source, slope = edge_rows(stage.csr), stage.csr.indices, stage.slope
    ends, logits = _logits(stage, rows.of_targets)
    weights = (logits - rows.maximum[target]).exp_() / rows.total[target]
    factors = _factors(stage)
    grad = by_head(rows.grad[target], weights)
    grad_weights = (grad * by_head(stage.x[source], weights)).sum(2) * factors
    grad_logits = weights * (grad_weights - rows.dot[target])
    grad_rows = (weights * factors)[:, :, None] * grad
    if rows.grad_vector is None:
        grad_ends = torch.where(ends > 0, grad_logits, slope * grad_logits)
        grad_edges = [grad_rows.flatten(1), grad_ends]
    else:
        sloped = torch.where(ends > 0, grad_logits[:, :, None], slope * grad_logits[:, :, None])
        rows.grad_vector.index_add_(0, target, (sloped * ends).flatten(1))
        by_column = sloped * stage.of_sources
        grad_ends = by_column.flatten(1)
        grad_edges = [(by_column + grad_rows).flatten(1)]
    rows.grad_of_targets.index_add_(0, target, grad_ends)
    for out, gradients in zip(outputs, grad_edges, strict=True):
        out.zero_().index_add_(0, source, gradients)


def add_weighted(edges: LocalCSR, places: Tensor | None, values: Tensor, x: Tensor, out: Tensor) -> None:
    """See :func:`fullgnn.kernels.edges.weighted._weighted_sum`."""
    values = values if places is None else values[places]
    out.index_add_(0, edge_rows(edges), (values[:, :, None] * by_head(x[edges.indices], values)).flatten(1))


def write_dots(csr: LocalCSR, of_targets: Tensor, of_sources: Tensor, out: Tensor) -> None:
    """See :func:`fullgnn.kernels.edges.weighted.edge_dots`, whose result is written to ``out``."""
    products = of_targets[edge_rows(csr)] * of_sources[csr.indices]
    torch.sum(by_head(products, out), 2, out=out)


def add_messages(csr: LocalCSR, messages: Tensor, out: Tensor) -> None:
    """See :func:`fullgnn.kernels.edges.reduce.add_messages`."""
    out.index_add_(0, edge_rows(csr), messages)


def add_largest(csr: LocalCSR, messages: Tensor, source_id: Tensor, state: MaxState) -> None:
    """See :func:`fullgnn.kernels.edges.reduce.add_largest`."""
    target = edge_rows(csr)[:, None].expand_as(messages)
    before = state.value.clone()
    state.value.scatter_reduce_(0, target, messages, "amax")
    risen = (state.value > before) | (state.value.isnan() & ~before.isnan())
    wins = (messages == state.value.gather(0, target)) | messages.isnan()
    candidate = torch.where(wins, source_id[csr.indices][:, None], NO_WINNER)
    state.winner.masked_fill_(risen, NO_WINNER).scatter_reduce_(0, target, candidate, "amin")


def largest_backward(csr: LocalCSR, source_id: Tensor, winner: Tensor, grad: Tensor, out: Tensor) -> None:
    """See :func:`fullgnn.kernels.edges.reduce.largest_backward`, whose result is written to ``out``."""
    target = edge_rows(csr)
    out.copy_(torch.where(winner[target] == source_id[csr.indices][:, None], grad[target], 0))


def largest_rows(csr: LocalCSR, x: Tensor, source_id: Tensor, state: MaxState) -> None:
    """See :func:`fullgnn.kernels.edges.largest.largest_rows`."""
    messages = x.index_select(0, csr.indices)
    add_largest(csr, messages if csr.values is None else messages * csr.values[:, None], source_id, state)


def largest_rows_backward(
    csr: LocalCSR, transposed: Callable[[], Transposed], source_id: Tensor, winner: Tensor, grad: Tensor
) -> Tensor:
    """See :func:`fullgnn.kernels.edges.largest.largest_rows_backward`."""
    grad_edges = grad.new_empty(csr.nnz, grad.shape[1])
    largest_backward(csr, source_id, winner, grad, grad_edges)
    grad_edges = grad_edges if csr.values is None else grad_edges * csr.values[:, None]
    return grad.new_zeros(csr.num_cols, grad.shape[1]).index_add_(0, csr.indices, grad_edges)
