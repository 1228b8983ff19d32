"""The cross-entropy and its gradient against torch in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.nn import cross_entropy
from fullgnn.nn import loss as loss_module

NUM_CLASSES = [1, 2, 3, 8, 15, 16, 17, 41, 47, 172, 192, 193]


@pytest.fixture(autouse=True)
def compiled_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "MIN_ELEMENTS", 1)


def example(n: int, num_classes: int, spread: float = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    logits = spread * torch.randn(n, num_classes, dtype=torch.float64, generator=generator)
    return logits.float().double(), torch.randint(0, num_classes, (n,), generator=generator)


def expected(logits: Tensor, labels: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    logits = logits.double().requires_grad_()
    loss = F.cross_entropy(logits, labels, reduction="sum") * scale
    loss.backward()
    assert logits.grad is not None
    return loss.detach(), logits.grad


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("num_classes", NUM_CLASSES)
def test_against_autograd(num_classes: int, dtype: torch.dtype, digits: float) -> None:
    for n in (1, 63, 64, 3000):
        logits, labels = example(n, num_classes)
        wide = torch.full((n, num_classes + 5), torch.nan, dtype=dtype)
        wide[:, :num_classes] = logits
        loss, gradient = expected(logits, labels, 1 / 7)
        for rows in (logits.to(dtype), wide[:, :num_classes]):
            found, found_gradient = cross_entropy(rows, labels, 1 / 7)
            assert found.dtype == found_gradient.dtype == dtype
            torch.testing.assert_close(found.double(), loss, rtol=digits, atol=digits * n)
            torch.testing.assert_close(found_gradient.double(), gradient, rtol=digits, atol=digits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_apart(dtype: torch.dtype) -> None:
    """Logits whose exponentials do not fit into any number."""
    logits = torch.tensor([[1e4, -1e4, 0], [0, -90, -200], [-1e30, -1e30, -1e30], [88, 87, -88]], dtype=dtype)
    labels = torch.tensor([1, 2, 0, 1])
    loss, gradient = expected(logits, labels, 1.0)
    found, found_gradient = cross_entropy(logits, labels, 1.0)
    torch.testing.assert_close(found.double(), loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(found_gradient.double(), gradient, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_shows(bad: float) -> None:
    logits, labels = example(3000, 41)
    logits[2000, 7] = bad
    loss, gradient = cross_entropy(logits.float(), labels, 1.0)
    assert not loss.isfinite()
    assert gradient[2000].isnan().any() and gradient[:2000].isfinite().all() and gradient[2001:].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_rows(dtype: torch.dtype) -> None:
    loss, gradient = cross_entropy(torch.empty(0, 4, dtype=dtype), torch.empty(0, dtype=torch.int64), 0.5)
    assert (loss.item(), gradient.shape, gradient.dtype) == (0, (0, 4), dtype)


def test_the_number_of_threads_changes_no_bit() -> None:
    logits, labels = example(5000, 41)
    found = []
    for num_threads in (1, 2, 5):
        torch.set_num_threads(num_threads)
        found.append(cross_entropy(logits.float(), labels, 1 / 5000))
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other))
