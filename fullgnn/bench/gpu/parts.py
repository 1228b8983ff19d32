"""Runs the parts of the GPU benchmark: a command after the other, each in a process with a time limit.

What a command has measured is in its record as soon as it is known, and goes into ``<part>.json`` and ``<part>.md``
twice a second, so that nothing is lost when it, or the benchmark, is ended.
"""

import argparse
import itertools
import json
import math
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fullgnn.bench.cases import Budget
from fullgnn.bench.gpu.__main__ import MINUTES
from fullgnn.bench.gpu.page import make_headline, make_page
from fullgnn.bench.gpu.tunables import TUNING_FILE, row_of, tuning_text
from fullgnn.bench.process import run_or_raise
from fullgnn.config.overrides import quote
from fullgnn.graph.lookalikes import TOYS
from fullgnn.storage.folder import write_text
from fullgnn.storage.record import strict_json
from fullgnn.telemetry.machine import git_commit, hardware, versions

NOT_MEASURED = "not measured (interpreter)"

_TIMES = ("_ms", "_s", "ratio")
"""Ends of the keys whose values are times, or are made from times."""

WARMUP = 6
"""Rounds of a benchmark that do not count: epochs are replayed as a CUDA graph from the fifth one on."""

START_S = 15.0
"""Time that a command needs before its first case: one with less time is left out."""

_FIRST_GRAPH_SHARE = 0.36  # of the time that is left then; the others share the rest
_MOST_CHARACTERS = 20_000
_MARGIN_S = 6.0  # for the start of Python and the end
_TOY_MINUTES = 10.0  # that it never needs, however busy the machine is


@dataclass(frozen=True)
class Command:
    """A command of a part."""

    title: str  # of its results on the page
    arguments: list[str]
    seconds: float  # it is ended then
    out: Path  # its folder


class BenchPart:
    """A part: its commands, its time, and its results in ``<name>.json`` and, as a page, in ``<name>.md``; the part
    ``products`` also writes the tuning file of the sweep's winners.

    Args:
        options: of the command line.
        scratch: a folder for what is not kept.
    """

    def __init__(self, name: str, options: argparse.Namespace, scratch: Path):
        minutes = options.minutes or (_TOY_MINUTES if options.toy else MINUTES[name])
        self.name, self.toy, self.scale, self.scratch, self._out = (
            name,
            options.toy,
            options.scale,
            scratch,
            options.out,
        )
        self.graphs = list(TOYS) if options.toy else options.graphs
        self.tuning = options.tuning.resolve() if options.tuning and name == "epochs" else None
        self.budget, self._numbers = Budget(60 * minutes - _MARGIN_S), itertools.count()
        machine = hardware(torch.device("cpu"))  # as far as it is known without its GPU, which a command describes
        run = {
            "part": name,
            "command": shlex.join(["./launch/gpu_bench", *sys.argv[1:]]),
            "times": NOT_MEASURED if self.toy else "measured, medians",
            "minutes": minutes,
            "tuning": "none given" if self.tuning is None else self.tuning.read_text(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "cpu": machine["cpu"],
            "num_cores": machine["num_cores"],
            "num_gpus": torch.cuda.device_count(),
            "git_commit": git_commit(),
            "versions": versions("triton", "torch_geometric"),
        }
        self.tree: dict[str, Any] = {"finished": False, "run": run, "commands": []}
        self.write()

    def run(self, commands: Iterable[Command]) -> None:
        """Run the commands, and keep their results whenever there are new ones."""
        try:
            for command in commands:
                self.run_once(command)
            self.tree["finished"] = True
        finally:
            self.tree["run"]["elapsed_s"] = round(self.budget.elapsed, 1)
            self.write()
        if not self.toy:
            print(make_headline(self.tree), flush=True)
        self._say(f"{self._out / self.name}.md and {self.name}.json are written")

    def run_once(self, command: Command) -> None:
        """Run one command. Nothing that it does ends the part."""
        text, begin = shlex.join(["python", *command.arguments[1:]]), self.budget.elapsed
        entry = self.add(command.title, command=text, state="begun")

        def look() -> None:
            if (result := kept(command.out)) != entry["result"]:
                entry["result"] = result
                self.write()

        try:
            if command.seconds < START_S:
                entry |= {"state": "left out", "reason": f"{command.seconds:.0f} s are left"}
            else:
                self._say(f"{command.title}: begun, {command.seconds:.0f} s")
                run_or_raise(command.arguments, command.seconds, look)
                entry["state"] = "done"
        except subprocess.TimeoutExpired:
            entry |= {"state": "left out", "reason": f"its time of {command.seconds:.0f} s was over"}
        except RuntimeError as error:
            entry |= {"state": "failed", "reason": str(error)}
        finally:
            entry["took_s"] = round(self.budget.elapsed - begin, 1)
            look()
            self.write()
        why = f": {entry['reason']}" if "reason" in entry else ""
        self._say(f"{command.title} {entry['state']} ({entry['took_s']} s){why}")

    def add(self, title: str, **fields: Any) -> dict[str, Any]:
        """The entry of a command, or of what cannot be measured, in the record."""
        self.tree["commands"].append({"title": title, "result": {}, **fields})
        return self.tree["commands"][-1]

    def command(self, title: str, keys: str, seconds: float = math.inf, *more: str, module: str = "bench") -> Command:
        """A command of fullgnn; in a toy, and where ``seconds`` is infinite, it has all the time that is left."""
        seconds, out = (
            self.budget.left if self.toy else min(seconds, self.budget.left),
            self.scratch / f"{next(self._numbers)}",
        )
        own = [
            f"device={'cpu' if self.toy else 'cuda'}",
            f"warmup={WARMUP}",
            f"cache_dir={quote(f'{self.scratch}/cache')}",
        ]
        own = [*own, f"limit_s={max(0.0, seconds - START_S):.0f}"] if module == "bench" else []
        keys_of = [*own, *shlex.split(keys), *more, f"out={quote(str(out))}"]
        return Command(title, [sys.executable, "-m", f"fullgnn.{module}", *keys_of], seconds, out)

    def on_graph(self, graph: str, what: str, keys: str, seconds: float, *more: str) -> Command:
        """A benchmark of a look-alike that is made on the device."""
        scale = [] if self.scale is None else [f"scale={self.scale:g}"]
        return self.command(f"{graph}: {what}", f"{keys} graph={graph} backend=gloo", seconds, *scale, *more)

    def seconds_by_graph(self, reserved_s: float) -> Iterator[tuple[str, float]]:
        """Each graph, and the seconds for it."""
        for turn, name in enumerate(self.graphs):
            share = max(_FIRST_GRAPH_SHARE if turn == 0 else 0.0, 1 / (len(self.graphs) - turn))
            yield name, self.budget.part(share, reserved_s)

    def result(self, title: str) -> dict[str, Any]:
        """What a command has left so far; empty: nothing."""
        return next((entry["result"] for entry in self.tree["commands"] if entry["title"] == title), {})

    def made_scale(self, title: str) -> float | None:
        """The scale of the graph that a command has made."""
        return (self.result(title).get("problem") or {}).get("scale")

    def write(self) -> None:
        """Write all files, each in one step: they are whole whenever the program ends."""
        tree = without_times(self.tree) if self.toy else self.tree
        texts = {f"{self.name}.json": strict_json(tree, indent=1) + "\n", f"{self.name}.md": make_page(tree)}
        if self.name == "products":
            results = [entry["result"] for entry in tree["commands"]]
            rows = [row_of(row) for left in results if left.get("op") == "sweep" for row in left["measurements"]]
            gpu = next((result["gpu"]["name"] for result in results if result.get("gpu")), None)
            texts[TUNING_FILE] = tuning_text(rows, gpu)
        for name, text in texts.items():
            write_text(self._out / name, text)

    def _say(self, line: str) -> None:
        print(f"[{self.name}, {self.budget.left:4.0f} s left] {line}", flush=True)


def kept(out: Path) -> dict[str, Any]:
    """What is kept of the folder of a command: results of a benchmark, a plan, or the page of a target."""
    record, plan = (
        (out / name).read_text() if (out / name).exists() else "{}" for name in ("record.json", "plan.json")
    )
    if "op" in (fields := json.loads(record)):
        return {key: fields[key] for key in ("op", "problem", "measurements", "checks", "missing", "gpu")}
    if options := json.loads(plan):
        return {"plan": planned(options)}
    pages = sorted(out.glob("*.md"))[:1]
    return {"page": pages[0].read_text()[:_MOST_CHARACTERS]} if pages else {}


def planned(options: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fastest option of a plan that fits the memory, for each number of ranks."""
    best: dict[int, float] = {}
    for option in options:
        size, ms, needs = option["world_size"], option["epoch_time_ms"], option["prediction"]
        if needs["peak_tensor_bytes"] <= needs["memory_bytes"]:
            best[size] = min(ms, best.get(size, ms))
    return [{"world_size": size, "predicted_epoch": f"{best[size]:.3g} ms"} for size in sorted(best)]


def without_times(node: Any) -> Any:
    """The tree of a record with words in the place of every time."""
    if isinstance(node, list):
        return [without_times(child) for child in node]
    if not isinstance(node, dict):
        return node
    return {key: NOT_MEASURED if key.endswith(_TIMES) else without_times(child) for key, child in node.items()}
