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

from fullgnn.bench.gpu.epoch import largest_error
from fullgnn.bench.gpu.lookalikes import TOYS, Lookalike, generate
from fullgnn.bench.gpu.record import Check
from fullgnn.bench.gpu.training import make_problem, preset_config
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.config import RuntimeConfig
from fullgnn.distributed import World, init_world, launch_workers, world_of_one
from fullgnn.engine.trainer import make_training
from fullgnn.kernels.support import gpu

SIZES = (2, 4)
TOY_SIZES = (2,)
TOLERANCE = 1e-5
SHAPE = Lookalike(20_000, 800_000, 100, 47, 64)
_EPOCHS = 8
_LIMIT_S, _TOY_LIMIT_S = 60.0, 150.0


def curve(
    toy: bool, device: torch.device, join: Callable[[RuntimeConfig], AbstractContextManager[World]]
) -> list[float]:
    """The losses of ``experiment=full`` with dropout, on every rank of the world that ``join`` enters.

    The graph trains in seconds, and is the same on every call.
    """
    shape = TOYS["toy"] if toy else SHAPE
    made = generate(shape, 1.0, 0, device)
    problem = make_problem(made, made.csr(made.perm), made.perm, shape)
    indptr, indices = problem.indptr.long().cpu().numpy(), problem.indices.cpu().numpy()
    graph = replace(problem.graph, indptr=indptr, indices=indices)
    cfg = preset_config("full, not replayed", device, shape.hidden)
    if not toy:
        cfg.kernel = {"_target_": "fullgnn.kernels.spmm.TritonCSR", "name": "csr", "mode": "ieee"}
    cfg.model |= {"dropout": 0.5}
    with join(cfg.runtime) as world:
        _, epochs, _ = make_training(cfg, world, graph if world.rank == 0 else None)
        return [epochs(epoch).loss.read() for epoch in range(1, _EPOCHS + 1)]


def run(task: Task, report: Report) -> None:
    """One case for one rank, which is this process, and one for each number of ranks that is compared with it."""
    gpu.INTERPRETED = False  # a toy trains with a CPU's kernels
    limit_s = _TOY_LIMIT_S if task.toy else _LIMIT_S
    alone = report.item("1 rank", partial(curve, task.toy, task.device, world_of_one), limit_s)
    gpu.INTERPRETED = task.toy
    if alone is None:
        return

    def compare(size: int) -> None:
        runtime = preset_config("full", task.device, SHAPE.hidden).runtime
        with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder:
            file = Path(folder) / "losses.json"
            launch_workers(["-m", "fullgnn.bench.gpu.ranks", json.dumps([task.toy, limit_s, str(file)])], size, runtime)
            error = largest_error(json.loads(file.read_text()), alone)
        case, passed = f"{size} ranks, gloo, dropout 0.5", error <= TOLERANCE
        check = Check("training", "losses", case, error=error, tolerance=TOLERANCE, passed=passed)
        report.add(["checks"], asdict(check))

    for size in TOY_SIZES if task.toy else SIZES:
        report.item(f"{size} ranks", partial(compare, size), limit_s + 5)


def program(toy: bool, limit_s: float, file: str) -> None:
    """What one rank does, in ``limit_s`` seconds at most; rank 0 writes the losses to ``file``."""
    signal.alarm(math.ceil(limit_s))
    losses = curve(toy, torch.device("cpu") if toy else torch.device("cuda", 0), init_world)
    if os.environ["RANK"] == "0":
        Path(file).write_text(json.dumps(losses))


if __name__ == "__main__":
    program(*json.loads(sys.argv[1]))
