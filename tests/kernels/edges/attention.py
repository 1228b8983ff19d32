"""Attention as the package computes it, in stages, and dense attention in float64, written independently."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fullgnn.kernels.edges.attention import attend, attend_backward
from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.index import transpose
from fullgnn.kernels.edges.mask import EdgeMask
from fullgnn.kernels.edges.softmax_state import SoftmaxState, by_head
from tests.kernels.edges.blocks import amid_nans, dropout_factors, local_csr

SLOPE = 0.2
CPU = torch.device("cpu")
FLOAT32, FLOAT64 = torch.float32, torch.float64
TOLERANCE = {FLOAT32: 2e-5, FLOAT64: 1e-12}
CUTS = {"compiled": ((None, False), (50, False), (77, True)), "torch": ((None, False), (77, True))}
CUTS["triton"] = ((15, False), (20, True))
"""The stages of a path: the source with which the first one begins, and whether two parties merge their states."""

KINDS = pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
"""A test of both attentions."""

MakeMask = Callable[[Tensor, Tensor], EdgeMask]
Result = tuple[Tensor, list[Tensor]]
"""The result, and the gradients of what the sources (or the vector) and the targets bring to the score, and of x."""


@dataclass
class Attention:
    """The inputs of an attention, with a gradient of its result."""

    mask: Tensor
    of_sources: Tensor  # (m, K) logits; in dynamic attention the (K, D) vector
    of_targets: Tensor  # (n, K) logits; in dynamic attention (n, K * D) rows
    x: Tensor
    grad: Tensor
    weights: Tensor | None  # (n, m) of the edges
    dynamic: bool

    @classmethod
    def random(
        cls,
        mask: Tensor,
        num_heads: int,
        depth: int,
        spread: float = 1.0,
        weighted: bool = False,
        dynamic: bool = False,
    ) -> "Attention":
        """Float64 inputs that float32 holds as well; ``spread`` multiplies the logits."""
        generator = torch.Generator().manual_seed(3)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).double()

        (n, m), width = mask.shape, num_heads * depth
        of_sources = (spread * normal(*(num_heads, depth) if dynamic else (m, num_heads))).float().double()
        of_targets = normal(n, width) if dynamic else (spread * normal(n, num_heads)).float().double()
        weights = normal(n, m) if weighted else None
        return cls(mask, of_sources, of_targets, normal(m, width), normal(n, width), weights, dynamic)


def dense_attention(inputs: Attention, factors: Tensor | None = None, slope: float = SLOPE) -> Result:
    """The attention and its gradients, by autograd.

    Args:
        factors: (n, m, K) factors of the softmax; None: all 1.
    """
    of_sources, of_targets, x = leaves = [
        leaf.clone().requires_grad_() for leaf in (inputs.of_sources, inputs.of_targets, inputs.x)
    ]
    num_heads = of_sources.shape[0 if inputs.dynamic else 1]
    x = x.view(len(x), num_heads, inputs.x.shape[1] // num_heads)
    if inputs.dynamic:
        ends = x[None] + of_targets.unflatten(1, of_sources.shape)[:, None]
        logits = (torch.where(ends > 0, ends, slope * ends) * of_sources).sum(3)
    else:
        ends = of_sources[None] + of_targets[:, None]
        logits = torch.where(ends > 0, ends, slope * ends)
    logits = torch.where(inputs.mask[:, :, None], logits, -torch.inf)
    busy = inputs.mask.any(1)[:, None, None]  # the softmax of a target without edges is nan
    softmax = torch.where(busy, logits, 0).softmax(1) * inputs.mask[:, :, None]
    softmax = softmax if factors is None else softmax * factors
    softmax = softmax if inputs.weights is None else softmax * inputs.weights[:, :, None]
    out = torch.einsum("nmk,mkd->nkd", softmax, x).flatten(1)
    out.backward(inputs.grad)
    return out.detach(), [leaf.grad for leaf in leaves if leaf.grad is not None]


def joined(states: list[SoftmaxState]) -> SoftmaxState:
    """The state of the union of disjoint sets of edges."""
    maximum = torch.stack([state.maximum for state in states]).amax(0)
    parts = [state.rebased(maximum) for state in states]
    return SoftmaxState(maximum, sum(part.total for part in parts), sum(part.weighted for part in parts))


def computed(
    inputs: Attention, dtype: torch.dtype, cut: int | None = None, merged: bool = False,
    make_mask: MakeMask | None = None, device: torch.device = CPU, in_lines: bool = False,
) -> Result:  # fmt: skip
    """The result and the gradients of the package, in one stage, or in two that begin with source ``cut``.

    Args:
        merged: two parties compute a stage each and merge their states, instead of one after the other.
        in_lines: see ``amid_nans``.
    """
    (n, m), dynamic = inputs.mask.shape, inputs.dynamic
    of_sources, of_targets, x, grad = (
        tensor.to(device, dtype) for tensor in (inputs.of_sources, inputs.of_targets, inputs.x, inputs.grad)
    )
    states, stages = [], []
    for part in [slice(0, m)] if cut is None else [slice(cut, m), slice(0, cut)]:
        weights = None if inputs.weights is None else inputs.weights[:, part].to(device, dtype)
        csr = local_csr(inputs.mask[:, part].to(device), weights)
        mask = None if make_mask is None else make_mask(torch.arange(n).to(device), torch.arange(m)[part].to(device))
        score = of_sources if dynamic else of_sources[part]
        stages.append(AttentionStage(csr, score, amid_nans(x[part], in_lines), SLOPE, mask, dynamic))
        if merged or not states:
            states.append(SoftmaxState.empty(n, stages[-1].num_heads, x.shape[1], x))
        attend(stages[-1], of_targets, states[-1])
    state = joined(states)
    out = state.finish()
    dot = (by_head(grad, state.total) * by_head(out, state.total)).sum(2)
    sums = [torch.zeros_like(of_targets) for _ in range(2 if dynamic else 1)]
    rows = AttentionRows(of_targets, state.maximum, state.total, grad, dot, *sums)
    gradients = [attend_backward(stage, transpose(stage.csr), rows) for stage in stages]
    if cut is not None:
        gradients.reverse()
    grad_x, *grad_logits = (torch.cat(parts) for parts in zip(*gradients, strict=True))
    grad_sources = rows.vector_gradient() if dynamic else grad_logits[0]
    return out.cpu(), [grad_sources.cpu(), rows.grad_of_targets.cpu(), grad_x.cpu()]


def check(result: Result, expected: Result, dtype: torch.dtype) -> None:
    assert result[0].dtype == dtype
    for tensor, exact in zip((result[0], *result[1]), (expected[0], *expected[1]), strict=True):
        scale = max(1.0, float(exact.abs().max())) if exact.numel() else 1.0
        torch.testing.assert_close(tensor.double(), exact, rtol=0, atol=TOLERANCE[dtype] * scale)


IDS = torch.tensor([0, 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**40 - 1, 2**39 + 12345])


def ids_of(nodes: Tensor) -> Tensor:
    """Distinct ids, some beyond 32 bits."""
    return torch.where(nodes < len(IDS), IDS[nodes.clamp(max=len(IDS) - 1)], 7 * nodes + 2**33)


def dropout(p: float = 0.4, seed: int = 2**40 + 17, epoch: int = 3, layer: int = 1) -> MakeMask:
    def make(targets: Tensor, sources: Tensor) -> EdgeMask:
        epochs = torch.tensor(epoch, device=targets.device)
        ids = (ids_of(nodes.cpu()).to(targets.device) for nodes in (targets, sources))
        return EdgeMask(*ids, p, seed, epochs, layer)

    return make


def expected_factors(
    mask: Tensor, num_heads: int, p: float = 0.4, seed: int = 2**40 + 17, epoch: int = 3, layer: int = 1
) -> Tensor:
    """(n, m, K) factors of ``dropout``."""
    targets, sources = (ids_of(torch.arange(count)) for count in mask.shape)
    return dropout_factors(targets, sources, num_heads, p, seed, epoch, layer)
