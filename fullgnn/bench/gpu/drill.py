"""How a job ends whose last rank raises an error or is killed: models that fail while they are trained, and the check.

python -m fullgnn.train dataset=karate runtime.nproc=2 model._target_=fullgnn.bench.gpu.drill.Raises

With several GPUs the ranks have one each, over NCCL; otherwise two ranks share one, or a CPU, over gloo.
"""

import os
import re
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fullgnn.bench.config import BenchConfig
from fullgnn.bench.harness import Cases, Check, Outcome, Results
from fullgnn.bench.process import finished
from fullgnn.distributed import World
from fullgnn.models.gcn import GCN

FAILS_AT = 3
"""The epoch, from 1 on, in which it fails: before epochs are replayed as a CUDA graph, which runs no Python."""

SAYS = "the drill fails at"
"""What it writes before, with the time."""

ENDS_WITHIN_S = 30.0
"""A job whose rank has failed should have ended after so many seconds."""

WAYS = {"raises an error": ("Raises", "the drill has raised this error"), "is killed": ("Dies", "")}
"""How the last rank fails: the class, and words that the output must have."""

_LEAST_S, _MOST_S = 20.0, 120.0


class Raises(GCN):
    """A GCN that raises a ``RuntimeError`` in the forward pass of epoch ``FAILS_AT``, on the last rank alone."""

    _num_calls = 0

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        self._num_calls += self.training
        last = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
        if self.training and self._num_calls == FAILS_AT and last:
            print(f"{SAYS} {time.time()}", file=sys.stderr, flush=True)
            self.fail()
        return super().forward(*args, **kwargs)

    def fail(self) -> None:
        raise RuntimeError("the drill has raised this error on the last rank")


class Dies(Raises):
    """The same, but its process is killed, as by a machine that has too little memory."""

    def fail(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def run(cfg: BenchConfig, world: World) -> Results:
    """A check for each of ``WAYS``."""
    cases, on_gpu = Cases(cfg.limit_s, world.device), world.device.type == "cuda"
    num_gpus = torch.cuda.device_count() if on_gpu else 0
    num_ranks, backend = (min(num_gpus, 8), "nccl") if num_gpus > 1 else (2, "gloo")

    def check(way: str) -> Outcome:
        name, words = WAYS[way]
        command = drill_command(name, num_ranks, world.device.type, backend, Path(cfg.out) / name)
        output, errors, status = finished(command, min(_MOST_S, cases.budget.left))
        return Outcome(checks=[verdict(way, num_ranks, words, output + errors, status, time.time())])

    for way in WAYS:
        yield cases.run(f"a rank {way}", partial(check, way), {}, _LEAST_S * on_gpu, _MOST_S + 5)


def drill_command(name: str, num_ranks: int, device: str, backend: str, out: Path) -> list[str]:
    """``python -m fullgnn.train`` of a model that fails on the last rank."""
    keys = ["dataset=digits", "train.epochs=1000", f"model._target_=fullgnn.bench.gpu.drill.{name}"]
    keys += [f"runtime.nproc={num_ranks}", f"runtime.device={device}", f"runtime.backend={backend}", f"run_dir={out}"]
    return [sys.executable, "-m", "fullgnn.train", *keys]


def verdict(way: str, num_ranks: int, words: str, output: str, status: int, ended: float) -> Check:
    """How the job has ended.

    Args:
        words: what the output must have.
        output: all that the command has written; status: its exit status; ended: when it had ended, ``time.time()``.
    """
    begun, reasons, case = re.search(rf"{SAYS} ([\d.]+)", output), list[str](), f"{num_ranks} ranks"
    if begun is None:
        reasons.append("the drill did not take place")
    else:
        took_s = ended - float(begun[1])
        reasons += [f"it ended after {took_s:.0f} s"] if took_s > ENDS_WITHIN_S else []
        case += f", ended after {took_s:.1f} s with status {status}"
    reasons += ["its status is 0"] if status == 0 else []
    reasons += ["the reason is not in its output"] if words not in output else []
    said = f"{'; '.join(reasons)}: {' '.join(output.split())[-200:]}" if reasons else ""
    return Check("ranks", f"one {way}", case, passed=not said, said=said)
