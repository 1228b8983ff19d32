"""Scores of pairs in Triton, and their gradients, against float64."""

import pytest
import torch
from torch import Tensor

from fullgnn.kernels.pairs import scores
from fullgnn.kernels.pairs.scores import pair_scores
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.aligned import empty_aligned, with_padding
from tests.triton_device import DEVICE, needs_triton

pytestmark = needs_triton

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-14}
"""The largest error of an element, over the sum of the magnitudes of its addends."""


@pytest.fixture(autouse=True)
def called(triton_on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The widths of the calls that the kernel gets; every test runs on a CPU where there is no GPU."""
    from fullgnn.kernels.pairs import _scores_gpu

    widths: list[int] = []
    path = _scores_gpu.scores_gpu

    def recorded(left: Tensor, *rest: Tensor) -> Tensor:
        widths.append(left.shape[1])
        return path(left, *rest)

    monkeypatch.setattr(_scores_gpu, "scores_gpu", recorded)
    return widths


def rows(num_rows: int, width: int, dtype: torch.dtype, padded: bool, seed: int) -> Tensor:
    """Random rows; if ``padded``, each begins at a line, and NaNs follow it."""
    drawn = torch.randn(num_rows, width, dtype=dtype, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
    if not padded:
        return drawn
    lines = empty_aligned(num_rows, width, like=drawn)
    with_padding(lines).fill_(torch.nan)
    return lines.copy_(drawn)


def check(computed: Tensor, exact: Tensor, magnitude: Tensor, dtype: torch.dtype) -> None:
    assert computed.dtype == dtype
    assert ((computed.detach().double() - exact).abs() <= TOLERANCE[dtype] * magnitude.abs()).all()


@pytest.mark.parametrize("width", [1, 5, 41, 64, 100, 130, 3000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("padded", [False, True])
def test_scores_and_gradients(width: int, dtype: torch.dtype, padded: bool, called: list[int]) -> None:
    generator = torch.Generator().manual_seed(0)
    num_pairs = 150 if width < 3000 else 7
    for shared in (False, True):
        left = rows(20, width, dtype, padded, seed=1).requires_grad_()
        right = None if shared else rows(30, width, dtype, padded, seed=2).requires_grad_()
        leaves = [left] if right is None else [left, right]
        i, j = (torch.randint(len(side), (num_pairs,), generator=generator).to(DEVICE) for side in (left, leaves[-1]))
        weight = torch.randn(num_pairs, dtype=dtype, generator=generator).to(DEVICE)
        computed = pair_scores(left, i, right, j)
        gradients = torch.autograd.grad((computed * weight).sum(), leaves)

        wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
        terms = wide[0][i] * wide[-1][j]
        check(computed, terms.detach().sum(1), terms.detach().abs().sum(1), dtype)
        exact = torch.autograd.grad((terms.sum(1) * weight.double()).sum(), wide)
        sizes = [leaf.detach().abs().requires_grad_() for leaf in wide]
        magnitudes = torch.autograd.grad(((sizes[0][i] * sizes[-1][j]).sum(1) * weight.double().abs()).sum(), sizes)
        for gradient, exact_gradient, magnitude in zip(gradients, exact, magnitudes, strict=True):
            check(gradient, exact_gradient, magnitude, dtype)
    assert called == [width, width]


@pytest.mark.parametrize("width", [64, 4099])
def test_sums_of_equal_addends_do_not_drift(width: int) -> None:
    """Chains are short for every width: a running sum of 4,099 equal addends is off by up to 1e-4."""
    left, right = (torch.full((1, width), value, device=DEVICE) for value in (0.1, 0.7))
    zero = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    exact = width * (left[0, 0] * right[0, 0]).double()
    assert abs(pair_scores(left, zero, right, zero).double() / exact - 1) <= 1e-6


def test_no_pair_and_no_column(called: list[int]) -> None:
    none = torch.empty(0, dtype=torch.int64, device=DEVICE)
    left = torch.randn(3, 4, device=DEVICE, requires_grad=True)
    computed = pair_scores(left, none, None, none)
    computed.sum().backward()
    assert computed.shape == (0,) and not left.grad.any()
    zeros = torch.zeros(5, dtype=torch.int64, device=DEVICE)
    assert pair_scores(torch.empty(3, 0, device=DEVICE), zeros, None, zeros).tolist() == [0] * 5
    assert called == [4, 0]


def test_any_layout_and_a_nan() -> None:
    """Rows of a matrix that is stored by columns, and of a slice of columns; a NaN shows in its pairs alone."""
    x = torch.randint(-3, 4, (9, 6), generator=torch.Generator().manual_seed(0)).float().to(DEVICE)
    i, j = torch.arange(9, device=DEVICE), torch.arange(9, device=DEVICE).flip(0)
    for left in (x.t().contiguous().t(), torch.cat([x, x], 1)[:, 3:9]):
        for right in (x, left):
            assert torch.equal(pair_scores(left, i, right, j), (left[i] * right[j]).sum(1))
    x[2, 3] = torch.nan
    assert pair_scores(x, i, None, j).isnan().nonzero()[:, 0].tolist() == [2, 6]


def test_torch_computes_what_triton_cannot(called: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randint(-3, 4, (9, 6), generator=torch.Generator().manual_seed(0)).to(DEVICE, torch.bfloat16)
    x.requires_grad_()
    index = torch.arange(9, device=DEVICE)
    computed = pair_scores(x, index, None, index.flip(0))
    computed.sum().backward()
    assert torch.equal(computed, (x * x.flip(0)).sum(1)) and torch.equal(x.grad, 2 * x.detach().flip(0)) and not called
    assert scores.path_of(x) == "torch" and gpu.runs_triton(DEVICE)
