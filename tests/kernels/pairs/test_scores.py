"""Scores of pairs and their gradients against torch, and the same bits for any number of threads."""

import pytest
import torch

from fullgnn.kernels.pairs.scores import pair_scores


@pytest.mark.parametrize("width", [1, 5, 16, 64, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shared", [False, True])
def test_scores_and_gradients(width: int, dtype: torch.dtype, shared: bool) -> None:
    generator, num_pairs, num_threads = torch.Generator().manual_seed(0), 3000, torch.get_num_threads()
    left = torch.randn(70, width, dtype=dtype, generator=generator).requires_grad_()
    right = None if shared else torch.randn(90, width, dtype=dtype, generator=generator).requires_grad_()
    other = left if right is None else right
    i, j = (torch.randint(len(side), (num_pairs,), generator=generator) for side in (left, other))
    weight = torch.randn(num_pairs, dtype=dtype, generator=generator)
    leaves = [left] if right is None else [left, right]
    expected = (left[i].double() * other[j].double()).sum(dim=1)
    gradients = torch.autograd.grad((expected * weight).sum(), leaves)
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            scores = pair_scores(left, i, right, j)
            results.append([scores.detach(), *torch.autograd.grad((scores * weight).sum(), leaves)])
    finally:
        torch.set_num_threads(num_threads)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-4
    for tensor, exact in zip(results[0], (expected, *gradients)):
        torch.testing.assert_close(tensor.double(), exact.double(), rtol=tolerance, atol=tolerance)
    for others in results[1:]:
        assert all(torch.equal(tensor, first) for tensor, first in zip(others, results[0]))


def test_no_pair() -> None:
    left, none = torch.randn(3, 4, requires_grad=True), torch.empty(0, dtype=torch.int64)
    scores = pair_scores(left, none, None, none)
    scores.sum().backward()
    assert scores.shape == (0,) and not left.grad.any()
