"""A training that is replayed as a CUDA graph, with dropout, against the same one launched step by step: to the bit."""

from dataclasses import asdict

import torch

from fullgnn.bench.gpu.check import Check, equal
from fullgnn.bench.gpu.lookalikes import TOYS, Lookalike, generate, make_nodes
from fullgnn.bench.gpu.ours import NOT_REPLAYED, alone, ours, preset_config
from fullgnn.bench.gpu.training import Training, as_training
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.engine.cuda_graph import EAGER_EPOCHS, REPLAYED
from fullgnn.kernels.support import gpu

SHAPE = Lookalike(20_000, 800_000, 100, 47, 64)
_DROPOUT = 0.5
_REPLAYS = 6


def small_training(toy: bool, device: torch.device) -> Training:
    """A graph that trains in seconds, the same on every call."""
    shape = TOYS["toy"] if toy else SHAPE
    graph = generate(shape, 1.0, 0, device)
    return as_training(graph.csr(graph.perm), make_nodes(graph, shape, graph.perm, 0), shape)


def losses(preset: str, training: Training, epochs: int) -> tuple[torch.Tensor, str]:
    """(epochs,) float32 losses with dropout, by ``kernel=csr``, which does not depend on timing; and whether the epochs
    were replayed."""
    cfg = preset_config(preset, training)
    if gpu.serves(training.device):
        cfg.kernel = {"_target_": "fullgnn.kernels.spmm.TritonCSR", "name": "csr", "mode": "ieee"}
    with alone(cfg.runtime) as world:
        step, settings = ours(cfg, training, world)(_DROPOUT)
        found = torch.tensor([step()() for _ in range(epochs)], dtype=torch.float32)
        return found, settings()["cuda_graph"]


def check_replay(toy: bool, device: torch.device) -> Check:
    """Fails where nothing was replayed, too, except in a toy, which has no GPU: that compares two eager runs."""
    training, epochs = small_training(toy, device), EAGER_EPOCHS + _REPLAYS
    replayed, outcome = losses("full", training, epochs)
    eager, _ = losses(NOT_REPLAYED, training, epochs)
    found = equal("training", "replayed = eager", f"dropout {_DROPOUT}, {epochs} epochs", replayed, eager, outcome)
    return found if toy or outcome == REPLAYED else Check(**{**asdict(found), "passed": False})


def run(task: Task, report: Report) -> None:
    gpu.INTERPRETED = False  # a toy trains with a CPU's kernels
    report.item("replay", lambda: report.add(["checks"], asdict(check_replay(task.toy, task.device))), limit_s=100)
    gpu.INTERPRETED = task.toy
