"""Helpers that test_dynamic_attention.py shares with other test modules."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fullgnn.kernels.edges.attention import attend, attend_backward
from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.index import transpose
from fullgnn.kernels.edges.softmax_state import SoftmaxState, by_head
from tests.kernels.edges.attention import (
    CPU,
    SLOPE,
    MakeMask,
    joined,
    stages_of,
)
from tests.kernels.edges.blocks import amid_nans, local_csr


@dataclass
class Inputs:
    """The inputs of a dynamic attention, with a gradient of its result."""

    mask: Tensor
    x: Tensor
    x_target: Tensor
    vector: Tensor
    grad: Tensor
    weights: Tensor | None  # (n, m) of the edges

    @classmethod
    def random(cls, mask: Tensor, num_heads: int, depth: int, spread: float = 1.0, weighted: bool = False) -> "Inputs":
        """Float64 inputs that float32 holds as well; ``spread`` multiplies the logits."""
        generator = torch.Generator().manual_seed(3)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).double()

        (n, m), width = mask.shape, num_heads * depth
        vector = spread * normal(num_heads, depth)
        return cls(
            mask, normal(m, width), normal(n, width), vector, normal(n, width), normal(n, m) if weighted else None
        )


def dense(inputs: Inputs, factors: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
    """The result, and the gradients of the rows of sources and of targets and of the vector, by autograd."""
    leaves = [one.clone().requires_grad_() for one in (inputs.x, inputs.x_target, inputs.vector)]
    x, x_target, vector = leaves
    x, x_target = x.unflatten(1, vector.shape), x_target.unflatten(1, vector.shape)
    ends = x[None] + x_target[:, None]
    logits = (torch.where(ends > 0, ends, SLOPE * ends) * vector).sum(3)
    logits = torch.where(inputs.mask[:, :, None], logits, -torch.inf)
    busy = inputs.mask.any(1)[:, None, None]  # the softmax of a target without edges is nan
    softmax = torch.where(busy, logits, 0).softmax(1) * inputs.mask[:, :, None]
    softmax = softmax if factors is None else softmax * factors
    softmax = softmax if inputs.weights is None else softmax * inputs.weights[:, :, None]
    out = torch.einsum("nmk,mkd->nkd", softmax, x).flatten(1)
    out.backward(inputs.grad)
    return out.detach(), [leaf.grad for leaf in leaves if leaf.grad is not None]


def computed(
    inputs: Inputs, dtype: torch.dtype, cut: int | None = None, merged: bool = False,
    make_mask: MakeMask | None = None, device: torch.device = CPU, in_lines: bool = False,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """The result and the gradients of the package, in one stage, or in two that begin with source ``cut``.

    Args:
        merged: two parties compute a stage each and merge their states, instead of one after the other.
        in_lines: see ``amid_nans``.
    """
    (n, m), (num_heads, depth) = inputs.mask.shape, inputs.vector.shape
    x, x_target, vector, grad = (
        one.to(device, dtype) for one in (inputs.x, inputs.x_target, inputs.vector, inputs.grad)
    )
    width, states, stages = num_heads * depth, [], []
    for part in stages_of(m, cut):
        weights = None if inputs.weights is None else inputs.weights[:, part].to(device, dtype)
        csr = local_csr(inputs.mask[:, part].to(device), weights)
        mask = None if make_mask is None else make_mask(torch.arange(n).to(device), torch.arange(m)[part].to(device))
        stages.append(AttentionStage(csr, vector, amid_nans(x[part], in_lines), SLOPE, mask, dynamic=True))
        if merged or not states:
            states.append(SoftmaxState.empty(n, num_heads, width, x))
        attend(stages[-1], x_target, states[-1])
    state = joined(states)
    out = state.finish()
    dot = (by_head(grad, state.total) * by_head(out, state.total)).sum(2)
    sums = (torch.zeros_like(x_target), torch.zeros_like(x_target))
    rows = AttentionRows(x_target, state.maximum, state.total, grad, dot, *sums)
    found = [gradient for stage in stages for gradient in attend_backward(stage, transpose(stage.csr), rows)]
    of_x = torch.cat(found if cut is None else found[::-1])
    return out.cpu(), [of_x.cpu(), rows.grad_of_targets.cpu(), rows.vector_gradient().cpu()]
