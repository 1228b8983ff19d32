"""The largest rows among the sources of each target against dense autograd in float64."""

from functools import partial

import pytest
import torch
from torch import Tensor

from fullgnn.kernels.edges import _rows_cpu
from fullgnn.kernels.edges.index import transpose
from fullgnn.kernels.edges.largest import largest_rows, largest_rows_backward
from fullgnn.kernels.edges.max_state import NO_WINNER, MaxState
from tests.kernels.edges.blocks import amid_nans, block_for, device_of, local_csr, pattern
from tests.kernels.edges.weighted import FLOAT32, FLOAT64, check, normal

IDS = ((0, 1), (2**31 - 60, 1), (2**33, 97))
"""The first id and the spread of the ids of up to 150 sources. Some ids, or all of them, exceed an int32."""


def ids_of(num_sources: int, first: int = 0, spread: int = 1) -> Tensor:
    """Distinct ids in an order of their own, of which ``spread`` times as many numbers lie between the ends."""
    return spread * torch.randperm(num_sources, generator=torch.Generator().manual_seed(1)) + first


def computed(
    mask: Tensor, x: Tensor, grad: Tensor, source_id: Tensor, cut: int = 0, merged: bool = False,
    weights: Tensor | None = None,
) -> tuple[MaxState, Tensor]:  # fmt: skip
    """The state, and the gradient of ``x``, in two stages that begin with source ``cut``.

    Args:
        weights: (n, m) of the edges; None: all 1.
        merged: two parties compute a stage each and merge their states, instead of one after the other.
    """
    (n, m), width = mask.shape, x.shape[1]
    states, parts = [MaxState.empty(n, width, x)], (slice(cut, m), slice(0, cut))
    stages = [local_csr(mask[:, part], None if weights is None else weights[:, part]) for part in parts]
    for part, csr in zip(parts, stages):
        largest_rows(csr, amid_nans(x[part], in_lines=width % 2 == 1), source_id[part], states[-1])
        if merged:
            states.append(MaxState.empty(n, width, x))
    value = torch.stack([state_of_part.value for state_of_part in states]).amax(0)
    state = MaxState(value, torch.stack([state_of_part.winners(value) for state_of_part in states]).amin(0))
    gradients = []
    for part, csr in zip(parts, stages):
        gradients.append(largest_rows_backward(csr, partial(transpose, csr), source_id[part], state.winner, grad))
    return state, torch.cat(gradients[::-1])


def dense_maximum(mask: Tensor, x: Tensor, grad: Tensor, weights: Tensor | None) -> list[Tensor]:
    """The result and the gradient, by autograd; the numbers of a column must differ."""
    x = x.clone().requires_grad_()
    messages = x if weights is None else weights[:, :, None] * x
    out = torch.where(mask[:, :, None], messages, -torch.inf).amax(1)
    out = torch.where(mask.any(1)[:, None], out, 0)
    return [out.detach(), *torch.autograd.grad(out, x, grad)]


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
def test_against_dense_rows(dtype: torch.dtype, path: str, every_case: bool) -> None:
    """Widths of less than a vector, of a few slices that overlap, and of whole slices."""
    mask, device = block_for(path), device_of(path)
    n, m = mask.shape
    widths = (5, 8) if path == "triton" else (1, 7, 41, 64, 150) if every_case else (7, 64, 150)
    for width in widths:
        x, grad = normal(m, width, seed=0), normal(n, width, seed=1)
        for cut, merged, weights in ((0, False, None), (15, True, normal(n, m, seed=2))):
            given = (mask.to(device), x.to(device, dtype), grad.to(device, dtype), ids_of(m).to(device))
            state, of_x = computed(*given, cut, merged, None if weights is None else weights.to(device, dtype))
            check([state.finish(), of_x], dense_maximum(mask, x, grad, weights), dtype)


@pytest.mark.parametrize(("n", "m"), [(0, 5), (5, 0), (0, 0), (1, 1)])
def test_empty_blocks(n: int, m: int, path: str) -> None:
    for mask in (torch.zeros(n, m, dtype=torch.bool), torch.ones(n, m, dtype=torch.bool)):
        x, grad = torch.full((m, 3), -2.0), torch.ones(n, 3)
        state, of_x = computed(*(tensor.to(device_of(path)) for tensor in (mask, x, grad, ids_of(m))))
        busy = mask.any(1)[:, None]
        assert torch.equal(state.finish().cpu(), torch.where(busy, -2.0, torch.zeros(n, 3)))
        assert torch.equal(of_x.cpu(), mask.sum(0)[:, None].expand(m, 3).float())


@pytest.mark.sample(5)
@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("merged", [False, True])
def test_ties_go_to_the_lowest_id_across_stages(merged: bool, ids: tuple[int, int], path: str) -> None:
    """Few distinct products tie often. The winner depends neither on the order of the stages nor on who has them."""
    device = device_of(path)
    mask = block_for(path).to(device)
    n, m = mask.shape
    x = torch.randint(-2, 3, (m, 9), generator=torch.Generator().manual_seed(0)).float()
    weights = torch.randint(1, 3, (n, m), generator=torch.Generator().manual_seed(3)).float().to(device)
    if merged:
        x[3] = -torch.inf
    x, source_id, grad = x.to(device), ids_of(m, *ids).to(device), normal(n, 9, seed=2).float().round().to(device)
    messages = weights[:, :, None] * x
    value = torch.where(mask[:, :, None], messages, -torch.inf).amax(1)
    wins = (messages == value[:, None]) & mask[:, :, None]
    winner = torch.where(wins, source_id[None, :, None], NO_WINNER).amin(1)
    state, of_x = computed(mask, x, grad, source_id, 25, merged, weights)
    assert torch.equal(state.value, value) and torch.equal(state.winner, winner)
    expected = torch.where(source_id[None, :, None] == winner[:, None], weights[:, :, None] * grad[:, None], 0)
    assert torch.equal(of_x, expected.sum(0))


def test_a_nan_shows(path: str) -> None:
    device = device_of(path)
    mask = block_for(path).to(device)
    x = normal(mask.shape[1], 9, seed=0).float()
    x[5, 3] = x[7, 3] = torch.nan
    source_id = ids_of(len(x)).to(device)
    weights = normal(*mask.shape, seed=1).float().to(device)
    state, _ = computed(mask, x.to(device), torch.zeros(len(mask), 9, device=device), source_id, 6, weights=weights)
    reached = mask[:, 5] | mask[:, 7]
    out = state.finish()
    assert out[reached, 3].isnan().all() and out[~reached].isfinite().all() and out[:, :3].isfinite().all()
    both = mask[:, 5] & mask[:, 7]
    assert both.any() and (state.winner[both, 3] == min(source_id[5], source_id[7])).all()


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rows_cpu, "MIN_SHARED_EDGES", 1)
    mask, results = pattern(200, 150), []
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        x, grad = normal(150, 64, seed=1).float(), normal(200, 64, seed=2).float()
        state, of_x = computed(mask, x, grad, ids_of(150), 70)
        results.append([state.value, state.winner, of_x])
    assert all(torch.equal(a, b) for a, b in zip(*results))
