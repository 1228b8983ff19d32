"""Several ranks: the epochs of 1, 2, 4 and 8 GPUs, and how a job ends whose last rank raises an error or is killed.

Where there is one GPU, two ranks share it over gloo in the second part, and there are no epochs to compare.
"""

import re
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from fullgnn.bench.gpu.command import finished, measured
from fullgnn.bench.gpu.record import Check
from fullgnn.bench.gpu.worker import Report, Task

COUNTS = (1, 2, 4, 8)
"""Numbers of ranks, each with a GPU of its own."""

GRAPHS = ("products-mini", "reddit-mini")
ENDS_WITHIN_S = 30.0
"""A job whose rank has failed should have ended after so many seconds."""

WAYS = {"raises an error": ("Raises", "the drill has raised this error"), "is killed": ("Dies", "")}
"""How the last rank fails: the class of ``drill.py``, and words that the output must have."""

_LEAST_S, _MOST_S, _DRILL_S = 20.0, 100.0, 120.0


def epoch_keys(graph: str, num_ranks: int, toy: bool) -> list[str]:
    """The keys of ``fullgnn.bench`` for our epochs alone."""
    own = ["epochs=9", "threads=1"] if toy else []
    return ["op=epoch", f"graph={graph}", f"nproc={num_ranks}", "alone=[]", "peers=[]", "presets=[default,full]", *own]


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
    begun = re.search(r"the drill fails at ([\d.]+)", output)
    took_s = ended - float(begun[1]) if begun else None
    reasons = [
        "the drill did not take place" if took_s is None else "",
        f"it ended after {took_s:.0f} s" if took_s is not None and took_s > ENDS_WITHIN_S else "",
        "its status is 0" if status == 0 else "",
        "the reason is not in its output" if words not in output else "",
    ]
    said = "; ".join(filter(None, reasons))
    said += f": {' '.join(output.split())[-200:]}" if said else ""
    case = f"{num_ranks} ranks" + ("" if took_s is None else f", ended after {took_s:.1f} s with status {status}")
    return Check("ranks", f"one {way}", case, passed=not said, said=said)


def over_one(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of one graph, with the speed-up over the same method on one rank."""
    rows = list(rows)
    alone = {row["method"]: row["median_ms"] for row in rows if row.get("ranks") == 1}
    return [
        row
        | ({"speed_up": alone[row["method"]] / row["median_ms"]} if row["method"] in alone and "ranks" in row else {})
        for row in rows
    ]


def run(task: Task, report: Report) -> None:
    """Argument of the task: ``scratch``, a folder."""
    if find_spec("hydra") is None:
        report.missing("ranks", "hydra-core is not installed: pip install hydra-core")
        return
    scratch, device = Path(task.arguments["scratch"]), task.device.type
    num_gpus = 0 if task.toy else torch.cuda.device_count()
    counts = COUNTS[:2] if task.toy else [count for count in COUNTS if count <= num_gpus]

    def drill(way: str, num_ranks: int, backend: str) -> None:
        name, words = WAYS[way]
        command = drill_command(name, num_ranks, device, backend, scratch / name)
        output, errors, status = finished(command, min(_DRILL_S, report.budget.left))
        report.add(["checks"], asdict(verdict(way, num_ranks, words, output + errors, status, time.time())))

    def measure(graph: str, num_ranks: int) -> None:
        limit_s = report.budget.left if task.toy else min(_MOST_S, report.budget.left)
        found = measured(epoch_keys(graph, num_ranks, task.toy), device, scratch / f"{graph}-{num_ranks}", limit_s)
        rows[graph] += found
        report.put(["ranks", graph], over_one(rows[graph]))

    own_gpu = num_gpus > 1
    for way in WAYS:
        case = partial(drill, way, max(counts[-1], 2), "nccl" if own_gpu else "gloo")
        report.item(f"a rank {way}", case, report.budget.left + 5, 0.0 if task.toy else _LEAST_S)
    if not own_gpu and not task.toy:
        report.missing("epochs of several ranks", "there is one GPU here")
        return
    rows: dict[str, list[dict[str, Any]]] = {graph: [] for graph in (("tiny",) if task.toy else GRAPHS)}
    for graph in rows:
        for count in counts:
            case = partial(measure, graph, count)
            report.item(f"{graph}, {count} ranks", case, report.budget.left + 5, 0.0 if task.toy else _LEAST_S)
