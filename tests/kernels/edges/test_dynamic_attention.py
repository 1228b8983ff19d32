"""Dynamic attention over stages of edges against dense attention in float64."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fullgnn.kernels.edges import _rows_cpu, paths
from fullgnn.kernels.edges.attention import attend, attend_backward
from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.index import transpose
from fullgnn.kernels.edges.softmax_state import SoftmaxState, by_head
from tests.kernels.edges.blocks import amid_nans, block_for, device_of, local_csr, pattern
from tests.kernels.edges.test_attention import (
    CPU,
    CUTS,
    FLOAT32,
    FLOAT64,
    SLOPE,
    MakeMask,
    check,
    dropout,
    expected_factors,
    joined,
    stages_of,
)
from tests.triton_device import needs_triton

CASES = [(8, 8, FLOAT32), (1, 41, FLOAT32), (2, 16, FLOAT64)]
"""Heads within a vector, of no whole vectors, and of whole ones in one slice."""


@pytest.fixture(params=["compiled", "torch", pytest.param("triton", marks=needs_triton)])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The implementation under test: compiled loops in several chunks of rows, torch operations, or Triton."""
    monkeypatch.setattr(_rows_cpu, "MIN_SHARED_EDGES", 1)
    torch.set_num_threads(2)
    if request.param == "torch":
        monkeypatch.setattr(paths, "path_of", lambda x: "torch")
    if request.param == "triton":
        request.getfixturevalue("triton_on_cpu")
    return request.param


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


@pytest.mark.sample(5)
@pytest.mark.parametrize(("num_heads", "depth", "dtype"), [*CASES, (8, 7, FLOAT64), (3, 1, FLOAT32)])
def test_against_dense_attention(num_heads: int, depth: int, dtype: torch.dtype, path: str) -> None:
    """The heavy target has more edges than a tile; two stages, and two parties that merge, equal one block."""
    for number, (cut, merged) in enumerate(CUTS[path]):
        inputs = Inputs.random(block_for(path), num_heads, depth, weighted=number % 2 == 1)
        check(computed(inputs, dtype, cut, merged, device=device_of(path)), dense(inputs), dtype)


@pytest.mark.parametrize(("n", "m"), [(0, 5), (5, 0), (0, 0), (1, 1), (4, 3)])
def test_empty_blocks(n: int, m: int, path: str) -> None:
    for mask in (torch.zeros(n, m, dtype=torch.bool), torch.ones(n, m, dtype=torch.bool)):
        inputs = Inputs.random(mask, 8, 8)
        nothing = [torch.zeros_like(one) for one in (inputs.x_target, inputs.x, inputs.x_target, inputs.vector)]
        expected = dense(inputs) if m else (nothing[0], nothing[1:])
        check(computed(inputs, FLOAT32, device=device_of(path)), expected, FLOAT32)
        check(computed(inputs, FLOAT32, cut=m // 2, merged=True, device=device_of(path)), expected, FLOAT32)


@pytest.mark.sample(4)
@pytest.mark.parametrize("spread", [80.0, 1e30])
def test_logits_far_apart(spread: float, path: str) -> None:
    inputs = Inputs.random(block_for(path), 8, 8, spread)
    for dtype in (FLOAT64, FLOAT32):
        for cut, merged in CUTS[path][:1] if dtype == FLOAT64 else CUTS[path]:
            out, gradients = computed(inputs, dtype, cut, merged, device=device_of(path))
            assert out.isfinite().all() and all(gradient.isfinite().all() for gradient in gradients)
            assert (out[~inputs.mask.any(1)] == 0).all()
            if dtype == FLOAT64 and spread < 1e4:  # the rounding of such a logit is seen in its weight
                exact, exact_gradients = dense(inputs)
                for one, expected in zip((out, *gradients), (exact, *exact_gradients), strict=True):
                    torch.testing.assert_close(one, expected, rtol=0, atol=1e-10 * float(expected.abs().max()))


def test_a_nan_shows(path: str) -> None:
    inputs = Inputs.random(block_for(path), 8, 8)
    inputs.x[5, 3 * 8 + 1] = torch.nan
    out, _ = computed(inputs, FLOAT32, device=device_of(path))
    reached = inputs.mask[:, 5]
    assert out.view(-1, 8, 8)[reached, 3].isnan().all() and out[~reached].isfinite().all()


@pytest.mark.parametrize("masked", [False, True])
def test_threads_change_no_bit(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rows_cpu, "MIN_SHARED_EDGES", 1)
    inputs = Inputs.random(pattern(2000, 150), 8, 8, weighted=masked)
    results = []
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        out, gradients = computed(inputs, FLOAT32, cut=70, make_mask=dropout() if masked else None)
        results.append([out, *gradients])
    assert all(torch.equal(a, b) for a, b in zip(*results))


@pytest.mark.sample(4)
@pytest.mark.parametrize(("num_heads", "depth", "dtype"), CASES)
def test_dropout(num_heads: int, depth: int, dtype: torch.dtype, path: str) -> None:
    """The gradients belong to the same mask as the result, and the mask does not depend on the stages."""
    inputs = Inputs.random(block_for(path), num_heads, depth, weighted=num_heads < 8)
    expected = dense(inputs, expected_factors(*inputs.mask.shape, num_heads, 0.4, 2**40 + 17, 3, 1))
    for cut, merged in CUTS[path][1:]:
        check(computed(inputs, dtype, cut, merged, dropout(), device_of(path)), expected, dtype)
