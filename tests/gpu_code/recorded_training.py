"""Trainings whose steps run the kernels for GPUs on a CPU, in Python or replayed by a ``LaunchRecorder``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest import mock

import torch
import torch.distributed as dist

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import set_up
from fullgnn.engine.cuda_graph import Replay
from fullgnn.engine.step_runner import StepRunner
from fullgnn.kernels.support import aligned, gpu
from fullgnn.telemetry.meter import Meter
from tests.cases import config, layout_overrides
from tests.gpu_code.fake_cuda import DEVICE, FakeCuda, on_cpu
from tests.gpu_code.launch_recorder import LaunchRecorder

NUM_EAGER, NUM_REPLAYED = 1, 2
"""Epochs before the capture, and after it."""


@dataclass(frozen=True)
class Trained:
    """What a training has left."""

    losses: list[float]  # of each epoch
    parameters: list[torch.Tensor]  # at the end, each local to this rank
    outcome: str  # of the ``StepRunner``: whether its epochs were replayed
    graphs: list[LaunchRecorder]


def gpu_case(replication: int, *overrides: str) -> Config:
    """A small training with the kernels for GPUs, and a learning rate that changes in every epoch."""
    return config(
        "dataset=karate", *layout_overrides(replication), "kernel=csr", "scheme.shared_memory=false", "schedule=cosine",
        "runtime.dtype=float32", "seed=3", f"train.epochs={NUM_EAGER + NUM_REPLAYED}", *overrides,
    )  # fmt: skip


@contextmanager
def on_fake_gpu(world: World) -> Iterator[tuple[World, FakeCuda]]:
    """The same ``world`` on a fake GPU for each rank. The ranks exchange over gloo, but choose as ranks that
    exchange over NCCL."""
    with (
        FakeCuda() as cuda,
        mock.patch.object(dist, "get_backend_config", lambda group: "cuda:nccl"),
        mock.patch.object(dist, "batch_isend_irecv", _one_by_one),
    ):
        yield replace(world, device=DEVICE, backend="nccl"), cuda


def _one_by_one(operations: list[dist.P2POp]) -> list[dist.Work | None]:
    """The messages of ``batch_isend_irecv``, which itself looks for a group of GPUs."""
    return [
        p2p.op(p2p.tensor, group=p2p.group, **{"group_dst" if p2p.op is dist.isend else "group_src": p2p.group_peer})
        for p2p in operations
    ]


@contextmanager
def kernels_for_gpus() -> Iterator[None]:
    """Choose kernels and strides as on a GPU; Triton's interpreter runs the kernels."""
    with mock.patch.object(gpu, "INTERPRETED", True), mock.patch.object(aligned, "PADDED_DEVICES", ("cuda", "cpu")):
        yield


def train_recorded(
    world: World, cfg: Config, replayed: bool, plant: Callable[[StepRunner], object] = lambda runner: None
) -> Trained:
    """Train for a few epochs.

    Args:
        replayed: replay the epochs after the first; else all epochs run in Python.
        plant: gets the ``StepRunner`` before the first epoch, for example to plant a fault.
    """
    graphs: list[LaunchRecorder] = []

    def make_graph() -> LaunchRecorder:
        graphs.append(LaunchRecorder())
        return graphs[-1]

    with kernels_for_gpus(), mock.patch("fullgnn.engine.step_runner.EAGER_EPOCHS", NUM_EAGER):
        torch.manual_seed(0)
        meter = Meter(world.device)
        job = set_up(cfg, world, meter)
        replay = Replay(make_graph) if replayed else Replay(None, "not wanted")
        runner = StepRunner(job, replay)
        plant(runner)
        losses = [runner(epoch).results.read()[0] for epoch in range(1, NUM_EAGER + NUM_REPLAYED + 1)]
    return Trained(losses, [on_cpu(param.detach()).clone() for param in job.model.parameters()], runner.outcome, graphs)
