"""The recorder replays what ran, changes nothing in a capture, and refuses what a CUDA graph cannot capture."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from fullgnn.distributed import World, world_of_one
from tests.gpu_code.launch_recorder import CaptureError, LaunchRecorder
from tests.triton_device import needs_triton

ON_CPU = pytest.mark.parametrize("ranks", ["gloo"], indirect=True)


def test_a_replay_repeats_operators_on_the_memory_of_the_capture() -> None:
    x, weight, total = torch.arange(12.0).view(4, 3), torch.ones(3, 2, requires_grad=True), torch.zeros(())
    weight.grad = torch.zeros(3, 2)
    kept: list[Tensor] = []

    def step() -> None:
        y = torch.nn.functional.dropout(x @ weight, 0.5)
        y[1:3].t().mul_(2)
        y.square().sum().backward()
        torch.add(total, y.sum().detach(), out=total)
        weight.data.sub_(weight.grad, alpha=1e-3)  # type: ignore[arg-type]
        kept.append(y.detach())

    def after(run: Callable[[], None]) -> list[Tensor]:
        torch.manual_seed(5)
        for row in range(3):
            x.fill_(row)
            run()
        clones = [tensor.clone() for tensor in (total, weight.detach(), weight.grad, kept[-1])]  # type: ignore[union-attr]
        for tensor in (total, weight.detach(), weight.grad):
            tensor.copy_(torch.ones_like(tensor))  # type: ignore[union-attr, arg-type]
        return clones

    after(step)
    expected, graph, random = after(step), LaunchRecorder(), torch.get_rng_state()
    graph.capture(step)
    assert torch.equal(torch.get_rng_state(), random)
    assert total == 1 and bool((weight == 1).all()) and bool((weight.grad == 1).all())
    for tensor, exact in zip(after(graph.replay), expected, strict=True):
        assert torch.equal(tensor, exact)
    names = [launch.name for launch in graph.launches]
    assert graph.counts() == {"operator": len(names)} and "aten.mm.default" in names
    assert not {"aten.t.default", "aten.slice.Tensor", "aten.detach.default", "aten.empty_like.default"} & set(names)


def reads_later(x: Tensor) -> None:
    """An error only at the end of the step: no operator follows."""
    x.tolist()


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "item": (lambda x: x.add_(x.sum().item()), "the host waits for the device: item"),
    "branch": (lambda x: x.add_(1) if x.sum() > 0 else x, "the host waits for the device: item"),
    "tolist": (reads_later, "the host waits for the device: tolist"),
    "numpy": (lambda x: x.numpy().fill(1), "the host waits for the device: numpy"),
    "mask": (lambda x: x[x > 1], "the host waits for the device: mask"),
    "numbers": (lambda x: x.add_(torch.tensor([1.0])), "a tensor is made of Python numbers"),
    "transfer": (lambda x: dist.all_reduce(x, async_op=True), "nothing waits for c10d.allreduce_.default"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_captured_is_refused(name: str) -> None:
    step, message = REFUSED[name]
    x = torch.arange(3.0)
    with world_of_one(torch.device("cpu")), pytest.raises(CaptureError, match=message):
        LaunchRecorder().capture(lambda: step(x))
    assert x.tolist() == [0, 1, 2] or name == "numpy"  # the host has written through the array


def test_a_replay_does_not_follow_python() -> None:
    x, y, factor = torch.ones(2), torch.zeros(2), [2.0]
    graph = LaunchRecorder()
    graph.capture(lambda: y.copy_(x * factor[0]))
    factor[0] = 3.0
    graph.replay()
    assert y.tolist() == [2, 2]
    old, x = x, torch.full((2,), 5.0)
    graph.replay()
    assert y.tolist() == [2, 2]
    del old
    with pytest.raises(RuntimeError, match="aten.mul.Tensor uses memory that was freed after the capture"):
        graph.replay()


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton compiles the kernels here")
def test_kernels_are_replayed(triton_on_cpu: None) -> None:
    from fullgnn.kernels.spmm import LocalCSR
    from fullgnn.kernels.spmm.triton_csr import TritonCSR

    csr = LocalCSR(torch.tensor([0, 2, 3], dtype=torch.int32), torch.tensor([0, 1, 1], dtype=torch.int32), None, 2, 2)
    plan, x, out, graph = TritonCSR().prepare(csr, torch.float32), torch.ones(2, 3), torch.zeros(2, 3), LaunchRecorder()
    graph.capture(lambda: TritonCSR().spmm(plan, x, out, False))
    assert graph.counts() == {"kernel": 1} and out.tolist() == [[0] * 3] * 2
    x[1] = 5
    graph.replay()
    assert out.tolist() == [[6] * 3, [5] * 3]


def collectives(world: World) -> tuple[list[float], list[str]]:
    """What a step of collectives computes in three replays. Rank 1 captures before rank 0, which waits for it."""
    x, halo = torch.full((2,), float(world.rank + 1)), torch.zeros(2)
    peer, graph = 1 - world.rank, LaunchRecorder()

    def step() -> None:
        for work in (dist.isend(x, peer), dist.irecv(halo, peer)):
            assert work is not None
            work.wait()
        dist.all_reduce(x)
        x.add_(halo)

    if world.rank == 1:
        graph.capture(step)
    dist.barrier()
    if world.rank == 0:
        graph.capture(step)
    assert halo.tolist() == [0, 0] and x.tolist() == [world.rank + 1.0] * 2
    for _ in range(3):
        graph.replay()
    return [float(x[0]), float(halo[1])], [f"{launch.kind} {launch.name}" for launch in graph.launches]


@ON_CPU
def test_collectives_are_launches_that_wait_for_other_ranks_only_in_a_replay(ranks) -> None:
    x = [1.0, 2.0]
    for _ in range(3):
        halo, total = x[::-1], sum(x)
        x = [total + from_left for from_left in halo]
    for rank, (sums, names) in enumerate(ranks(2)(collectives)):
        assert sums == [x[rank], halo[rank]]
        transfers = [f"c10d.{name}" for name in ("send.default", "recv_.default", "allreduce_.default")]
        begun, ended = ([f"{kind}{name}" for name in transfers] for kind in ("collective ", "wait wait for "))
        assert names == [begun[0], begun[1], ended[0], ended[1], begun[2], ended[2], "operator aten.add_.Tensor"]
