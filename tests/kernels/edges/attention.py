"""Helpers that test_attention.py shares with other test modules."""

from collections.abc import Callable

import torch
from torch import Tensor

from fullgnn.kernels.edges.attention import attend, attend_backward
from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.index import transpose
from fullgnn.kernels.edges.mask import EdgeMask
from fullgnn.kernels.edges.softmax_state import SoftmaxState, by_head
from tests.kernels.edges.blocks import (
    Attention,
    amid_nans,
    dropout_factors,
    local_csr,
)

SLOPE = 0.2
CPU = torch.device("cpu")
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


FLOAT32, FLOAT64 = torch.float32, torch.float64


MakeMask = Callable[[Tensor, Tensor], EdgeMask]


def stages_of(num_sources: int, cut: int | None) -> list[slice]:
    return [slice(0, num_sources)] if cut is None else [slice(cut, num_sources), slice(0, cut)]


def joined(states: list[SoftmaxState]) -> SoftmaxState:
    """The state of the union of disjoint sets of edges."""
    maximum = torch.stack([one.maximum for one in states]).amax(0)
    parts = [one.rebased(maximum) for one in states]
    return SoftmaxState(maximum, sum(one.total for one in parts), sum(one.weighted for one in parts))


def computed(
    inputs: Attention, dtype: torch.dtype, cut: int | None = None, merged: bool = False,
    make_mask: MakeMask | None = None, device: torch.device = CPU, in_lines: bool = False,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """The result and the gradients of the package, in one stage, or in two that begin with source ``cut``.

    Args:
        merged: two parties compute a stage each and merge their states, instead of one after the other.
        in_lines: see ``amid_nans``.
    """
    n, m = inputs.mask.shape
    num_heads, width = inputs.logit_source.shape[1], inputs.x.shape[1]
    source, target, x, grad = (
        one.to(device, dtype) for one in (inputs.logit_source, inputs.logit_target, inputs.x, inputs.grad)
    )
    states, stages = [], []
    for part in stages_of(m, cut):
        weights = None if inputs.weights is None else inputs.weights[:, part].to(device, dtype)
        csr = local_csr(inputs.mask[:, part].to(device), weights)
        mask = None if make_mask is None else make_mask(torch.arange(n).to(device), torch.arange(m)[part].to(device))
        stages.append(AttentionStage(csr, source[part], amid_nans(x[part], in_lines), SLOPE, mask))
        if merged or not states:
            states.append(SoftmaxState.empty(n, num_heads, width, x))
        attend(stages[-1], target, states[-1])
    state = joined(states)
    out = state.finish()
    dot = (by_head(grad, state.total) * by_head(out, state.total)).sum(2)
    rows = AttentionRows(target, state.maximum, state.total, grad, dot, torch.zeros_like(target))
    found = [attend_backward(stage, transpose(stage.csr), rows) for stage in stages]
    if cut is not None:
        found.reverse()
    of_x, of_source = (torch.cat([gradients[k] for gradients in found]) for k in (0, 1))
    return out.cpu(), [of_source.cpu(), rows.grad_of_targets.cpu(), of_x.cpu()]


def check(found: tuple[Tensor, list[Tensor]], expected: tuple[Tensor, list[Tensor]], dtype: torch.dtype) -> None:
    assert found[0].dtype == dtype
    for one, exact in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        scale = max(1.0, float(exact.abs().max())) if exact.numel() else 1.0
        torch.testing.assert_close(one.double(), exact, rtol=0, atol=TOLERANCE[dtype] * scale)


CUTS = {"compiled": ((None, False), (50, False), (77, True)), "torch": ((None, False), (77, True))}
CUTS["triton"] = ((15, False), (20, True))


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


def expected_factors(n: int, m: int, num_heads: int, p: float, seed: int, epoch: int, layer: int) -> Tensor:
    """(n, m, K) factors of ``dropout``."""
    return dropout_factors(ids_of(torch.arange(n)), ids_of(torch.arange(m)), num_heads, p, seed, epoch, layer)
