"""The counter of host waits counts what waits on CUDA, and nothing else."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.gpu_code.host_waits import HostWaits
from tests.triton_device import needs_triton

DEVICE = torch.device("cpu")


def host() -> Tensor:
    return torch.from_numpy(np.arange(5.0))


WAITING: dict[str, tuple[Callable[[Tensor], object], dict[str, int]]] = {
    "item": (lambda x: x.sum().item(), {"item": 1}),
    "bool": (lambda x: bool((x > 2).any()), {"item": 1}),
    "tolist": (lambda x: x.tolist(), {"tolist": 1}),
    "numpy": (lambda x: x.numpy(), {"numpy": 1}),
    "asarray": (lambda x: np.asarray(x), {"numpy": 1}),
    "cpu": (lambda x: x.cpu().tolist(), {"cpu": 1}),
    "to": (lambda x: (x * 2).to("cpu").numpy(), {"cpu": 1}),
    "nonzero": (lambda x: x.nonzero(), {"nonzero": 1}),
    "mask": (lambda x: x[x > 2], {"mask": 1}),
    "masked_select": (lambda x: x.masked_select(x > 2), {"masked_select": 1}),
    "write by a mask": (lambda x: x.clone().index_put_((x > 2,), x[:3]), {"mask": 1}),
    "bincount": (lambda x: x.long().bincount(), {"bincount": 2}),
    "unique": (lambda x: x.unique(), {"unique": 1}),
    "repeat": (lambda x: x.repeat_interleave(x.long()), {"repeat_interleave": 1}),
    "move": (lambda x: host().to(DEVICE), {"copy": 1}),
    "copy": (lambda x: x.clone().copy_(torch.from_numpy(np.zeros(6))), {"copy": 1}),
    "moved": (lambda x: host().to(DEVICE, non_blocking=True).add(1).tolist(), {"tolist": 1}),
    "allocated": (lambda x: torch.zeros(3, device=DEVICE).tolist(), {"tolist": 1}),
    "backward": (lambda x: _Reads.apply(x.clone().requires_grad_()).sum().backward(), {"item": 1}),
}


class _Reads(torch.autograd.Function):
    """Reads a number in its backward pass."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * grad.sum().item()


@pytest.mark.parametrize("name", WAITING)
def test_what_waits_is_counted(name: str) -> None:
    call, expected = WAITING[name]
    x = torch.arange(6.0, dtype=torch.float64)
    with HostWaits([x]) as waits:
        call(x)
    assert waits.counts == expected and waits.total == sum(expected.values())


def test_what_does_not_wait_is_not_counted() -> None:
    x = torch.arange(6.0, dtype=torch.float64)
    with HostWaits([x]) as waits:
        numbers = host()
        numbers[numbers > 2].sum().item()  # all on the host
        numbers.nonzero().tolist()
        torch.empty(3).fill_(2).tolist()
        x.repeat_interleave(x.long(), output_size=15)
        x.clone()[x > 2] = 0.0
        x.copy_(torch.from_numpy(np.zeros(6)), non_blocking=True)
        x.to(DEVICE, torch.float32).to(DEVICE).sort().indices.cumsum(0)
    assert waits.counts == {} and waits.num_calls > 10


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton compiles the kernels here")
def test_kernels_are_launched_without_waiting(triton_on_cpu: None) -> None:
    from fullgnn.kernels.spmm import LocalCSR
    from fullgnn.kernels.spmm.triton_csr import TritonCSR

    csr = LocalCSR(torch.tensor([0, 2, 3], dtype=torch.int32), torch.tensor([0, 1, 1], dtype=torch.int32), None, 2, 2)
    plan, x, out = TritonCSR().prepare(csr, torch.float32), torch.ones(2, 3), torch.empty(2, 3)
    with HostWaits() as waits:
        TritonCSR().spmm(plan, x, out, False)
        assert (waits.num_launches, waits.counts) == (1, {})
        assert out.tolist() == [[2, 2, 2], [1, 1, 1]]
    assert waits.counts == {"tolist": 1}
