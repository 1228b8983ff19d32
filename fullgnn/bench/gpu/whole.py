"""Run ``fullgnn.plan`` and ``fullgnn.reproduce`` as a user does, and keep what they leave."""

import json
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fullgnn.bench.gpu.command import run_or_raise
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.graph.lookalikes import LOOKALIKES, TOYS, Lookalike

TARGETS = ("fig8", "fig10", "table4", "table5", "fused_breakdown", "fused_fig7")
"""The targets of the reproduction that this part makes."""

HARDWARE = "h200x8"
_LEAST_TARGET_S, _PLAN_S, _TOY_PLAN_S = 20.0, 40.0, 200.0
_MOST_CHARACTERS = 20_000


def plan_command(shape: Lookalike, scale: float, out: Path) -> list[str]:
    """``python -m fullgnn.plan`` for the numbers of a look-alike, on 1 to 8 GPUs."""
    num_nodes, num_entries = shape.scaled(scale)
    numbers = [
        f"num_nodes={num_nodes}",
        f"num_edges={num_entries}",
        f"num_features={shape.num_features}",
        f"num_classes={shape.num_classes}",
        f"model.hidden_channels={shape.hidden}",
    ]
    own = ["experiment=full", f"hardware={HARDWARE}", "nproc=1,2,4,8", f"out={out}"]
    return [sys.executable, "-m", "fullgnn.plan", *numbers, *own]


def reproduce_command(target: str, out: Path) -> list[str]:
    """``python -m fullgnn.reproduce`` for one target, on the GPU."""
    return [sys.executable, "-m", "fullgnn.reproduce", f"target={target}", "device=cuda", f"out={out}"]


def planned(path: Path) -> list[dict[str, Any]]:
    """The fastest option that fits the memory, for each number of ranks, from a ``plan.json``."""
    best: dict[int, float] = {}
    for option in json.loads(path.read_text()):
        size, ms, needs = option["world_size"], option["epoch_time_ms"], option["prediction"]
        if needs["peak_tensor_bytes"] <= needs["memory_bytes"]:
            best[size] = min(ms, best.get(size, ms))
    return [{"world_size": size, "predicted_epoch": f"{best[size]:.3g} ms"} for size in sorted(best)]


def run(task: Task, report: Report) -> None:
    """Arguments of the task: ``scratch``, a folder; ``scales`` of the graphs that were trained on, by name."""
    if find_spec("hydra") is None:
        report.missing("reproduce and plan", "hydra-core is not installed: pip install hydra-core")
        return
    scratch = Path(task.arguments["scratch"])

    def plan(name: str, scale: float) -> None:
        out = scratch / f"plan-{name}"
        limit_s = min(_TOY_PLAN_S if task.toy else _PLAN_S, report.budget.left)
        run_or_raise(plan_command({**LOOKALIKES, **TOYS}[name], scale, out), limit_s)
        report.put(["plan", name], planned(out / "plan.json"))

    def reproduce(target: str) -> None:
        out = scratch / target
        try:
            run_or_raise(reproduce_command(target, out), report.budget.left)
        finally:
            for page in sorted(out.glob("*.md"))[:1]:
                report.put(["reproduce", target], page.read_text()[:_MOST_CHARACTERS])

    for name, scale in task.arguments["scales"].items():
        predicted_s = 0.0 if task.toy else _PLAN_S / 4
        report.item(f"plan {name}", partial(plan, name, scale), report.budget.left + 5, predicted_s)
    if task.toy:
        report.missing("reproduce", "a toy has no GPU")
        return
    for target in TARGETS:
        report.item(f"reproduce {target}", partial(reproduce, target), report.budget.left + 5, _LEAST_TARGET_S)
