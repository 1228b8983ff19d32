"""Sums and maxima of messages against dense autograd in float64."""

import pytest
import torch
from torch import Tensor

from fullgnn.kernels.edges.index import repeat_targets
from fullgnn.kernels.edges.max_state import NO_WINNER, MaxState
from fullgnn.kernels.edges.reduce import add_largest, add_messages, largest_backward
from fullgnn.kernels.spmm import LocalCSR
from tests.kernels.edges.blocks import block_for, device_of, from_edges, local_csr, pattern
from tests.kernels.edges.weighted import FLOAT32, FLOAT64, check, normal


def reduced(csr: LocalCSR, messages: Tensor, reduction: str, grad: Tensor) -> list[Tensor]:
    """The result and the gradient, in one stage."""
    if reduction == "sum":
        out = messages.new_zeros(csr.num_rows, messages.shape[1])
        add_messages(csr, messages, out)
        return [out, repeat_targets(csr, grad)]
    state, ids = MaxState.empty(csr.num_rows, messages.shape[1], messages), torch.arange(csr.num_cols)
    add_largest(csr, messages, ids.to(messages.device), state)
    return [state.finish(), largest_backward(csr, ids.to(messages.device), state.winner, grad)]


def dense_reduction(mask: Tensor, messages: Tensor, reduction: str, grad: Tensor) -> list[Tensor]:
    """The result and the gradient, by autograd; the messages must differ."""
    messages = messages.clone().requires_grad_()
    dense = from_edges(mask, messages)
    if reduction == "max":
        out = torch.where(mask[:, :, None], dense, -torch.inf).amax(1)
        out = torch.where(mask.any(1)[:, None], out, 0)
    else:
        out = dense.sum(1)
    return [out.detach(), *torch.autograd.grad(out, messages, grad)]


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
@pytest.mark.parametrize("reduction", ["sum", "max"])
def test_reduction(reduction: str, dtype: torch.dtype, path: str) -> None:
    mask, device = block_for(path), device_of(path)
    for width in (1, 8) if path == "triton" else (1, 7, 8, 41):
        csr = local_csr(mask.to(device))
        messages, grad = normal(csr.nnz, width, seed=0), normal(len(mask), width, seed=1)
        outcome = reduced(csr, messages.to(device, dtype), reduction, grad.to(device, dtype))
        check(outcome, dense_reduction(mask, messages, reduction, grad), dtype)


@pytest.mark.parametrize("reduction", ["sum", "max"])
@pytest.mark.parametrize(("n", "m"), [(0, 5), (5, 0), (0, 0)])
def test_empty_blocks(n: int, m: int, reduction: str, path: str) -> None:
    csr = local_csr(torch.ones(n, m, dtype=torch.bool, device=device_of(path)))
    nothing, grad = torch.zeros(0, 3, device=device_of(path)), torch.ones(n, 3, device=device_of(path))
    out, gradient = reduced(csr, nothing, reduction, grad)
    assert torch.equal(out.cpu(), torch.zeros(n, 3)) and gradient.shape == (0, 3)


@pytest.mark.parametrize("merged", [False, True])
def test_ties_go_to_the_lowest_id_across_stages(merged: bool, path: str) -> None:
    """Few distinct messages tie often. The winner depends neither on the order of the stages nor on who has them."""
    mask, device = block_for(path).to(device_of(path)), device_of(path)
    n, m = mask.shape
    messages = torch.randint(-2, 3, (n, m, 5), generator=torch.Generator().manual_seed(0)).float().to(device)
    messages[:, 3] = -torch.inf
    source_id = (torch.randperm(m, generator=torch.Generator().manual_seed(1)) + 2**33).to(device)
    value = torch.where(mask[:, :, None], messages, -torch.inf).amax(1)
    wins = (messages == value[:, None]) & mask[:, :, None]
    winner = torch.where(wins, source_id[None, :, None], NO_WINNER).amin(1)
    grad = normal(n, 5, seed=2).float().to(device)
    for cut in (25, 40) if path != "triton" else (25,):
        states = [MaxState.empty(n, 5, messages)]
        for part in (slice(cut, m), slice(0, cut)):
            if merged:
                states.append(MaxState.empty(n, 5, messages))
            csr, of_part = local_csr(mask[:, part]), mask[:, part]
            add_largest(csr, messages[:, part][of_part], source_id[part], states[-1])
        largest = torch.stack([partial.value for partial in states]).amax(0)
        state = MaxState(largest, torch.stack([partial.winners(largest) for partial in states]).amin(0))
        assert torch.equal(state.value, value) and torch.equal(state.winner, winner)
        assert torch.equal(state.finish(), torch.where(mask.any(1)[:, None], value, 0))
        expected = torch.where(source_id[None, :, None] == winner[:, None], grad[:, None], 0)
        for part in (slice(0, cut), slice(cut, m)):
            gradient = largest_backward(local_csr(mask[:, part]), source_id[part], winner, grad)
            assert torch.equal(gradient, expected[:, part][mask[:, part]])


def test_sums_are_added_to_what_is_there(path: str) -> None:
    mask, device = block_for(path), device_of(path)
    n, m = mask.shape
    before, messages = normal(n, 7, seed=1), normal(n, m, 7, seed=0)
    out = before.to(device, copy=True)
    for part in (slice(15, m), slice(0, 15)):
        add_messages(local_csr(mask[:, part].to(device)), messages[:, part][mask[:, part]].to(device), out)
    check([out], [before + (messages * mask[:, :, None]).sum(1)], FLOAT64)


def test_a_long_sum_is_exact_to_working_precision() -> None:
    csr = local_csr(torch.ones(1, 100_000, dtype=torch.bool))
    messages = torch.full((csr.nnz, 2), 0.7)
    exact = messages.double().sum(0)
    out, _ = reduced(csr, messages, "sum", messages[:1])
    assert ((out[0].double() - exact).abs() <= 2e-6 * exact).all()


def test_a_nan_shows(path: str) -> None:
    csr = local_csr(torch.ones(2, 3, dtype=torch.bool, device=device_of(path)))
    messages = torch.tensor([1, torch.nan, 2, 4, 5, 6], device=device_of(path))[:, None]
    out, _ = reduced(csr, messages, "max", messages[:2])
    assert torch.equal(out.isnan().cpu(), torch.tensor([[True], [False]]))


def test_rows_of_targets_for_each_edge() -> None:
    mask, rows = pattern(31, 150), normal(31, 4, seed=0).requires_grad_()
    grad = normal(int(mask.sum()), 4, seed=1)
    repeated = repeat_targets(local_csr(mask), rows)
    assert torch.equal(repeated, rows[:, None].expand(31, 150, 4)[mask])
    repeated.backward(grad)
    check([rows.grad], [from_edges(mask, grad).sum(1)], FLOAT64)
