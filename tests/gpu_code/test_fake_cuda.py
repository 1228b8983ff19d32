"""The fake GPU raises and counts as a GPU does, trains as the CPU does, and finds missing waits between streams."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.cuda._sanitizer import CUDASanitizerErrors

from fullgnn.distributed import world_of_one
from fullgnn.engine import set_up
from fullgnn.engine.cuda_graph import Replay
from fullgnn.engine.step_runner import AsyncNumbers, StepRunner
from fullgnn.kernels.dense import host_rows
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.telemetry.meter import Meter
from tests.cases import minibatch_config
from tests.gpu_code.fake_cuda import DEVICE, CudaTensor, FakeCuda, on_cpu
from tests.gpu_code.fake_streams import FakeEvent, FakeStream
from tests.gpu_code.recorded_training import gpu_case, train_recorded
from tests.triton_device import needs_triton

pytestmark = [needs_triton, pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real GPU")]


def test_tensors_say_where_they_are() -> None:
    with FakeCuda() as cuda:
        x = torch.arange(6.0).view(2, 3).to(DEVICE)
        layer = torch.nn.Linear(3, 2).to(DEVICE)
        layer(x).relu().sum().to(torch.float64).backward()
        made = (x, x[1:].t(), x.new_zeros(3), torch.zeros(2, device=DEVICE), layer.weight, layer.weight.grad)
        assert all(tensor.is_cuda and tensor.device == DEVICE for tensor in made)  # type: ignore[union-attr]
        assert isinstance(layer.weight, torch.nn.Parameter) and cuda.waits == {"copy": 3}
        assert not x.cpu().is_cuda and x.cpu().tolist() == on_cpu(x).tolist()
        x[0] = 7
        assert x.tolist() == [[7, 7, 7], [3, 4, 5]]
    assert torch.cuda.is_available() is False


WAITS: dict[str, tuple[Callable[[Tensor], Any], dict[str, int]]] = {
    "item": (lambda x: x.sum().item(), {"item": 1}),
    "branch": (lambda x: bool((x > 2).any()), {"item": 1}),
    "tolist": (lambda x: x.tolist(), {"cpu": 1}),
    "cpu": (lambda x: x.cpu().numpy().tolist(), {"cpu": 1}),
    "mask": (lambda x: x[x > 2], {"mask": 1}),
    "bincount": (lambda x: x.long().bincount(), {"bincount": 2}),
    "numbers": (lambda x: torch.tensor([1.0], device=DEVICE), {"copy": 1}),
    "array": (lambda x: torch.from_numpy(np.zeros(6, np.float32)).to(DEVICE), {"copy": 1}),
    "pinned": (lambda x: x.copy_(torch.zeros(6).pin_memory(), non_blocking=True), {}),
    "filled": (lambda x: x.masked_fill_(x > 2, 0).fill_(1).add_(torch.tensor(2.0)), {}),
}


@pytest.mark.parametrize("name", WAITS)
def test_waits_are_counted(name: str) -> None:
    call, expected = WAITS[name]
    with FakeCuda() as cuda:
        x = torch.arange(6.0, device=DEVICE)
        call(x)
    assert cuda.waits == expected


ERRORS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "mixed": (lambda x: x + torch.ones(6), "Expected all tensors to be on the same device"),
    "mixed index": (lambda x: x[torch.tensor([1, 2])], "Expected all tensors to be on the same device"),
    "numpy": (lambda x: x.numpy(), "can't convert cuda:0 device type tensor to numpy"),
    "pageable": (lambda x: x.copy_(torch.zeros(6), non_blocking=True), "host memory that is not pinned"),
    "pageable move": (lambda x: torch.zeros(6).to(DEVICE, non_blocking=True), "host memory that is not pinned"),
    "to the host": (lambda x: x.to("cpu", non_blocking=True), "memory that is not pinned"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_a_gpu_refuses_raises(name: str) -> None:
    call, message = ERRORS[name]
    with FakeCuda():
        x = torch.arange(6.0, device=DEVICE)
        with pytest.raises((RuntimeError, TypeError), match=message):
            call(x)


def test_kernels_refuse_tensors_of_the_host(triton_on_cpu: None) -> None:
    from fullgnn.kernels.spmm import LocalCSR
    from fullgnn.kernels.spmm.triton_csr import TritonCSR

    csr = LocalCSR(torch.tensor([0, 2, 3], dtype=torch.int32), torch.tensor([0, 1, 1], dtype=torch.int32), None, 2, 2)
    plan = TritonCSR().prepare(csr, torch.float32)
    with FakeCuda(), pytest.raises(ValueError, match="cannot be accessed from Triton"):
        TritonCSR().spmm(plan, torch.ones(2, 3, device=DEVICE), torch.empty(2, 3, device=DEVICE), False)


def trained(*overrides: str, graph: bool = False) -> tuple[list[float], FakeCuda]:
    """The losses of three epochs on the fake GPU; with ``graph``, on the stream of its own that a CUDA graph needs."""
    cfg = gpu_case(1, *overrides)
    with world_of_one(torch.device("cpu")) as alone, FakeCuda() as cuda:
        world = replace(alone, device=DEVICE)
        torch.manual_seed(0)
        meter = Meter(DEVICE)
        job = set_up(cfg, world, meter)
        replay = Replay(lambda: pytest.fail("too early")) if graph else Replay(None, "no graph")
        runner = StepRunner(job, replay)
        launched = [runner(epoch) for epoch in range(1, 4)]
        losses = [step.results.read()[0] for step in launched]
        for step in launched:
            step.cost.read()
        assert isinstance(job.graph.labels, CudaTensor)
        return losses, cuda


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    "overrides", [["model=mlp"], ["model=gcn", "optimizations.offload=always"], ["model=gat", "optimizer=sgd"]]
)
def test_a_training_has_the_losses_of_the_cpu(overrides: list[str]) -> None:
    with world_of_one(torch.device("cpu")) as world:
        expected = train_recorded(world, gpu_case(1, *overrides), False).losses
    assert trained(*overrides)[0] == expected


# ---- waits between streams -------------------------------------------------------------------------------------------


def without(monkeypatch: pytest.MonkeyPatch, method: str, of: type = FakeStream) -> None:
    """Let ``method`` do nothing, as if its call were missing."""
    monkeypatch.setattr(of, method, lambda self, *args: None)


def test_the_copies_of_rows_on_the_host_wait_and_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_rows, "CHUNK_BYTES", 64)
    x, weight = torch.arange(40.0).view(20, 2), torch.ones(2, 3)

    def product() -> list[list[float]]:
        with FakeCuda():
            rows = host_rows.HostRows(x, DEVICE)
            assert len(rows._chunks) > 3
            return sum(
                (chunk @ weight.to(DEVICE) for _, chunk in rows.chunks()), torch.zeros(1, device=DEVICE)
            ).tolist()

    assert product()[0][0] > 0
    without(monkeypatch, "wait_event")
    with pytest.raises(CUDASanitizerErrors):
        product()


def test_numbers_are_read_after_their_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> list[float]:
        with FakeCuda():
            return AsyncNumbers(torch.arange(3.0, device=DEVICE) * 2).read()

    assert read() == [0, 2, 4]
    without(monkeypatch, "synchronize", FakeEvent)
    with pytest.raises(RuntimeError, match="before it has waited for the copy"):
        read()


def test_the_stream_of_the_steps_waits_and_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the waits around the stream of its own, the first step may read the graph before it is set up."""
    losses, cuda = trained("model=mlp", graph=True)
    assert losses == trained("model=mlp")[0] and len(cuda.streams.handler.syncs.current_sync_states) > 1
    without(monkeypatch, "wait_stream")
    with pytest.raises(CUDASanitizerErrors):
        trained("model=mlp", graph=True)


def loaded(num_batches: int) -> list[float]:
    """Sums of the rows of the first batches that a worker gathers and the loader's stream copies."""
    cfg = minibatch_config(
        "dataset=karate", "model=sage", "sampler.fanouts=[3,3]", "loader.batch_size=2", "loader.num_workers=1",
        "kernel=csr", "runtime.dtype=float32",
    )  # fmt: skip
    with world_of_one(torch.device("cpu")) as alone, FakeCuda():
        job = set_up_sampled(cfg, replace(alone, device=DEVICE), Meter(DEVICE))
        with closing(job.loader) as loader:
            return [batch.x.sum().item() for batch, _ in zip(loader.epoch(1), range(num_batches))]


@pytest.mark.sample(4)
def test_a_step_waits_for_the_copies_of_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(loaded(2)) == 2
    without(monkeypatch, "wait_stream")
    with pytest.raises(CUDASanitizerErrors):
        loaded(2)
