"""Attention over stages of edges, static and dynamic, against dense attention in float64."""

import subprocess
import sys

import pytest
import torch

from fullgnn.errors import ConfigError
from fullgnn.kernels.edges import _rows_cpu
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.index import transpose, transpose_torch
from fullgnn.kernels.edges.mask import EdgeMask
from fullgnn.kernels.edges.softmax_state import SoftmaxState
from tests.kernels.edges.attention import (
    CUTS,
    FLOAT32,
    FLOAT64,
    KINDS,
    SLOPE,
    Attention,
    check,
    computed,
    dense_attention,
    dropout,
    expected_factors,
    joined,
)
from tests.kernels.edges.blocks import block_for, device_of, local_csr, pattern

DTYPES = FLOAT32, FLOAT64
HEADS = [(False, k, d, DTYPES[(i + j) % 2]) for i, k in enumerate((1, 8)) for j, d in enumerate((1, 7, 8, 41))]
HEADS += [(False, 3, 1, FLOAT32), (True, 8, 8, FLOAT32), (True, 1, 41, FLOAT32), (True, 2, 16, FLOAT64)]
HEADS += [(True, 8, 7, FLOAT64), (True, 3, 1, FLOAT32)]
"""Heads within a vector, of no whole vectors, and of whole ones in one slice. Each pair of choices meets."""


@pytest.mark.sample(12)
@pytest.mark.parametrize(("dynamic", "num_heads", "depth", "dtype"), HEADS)
def test_against_dense_attention(dynamic: bool, num_heads: int, depth: int, dtype: torch.dtype, path: str) -> None:
    """The heavy target has more edges than a tile; two stages, and two parties that merge, equal one block."""
    for number, (cut, merged) in enumerate(CUTS[path]):
        inputs = Attention.random(block_for(path), num_heads, depth, weighted=number % 2 == 1, dynamic=dynamic)
        check(computed(inputs, dtype, cut, merged, device=device_of(path)), dense_attention(inputs), dtype)


@pytest.mark.sample(3)
@KINDS
@pytest.mark.parametrize(("n", "m"), [(0, 5), (5, 0), (0, 0), (1, 1), (4, 3)])
def test_empty_blocks(n: int, m: int, dynamic: bool, path: str) -> None:
    for mask in (torch.zeros(n, m, dtype=torch.bool), torch.ones(n, m, dtype=torch.bool)):
        inputs = Attention.random(mask, 8, 8, dynamic=dynamic)
        zeros = [torch.zeros_like(tensor) for tensor in (inputs.of_sources, inputs.of_targets, inputs.x)]
        expected = dense_attention(inputs) if m else (torch.zeros(n, 64).double(), zeros)
        check(computed(inputs, FLOAT32, device=device_of(path)), expected, FLOAT32)
        check(computed(inputs, FLOAT32, cut=m // 2, merged=True, device=device_of(path)), expected, FLOAT32)


@pytest.mark.sample(3)
@pytest.mark.parametrize("spread", [80.0, 1e4, 1e30])
def test_logits_far_apart(spread: float, path: str) -> None:
    inputs = Attention.random(block_for(path), 8, 8, spread)
    inputs.of_targets.zero_()  # so that float32 does not round the sums of two logits
    expected = dense_attention(inputs, slope=torch.tensor(SLOPE).double().item())
    for cut, merged in CUTS[path]:
        out, gradients = computed(inputs, FLOAT32, cut, merged, device=device_of(path))
        assert out.isfinite().all() and all(gradient.isfinite().all() for gradient in gradients)
        if spread < 1e4:  # beyond, the product of slope and logit is rounded by more than a weight tolerates
            check((out, gradients), expected, FLOAT32)
        busy = inputs.mask.any(1)
        assert (out[~busy] == 0).all()
    if spread == 1e30:  # the largest logit takes all the weight
        best = torch.where(inputs.mask[:, :, None], inputs.of_sources[None], -torch.inf).argmax(1)
        rows = inputs.x.view(len(inputs.x), 8, 8)[best, torch.arange(8)].flatten(1)
        torch.testing.assert_close(out[busy].double(), rows[busy], rtol=1e-6, atol=1e-6)


@pytest.mark.sample(8)
@pytest.mark.parametrize("spread", [80.0, 1e30])
def test_dynamic_logits_far_apart(spread: float, path: str) -> None:
    inputs = Attention.random(block_for(path), 8, 8, spread, dynamic=True)
    for dtype in (FLOAT64, FLOAT32):
        for cut, merged in CUTS[path][:1] if dtype == FLOAT64 else CUTS[path]:
            out, gradients = computed(inputs, dtype, cut, merged, device=device_of(path))
            assert out.isfinite().all() and all(gradient.isfinite().all() for gradient in gradients)
            assert (out[~inputs.mask.any(1)] == 0).all()
            if dtype == FLOAT64 and spread < 1e4:  # the rounding of such a logit is seen in its weight
                exact, exact_gradients = dense_attention(inputs)
                for tensor, expected in zip((out, *gradients), (exact, *exact_gradients), strict=True):
                    torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-10 * float(expected.abs().max()))


@KINDS
def test_a_nan_shows(dynamic: bool, path: str) -> None:
    inputs = Attention.random(block_for(path), 8, 8, dynamic=dynamic)
    if dynamic:
        inputs.x[5, 3 * 8 + 1] = torch.nan
    else:
        inputs.of_sources[5, 3] = torch.nan
    out, _ = computed(inputs, FLOAT32, device=device_of(path))
    reached = inputs.mask[:, 5]
    assert out.view(-1, 8, 8)[reached, 3].isnan().all() and out[~reached].isfinite().all()


@KINDS
@pytest.mark.parametrize("masked", [False, True])
def test_threads_change_no_bit(masked: bool, dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rows_cpu, "MIN_SHARED_EDGES", 1)
    inputs = Attention.random(pattern(2000 if dynamic else 200, 150), 8, 8, weighted=masked, dynamic=dynamic)
    results = []
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        out, gradients = computed(inputs, FLOAT32, cut=70, make_mask=dropout() if masked else None)
        results.append([out, *gradients])
    assert all(torch.equal(a, b) for a, b in zip(*results))


@pytest.mark.sample(16)
@pytest.mark.parametrize(
    ("dynamic", "num_heads", "depth", "dtype"),
    [(False, 8, 8, FLOAT32), (False, 1, 41, FLOAT32), (False, 3, 1, FLOAT64),
     (True, 8, 8, FLOAT32), (True, 1, 41, FLOAT32), (True, 2, 16, FLOAT64)],
)  # fmt: skip
def test_dropout(dynamic: bool, num_heads: int, depth: int, dtype: torch.dtype, path: str) -> None:
    """The gradients belong to the same mask as the result, and the mask does not depend on the stages."""
    mask = block_for(path)
    for p, seed, epoch, layer in ((0.4, 2**40 + 17, 3, 1), (0.9, 2**64 - 1, 2**32 - 1, 255)):
        factors = expected_factors(mask, num_heads, p, seed, epoch, layer)
        kept = (factors[mask] > 0).double().mean().item()
        assert abs(kept - (1 - p)) < 5 * (p * (1 - p) / factors[mask].numel()) ** 0.5
        inputs = Attention.random(mask, num_heads, depth, weighted=p == 0.9, dynamic=dynamic)
        expected = dense_attention(inputs, factors)
        for cut, merged in CUTS[path] if p == 0.4 else CUTS[path][:1]:
            make_mask = dropout(p, seed, epoch, layer)
            check(computed(inputs, dtype, cut, merged, make_mask, device_of(path)), expected, dtype)


def test_refuses_what_the_counter_does_not_hold() -> None:
    ids = torch.arange(3)
    for p, layer in ((1.0, 0), (-0.1, 0), (0.5, 256), (0.5, -1)):
        with pytest.raises(ConfigError, match="Attention dropout"):
            EdgeMask(ids, ids, p, 0, torch.tensor(0), layer)
    csr, x = local_csr(torch.ones(3, 3, dtype=torch.bool)), torch.zeros(3, 1025)
    with pytest.raises(ConfigError, match="1024 heads"):
        mask = EdgeMask(ids, ids, 0.5, 0, torch.tensor(0), 0)
        AttentionStage(csr, x, x, SLOPE, mask)


def test_the_transposed_index() -> None:
    mask, weights = pattern(31, 150), torch.rand(31, 150, generator=torch.Generator().manual_seed(0))
    source, target = mask.T.nonzero().T
    places = torch.full(mask.shape, -1)
    places[mask] = torch.arange(int(mask.sum()))
    for index in (transpose(local_csr(mask, weights)), transpose_torch(local_csr(mask, weights))):
        assert torch.equal(index.indices.long(), target) and torch.equal(index.indptr.diff().long(), mask.sum(0))
        assert torch.equal(index.places.long(), places[target, source])
        assert index.values is not None and torch.equal(index.values, weights[target, source])
        assert {tensor.dtype for tensor in (index.indptr, index.indices, index.places)} == {torch.int32}


def test_a_third_party_without_edges_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = [
        SoftmaxState(
            40 * torch.randn(5, 3, generator=generator), torch.rand(5, 3, generator=generator) + 1, torch.rand(5, 6)
        )
        for _ in range(2)
    ]
    empty = SoftmaxState.empty(5, 3, 6, parts[0].weighted)
    merged = []
    for states in (parts, [empty, *parts], [parts[0], empty, parts[1], empty]):
        merged.append(joined(states))
    for state in merged[1:]:
        assert torch.equal(state.maximum, merged[0].maximum) and torch.equal(state.finish(), merged[0].finish())
    nothing = joined([empty, empty])
    assert torch.equal(nothing.maximum, empty.maximum) and torch.equal(nothing.finish(), torch.zeros(5, 6))


@pytest.mark.sample(3)
def test_compilers_come_late() -> None:
    """In a fresh process, importing the package imports neither numba nor Triton."""
    script = """
import sys
import fullgnn.kernels.edges.attention, fullgnn.kernels.edges.largest
import fullgnn.kernels.edges.reduce, fullgnn.kernels.edges.weighted
assert not {"numba", "triton"} & {*sys.modules}
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
