"""Several ranks on one device, over gloo, against this process alone: the same losses.

Each rank is this file as a program (``python -m fullgnn.bench.gpu.ranks``), with torchrun's environment. Every rank
makes the same graph, and rank 0's is used.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import torch

from fullgnn.bench.gpu.epoch import loss_error
from fullgnn.bench.gpu.lookalikes import TOYS, Lookalike, generate, make_nodes
from fullgnn.bench.gpu.ours import alone, free_port, host_graph, preset_config, use_loopback
from fullgnn.bench.gpu.training import Training, as_training
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.config import RuntimeConfig
from fullgnn.distributed import World, init_world
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


def run_ranks(size: int, toy: bool, seconds: float) -> list[float]:
    """The losses of a training on ``size`` ranks.

    Raises:
        RuntimeError: a rank failed, or they took longer; it says what the rank printed last.
    """
    use_loopback()
    shared = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "fullgnn.bench.gpu.ranks", json.dumps({"toy": toy})]
    processes = [
        subprocess.Popen(
            command,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    end = time.monotonic() + seconds
    try:
        outputs = [process.communicate(timeout=max(0.1, end - time.monotonic())) for process in processes]
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{size} ranks took longer than {seconds:.0f} s") from error
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.communicate()
    for process, (_, errors) in zip(processes, outputs):
        if process.returncode:
            raise RuntimeError(f"a rank of {size} ended with {process.returncode}: {errors.strip()[-300:]}")
    return json.loads(outputs[0][0].rpartition("losses: ")[2].splitlines()[0])


def small_training(toy: bool, device: torch.device) -> Training:
    """A graph that trains in seconds, the same on every call."""
    shape = TOYS["toy"] if toy else SHAPE
    graph = generate(shape, 1.0, 0, device)
    return as_training(graph.csr(graph.perm), make_nodes(graph, shape, graph.perm, 0), shape)


def curve(
    toy: bool, device: torch.device, join: Callable[[RuntimeConfig], AbstractContextManager[World]]
) -> list[float]:
    """The losses of ``experiment=full`` with dropout, on every rank of the world that ``join`` enters."""
    training = small_training(toy, device)
    graph = host_graph(training, training.csr.indptr.long().cpu().numpy(), training.csr.indices.cpu().numpy())
    cfg = preset_config("full", training)
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
    """An item for one rank, which is this process, and one for each number of ranks that is compared with it."""
    gpu.INTERPRETED = False  # a toy trains with a CPU's kernels
    expected = report.item("1 rank", lambda: curve(task.toy, task.device, alone), limit_s=_LIMIT_S)
    gpu.INTERPRETED = task.toy

    def once(size: int, expected: list[float]) -> None:
        limit_s = _TOY_LIMIT_S if task.toy else _LIMIT_S
        found = run_ranks(size, task.toy, min(limit_s, report.budget.left))
        error = loss_error(found, expected)
        case = f"{size} ranks, gloo, dropout 0.5"
        check = {"subject": "training", "what": "losses", "case": case, "error": error, "tolerance": TOLERANCE}
        report.add(["checks"], check | {"passed": error <= TOLERANCE})

    for size in TOY_SIZES if task.toy else SIZES:
        if expected is not None:
            report.item(f"{size} ranks", partial(once, size, expected), limit_s=_TOY_LIMIT_S)


def program(toy: bool) -> None:
    """What one rank does."""
    device = torch.device("cpu") if toy else torch.device("cuda", 0)
    losses = curve(toy, device, init_world)
    if os.environ["RANK"] == "0":
        print(f"losses: {json.dumps(losses)}", flush=True)


if __name__ == "__main__":
    program(json.loads(sys.argv[1])["toy"])
