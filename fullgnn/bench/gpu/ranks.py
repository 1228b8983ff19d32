"""Several ranks on one device, over gloo, against this process alone: the losses are equal.

Each rank is this file as a program. Every rank makes the same graph, and rank 0's is used.
"""

import json
import math
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch

from fullgnn.bench.gpu.check import Check
from fullgnn.bench.gpu.epoch import largest_error
from fullgnn.bench.gpu.lookalikes import TOYS, Lookalike, generate
from fullgnn.bench.gpu.training import make_problem, preset_config
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.bench.problem import Problem
from fullgnn.config import RuntimeConfig
from fullgnn.distributed import World, init_world, launch_workers, world_of_one
from fullgnn.engine import make_scheme, replay_for, set_up
from fullgnn.engine.train_step import TrainStep
from fullgnn.kernels.support import gpu
from fullgnn.telemetry.meter import Meter

SIZES = (2, 4)
TOY_SIZES = (2,)
TOLERANCE = 1e-5
SHAPE = Lookalike(20_000, 800_000, 100, 47, 64)
_EPOCHS = 8
_LIMIT_S, _TOY_LIMIT_S = 60.0, 150.0


def small_training(toy: bool, device: torch.device) -> Problem:
    """A graph that trains in seconds, the same on every call."""
    shape = TOYS["toy"] if toy else SHAPE
    graph = generate(shape, 1.0, 0, device)
    return make_problem(graph, graph.csr(graph.perm), graph.perm, shape)


def curve(
    toy: bool, device: torch.device, join: Callable[[RuntimeConfig], AbstractContextManager[World]]
) -> list[float]:
    """The losses of ``experiment=full`` with dropout, on every rank of the world that ``join`` enters."""
    problem = small_training(toy, device)
    indptr, indices = problem.indptr.long().cpu().numpy(), problem.indices.cpu().numpy()
    graph = replace(problem.graph, indptr=indptr, indices=indices)
    cfg = preset_config("full", problem)
    if not toy:
        cfg.kernel = {"_target_": "fullgnn.kernels.spmm.TritonCSR", "name": "csr", "mode": "ieee"}
    cfg.model |= {"dropout": 0.5}
    with join(cfg.runtime) as world:
        meter = Meter(world.device)
        scheme = make_scheme(cfg, world, meter)
        job = set_up(cfg, world, scheme, graph if world.rank == 0 else None)
        epochs = TrainStep(job.model, job.graph, scheme, cfg.train, meter, replay_for("never", world))
        return [epochs(epoch).loss.read() for epoch in range(1, _EPOCHS + 1)]


def run(task: Task, report: Report) -> None:
    """One case for one rank, which is this process, and one for each number of ranks that is compared with it."""
    gpu.INTERPRETED = False  # a toy trains with a CPU's kernels
    limit_s = _TOY_LIMIT_S if task.toy else _LIMIT_S
    expected = report.item("1 rank", lambda: curve(task.toy, task.device, world_of_one), limit_s)
    gpu.INTERPRETED = task.toy

    def once(size: int, expected: list[float]) -> None:
        runtime = preset_config("full", small_training(True, task.device)).runtime
        with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder:
            file = Path(folder) / "losses.json"
            launch_workers(["-m", "fullgnn.bench.gpu.ranks", json.dumps([task.toy, limit_s, str(file)])], size, runtime)
            error = largest_error(json.loads(file.read_text()), expected)
        case = f"{size} ranks, gloo, dropout 0.5"
        report.add(["checks"], asdict(Check("training", "losses", case, None, error, TOLERANCE, error <= TOLERANCE)))

    for size in TOY_SIZES if task.toy else SIZES:
        if expected is not None:
            report.item(f"{size} ranks", partial(once, size, expected), limit_s + 5)


def program(toy: bool, limit_s: float, file: str) -> None:
    """What one rank does, in ``limit_s`` seconds at most; rank 0 writes the losses to ``file``."""
    signal.alarm(math.ceil(limit_s))
    device = torch.device("cpu") if toy else torch.device("cuda", 0)

    losses = curve(toy, device, init_world)
    if os.environ["RANK"] == "0":
        Path(file).write_text(json.dumps(losses))


if __name__ == "__main__":
    program(*json.loads(sys.argv[1]))
