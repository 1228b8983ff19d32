"""Dynamic attention over stages of edges against dense attention in float64."""

import pytest
import torch

from fullgnn.kernels.edges import _rows_cpu
from tests.kernels.edges.attention import (
    CUTS,
    FLOAT32,
    FLOAT64,
    check,
    dropout,
    expected_factors,
)
from tests.kernels.edges.blocks import block_for, device_of, pattern
from tests.kernels.edges.dynamic_attention import Inputs, computed, dense

CASES = [(8, 8, FLOAT32), (1, 41, FLOAT32), (2, 16, FLOAT64)]
"""Heads within a vector, of no whole vectors, and of whole ones in one slice."""


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
