"""Several ranks on one device, over gloo, against one: the same losses.

Each rank is this file as a program (``python -m fullgnn.bench.gpu.ranks``), with torchrun's environment. Every rank makes
the same graph, and rank 0's is used.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from fullgnn import gpu
from fullgnn.bench.gpu.check import Check
from fullgnn.bench.gpu.epoch import loss_error
from fullgnn.bench.gpu.ours import free_port, host_graph, preset_config, use_loopback
from fullgnn.bench.gpu.replays import small_training
from fullgnn.bench.gpu.worker import Report, Task

SIZES = (1, 2, 4)
TOY_SIZES = (1, 2)
TOLERANCE = 1e-5
_EPOCHS = 8
_LIMIT_S = 60.0


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


def program(arguments: dict[str, Any]) -> None:
    """What one rank does."""
    from fullgnn.dist import init_world
    from fullgnn.engine import make_scheme, replay_for, set_up
    from fullgnn.engine.fit import Epochs
    from fullgnn.meter import Meter

    toy = arguments["toy"]
    gpu.INTERPRETED = False
    training = small_training(toy, torch.device("cpu" if toy else "cuda"))
    csr = training.csr
    graph = host_graph(training, csr.indptr.long().cpu().numpy(), csr.indices.cpu().numpy())
    cfg = preset_config("full", training)
    if not toy:
        cfg.kernel = {"_target_": "fullgnn.kernels.TritonCSR", "name": "csr", "mode": "ieee"}
    cfg.model |= {"dropout": 0.5}
    with init_world(cfg.runtime) as world:
        meter = Meter(world.device)
        scheme = make_scheme(cfg, world, meter)
        job = set_up(cfg, world, scheme, graph if world.rank == 0 else None)
        epochs = Epochs(job.model, job.graph, scheme, cfg.train, meter, replay_for("never", world))
        losses = [epochs(epoch).loss.read() for epoch in range(1, _EPOCHS + 1)]
    if int(os.environ["RANK"]) == 0:
        print(f"losses: {json.dumps(losses)}", flush=True)


def run(task: Task, report: Report) -> None:
    """An item for each number of ranks; the first is what the others are compared with."""
    curves: dict[int, list[float]] = {}

    def once(size: int) -> None:
        curves[size] = run_ranks(size, task.toy, min(_LIMIT_S, report.budget.left))
        if size > 1 and 1 in curves:
            error = loss_error(curves[size], curves[1])
            check = Check(
                "training", "losses", f"{size} ranks, gloo, dropout 0.5", None, error, TOLERANCE, error <= TOLERANCE
            )
            report.add(["checks"], asdict(check))

    for size in TOY_SIZES if task.toy else SIZES:
        report.item(f"{size} ranks", partial(once, size), limit_s=_LIMIT_S + 5)


if __name__ == "__main__":
    program(json.loads(sys.argv[1]))
