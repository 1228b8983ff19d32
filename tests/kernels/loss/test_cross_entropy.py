"""The cross-entropy and its gradient against torch in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.kernels.loss import cross_entropy as loss_module
from fullgnn.kernels.support import gpu
from fullgnn.nn import cross_entropy
from tests.triton_device import DEVICE, needs_triton

NUM_CLASSES = [1, 2, 3, 8, 15, 16, 17, 41, 47, 172, 192, 193, 256, 257]


@pytest.fixture(autouse=True, params=["compiled", pytest.param("triton", marks=needs_triton)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The device of the implementation under test: compiled code for CPUs, or Triton."""
    monkeypatch.setattr(loss_module, "MIN_ELEMENTS", 1)
    if request.param == "compiled":
        return torch.device("cpu")
    request.getfixturevalue("triton_on_cpu")
    return DEVICE


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


def computed(device: torch.device, logits: Tensor, labels: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Our loss and gradient on ``device``, for rows with the strides of ``logits``."""
    there = torch.empty_strided(logits.shape, logits.stride(), dtype=logits.dtype, device=device).copy_(logits)
    loss, gradient = cross_entropy(there, labels.to(device), scale)
    return loss.cpu(), gradient.cpu()


@pytest.mark.sample(4)
@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("num_classes", NUM_CLASSES)
def test_against_autograd(num_classes: int, dtype: torch.dtype, digits: float, device: torch.device) -> None:
    for n in (1, 63, 64, 300 if gpu.INTERPRETED else 3000):
        logits, labels = example(n, num_classes)
        wide = torch.full((n, num_classes + 5), torch.nan, dtype=dtype)
        wide[:, :num_classes] = logits
        loss, gradient = expected(logits, labels, 1 / 7)
        for rows in (logits.to(dtype), wide[:, :num_classes]):
            computed_loss, computed_gradient = computed(device, rows, labels, 1 / 7)
            assert computed_loss.dtype == computed_gradient.dtype == dtype
            torch.testing.assert_close(computed_loss.double(), loss, rtol=digits, atol=digits * n)
            torch.testing.assert_close(computed_gradient.double(), gradient, rtol=digits, atol=digits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_apart(dtype: torch.dtype, device: torch.device) -> None:
    """The logits have exponentials that overflow or underflow."""
    logits = torch.tensor([[1e4, -1e4, 0], [0, -90, -200], [-1e30, -1e30, -1e30], [88, 87, -88]], dtype=dtype)
    labels = torch.tensor([1, 2, 0, 1])
    loss, gradient = expected(logits, labels, 1.0)
    computed_loss, computed_gradient = computed(device, logits, labels, 1.0)
    torch.testing.assert_close(computed_loss.double(), loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(computed_gradient.double(), gradient, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_shows(bad: float, device: torch.device) -> None:
    logits, labels = example(3000, 41)
    logits[2000, 7] = bad
    loss, gradient = computed(device, logits.float(), labels, 1.0)
    assert not loss.isfinite()
    assert gradient[2000].isnan().any() and gradient[:2000].isfinite().all() and gradient[2001:].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_rows(dtype: torch.dtype, device: torch.device) -> None:
    loss, gradient = computed(device, torch.empty(0, 4, dtype=dtype), torch.empty(0, dtype=torch.int64), 0.5)
    assert (loss.item(), gradient.shape, gradient.dtype) == (0, (0, 4), dtype)


@pytest.mark.sample(2)
def test_the_number_of_threads_changes_no_bit(device: torch.device) -> None:
    logits, labels = example(5000, 41)
    results = []
    for num_threads in (1, 2, 5):
        torch.set_num_threads(num_threads)
        results.append(computed(device, logits.float(), labels, 1 / 5000))
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other))


@needs_triton
@pytest.mark.parametrize(("num_classes", "dtype", "ours"), [
    (256, torch.float32, True), (256, torch.float64, True), (257, torch.float32, False), (4, torch.bfloat16, False)
])  # fmt: skip
def test_what_triton_computes(
    num_classes: int, dtype: torch.dtype, ours: bool, triton_on_cpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fullgnn.kernels.loss import _cross_entropy_gpu as _loss_gpu

    path, called = _loss_gpu.cross_entropy_gpu, []
    monkeypatch.setattr(_loss_gpu, "cross_entropy_gpu", lambda *args: called.append(1) or path(*args))
    logits, labels = example(5, num_classes)
    loss, _ = cross_entropy(logits.to(DEVICE, dtype), labels.to(DEVICE), 1.0)
    torch.testing.assert_close(loss.cpu().double(), expected(logits.to(dtype), labels, 1.0)[0], rtol=2e-2, atol=0)
    assert bool(called) == ours
