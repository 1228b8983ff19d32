"""Runs the parts of the GPU benchmark: a command after the other, each in a process with a time limit.

What a command has measured is in its record as soon as it is known, and goes into ``<part>.json`` and ``<part>.md``
twice a second, so that nothing is lost when it, or the benchmark, is ended.
"""

import argparse
import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fullgnn.bench.cases import Budget
from fullgnn.bench.gpu.__main__ import MINUTES
from fullgnn.bench.gpu.commands import PARTS, START_S, Command, Plan
from fullgnn.bench.gpu.page import make_headline, make_page
from fullgnn.bench.gpu.tunables import TUNING_FILE, row_of, tuning_text
from fullgnn.bench.process import run_or_raise
from fullgnn.graph.lookalikes import TOYS
from fullgnn.storage.folder import temporary_folder, write_text
from fullgnn.storage.record import strict_json
from fullgnn.telemetry.machine import git_commit, hardware, versions

NOT_MEASURED = "not measured (interpreter)"

_TIMES = ("_ms", "_s", "ratio")
"""Ends of the keys whose values are times, or are made from times."""

_ENVIRONMENT = {"TORCH_CPP_LOG_LEVEL": "ERROR", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Environment of all commands, where the user has set no other values. Collectives then stay on this machine."""

_MARGIN_S = 6.0  # for the start of Python and the end
_TOY_MINUTES = 10.0  # that it never needs, however busy the machine is


def run(options: argparse.Namespace) -> None:
    """The parts that were asked for, each with a budget and a record of its own."""
    tuning = None if options.tuning is None else str(options.tuning.resolve())
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    options.out.mkdir(parents=True, exist_ok=True)
    with temporary_folder() as scratch:
        if not os.access(Path.home(), os.W_OK):  # where Triton would keep what it compiles
            os.environ.setdefault("TRITON_CACHE_DIR", f"{scratch}/triton")
        for name in options.part:
            minutes = options.minutes or (_TOY_MINUTES if options.toy else MINUTES[name])
            budget = Budget(60 * minutes - _MARGIN_S)
            given = tuning if name == "epochs" else None
            record = PartRecord(options.out, name, not options.toy, about(name, options.toy, minutes, given))
            graphs = list(TOYS) if options.toy else options.graphs
            plan = Plan(scratch / name, options.toy, graphs, options.scale, given, budget, record.result)
            run_part(plan, record)
            if name == "products" and tuning is None:
                tuning = str((options.out / TUNING_FILE).resolve())


def run_part(plan: Plan, record: "PartRecord") -> None:
    """The commands of a part, and its record whenever there are new results."""
    try:
        for command in PARTS[record.name](plan):
            run_once(command, plan.budget, record)
        record.tree["finished"] = True
    finally:
        record.tree["run"]["elapsed_s"] = round(plan.budget.elapsed, 1)
        record.write()
    if record.measured:
        print(make_headline(record.tree), flush=True)
    record.say(plan.budget, f"{record.folder / record.name}.md and {record.name}.json are written")


def run_once(command: Command, budget: Budget, record: "PartRecord") -> None:
    """One command. Nothing that it does ends the part."""
    entry = record.add(command)
    seconds, begin = min(command.seconds, budget.left), Budget(0.0)

    def look() -> None:
        result = command.read(command.out)
        if result != entry["result"]:
            entry["result"] = result
            record.write()

    try:
        if seconds < START_S:
            entry |= {"state": "left out", "reason": f"{seconds:.0f} s are left"}
        else:
            record.say(budget, f"{command.title}: begun, {seconds:.0f} s")
            run_or_raise(command.arguments, seconds, look)
            entry["state"] = "done"
    except subprocess.TimeoutExpired:
        entry |= {"state": "left out", "reason": f"its time of {seconds:.0f} s was over"}
    except RuntimeError as error:
        entry |= {"state": "failed", "reason": str(error)}
    finally:
        entry["took_s"] = round(begin.elapsed, 1)
        look()
        record.write()
    why = f": {entry['reason']}" if "reason" in entry else ""
    record.say(budget, f"{command.title} {entry['state']} ({entry['took_s']} s){why}")


class PartRecord:
    """The results of a part, in ``<part>.json`` and, as a page, in ``<part>.md``; the part ``products`` also writes the
    tuning file of the sweep's winners.

    Args:
        folder: where the files go.
        measured: whether times mean anything; otherwise every time is written as not measured.
        run: what was asked for, and where.
    """

    def __init__(self, folder: Path, name: str, measured: bool, run: dict[str, Any]):
        self.folder, self.name, self.measured = folder, name, measured
        self.tree: dict[str, Any] = {"finished": False, "run": run, "commands": []}
        self.write()

    def add(self, command: Command) -> dict[str, Any]:
        """The entry of a command that begins."""
        text = shlex.join(["python", *command.arguments[1:]])
        self.tree["commands"].append({"title": command.title, "command": text, "state": "begun", "result": {}})
        return self.tree["commands"][-1]

    def result(self, title: str) -> dict[str, Any]:
        """What a command has left so far; empty: nothing."""
        return next((entry["result"] for entry in self.tree["commands"] if entry["title"] == title), {})

    def say(self, budget: Budget, line: str) -> None:
        """Tell the user."""
        print(f"[{self.name}, {budget.left:4.0f} s left] {line}", flush=True)

    def write(self) -> None:
        """Write all files, each in one step: they are whole whenever the program ends."""
        tree = self.tree if self.measured else without_times(self.tree)
        texts = {f"{self.name}.json": strict_json(tree, indent=1) + "\n", f"{self.name}.md": make_page(tree)}
        if self.name == "products":
            results = [entry["result"] for entry in tree["commands"]]
            rows = [row_of(row) for one in results if one.get("op") == "sweep" for row in one["measurements"]]
            gpu = next((result["gpu"]["name"] for result in results if result.get("gpu")), None)
            texts[TUNING_FILE] = tuning_text(rows, gpu)
        for name, text in texts.items():
            write_text(self.folder / name, text)


def without_times(node: Any) -> Any:
    """The tree of a record with words in the place of every time."""
    if isinstance(node, list):
        return [without_times(child) for child in node]
    if not isinstance(node, dict):
        return node
    return {key: NOT_MEASURED if key.endswith(_TIMES) else without_times(child) for key, child in node.items()}


def about(name: str, toy: bool, minutes: float, tuning: str | None) -> dict[str, Any]:
    """What was asked for, and the machine as far as it is known without its GPU, which a command describes."""
    machine = hardware(torch.device("cpu"))
    del machine["gpu"]
    return {
        "part": name,
        "command": shlex.join(["./launch/gpu_bench", *sys.argv[1:]]),
        "times": NOT_MEASURED if toy else "measured, medians",
        "minutes": minutes,
        "tuning": "none given" if tuning is None else Path(tuning).read_text(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **machine,
        "num_gpus": torch.cuda.device_count(),
        "git_commit": git_commit(),
        "versions": versions("triton", "torch_geometric"),
    }
