"""The parts of the GPU benchmark: functions that run one command after the other, the most wanted first.

Each command runs in a process with a time limit. What it has measured is in its record as soon as it is known, and goes
into ``<part>.json`` and ``<part>.md`` twice a second, so that nothing is lost when it, or the benchmark, is ended.
"""

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fullgnn.bench.gpu.__main__ import MINUTES
from fullgnn.bench.gpu.page import make_headline, make_page
from fullgnn.bench.gpu.sweep import TUNING_FILE, row_of, tuning_text
from fullgnn.bench.harness import Budget
from fullgnn.bench.process import run_or_raise
from fullgnn.config.overrides import quote
from fullgnn.graph.lookalikes import LOOKALIKES, TOYS, Lookalike
from fullgnn.storage.folder import temporary_folder, write_text
from fullgnn.storage.record import strict_json
from fullgnn.telemetry.machine import git_commit, hardware, versions

NOT_MEASURED = "not measured (interpreter)"

WARMUP = 6
"""Rounds of a benchmark that do not count: epochs are replayed as a CUDA graph from the fifth one on."""

START_S = 15.0
"""Time that a command needs before its first case: one with less time is left out."""

COUNTS = (1, 2, 4, 8)
"""Numbers of ranks, each with a GPU of its own."""

MODELS = {
    "GAT": "op=epoch gnn=gat graph=reddit-mini peers=[pyg] presets=[default]",
    "sampled GraphSAGE": "op=minibatch graph=products-mini peers=[pyg] "
    "\"presets=[default,'default cache=all','default cache=all loader.sample_on_gpu=true']\"",
    "LightGCN": "op=epoch gnn=lightgcn graph=products-mini batch_size=65536 peers=[torch]",
    "GATv2": "op=epoch gnn=gatv2 graph=products-mini peers=[pyg] presets=[default]",
    "GraphSAGE, maximum": "op=epoch gnn=sage-max graph=products-mini peers=[pyg] presets=[default]",
}
"""What products and epochs, which know GCN alone, leave out: the keys of each benchmark, by its title."""

TOY_MODELS = {
    "GAT": "op=epoch gnn=gat graph=tiny peers=[torch] presets=[default] epochs=9 threads=1",
    "sampled GraphSAGE": "op=minibatch graph=tiny batches=2 rounds=4 peers=[] threads=1",
}
TARGETS = ("fig8", "fig10", "table4", "table5", "fused_breakdown", "fused_fig7")
"""The targets of the reproduction that the part epochs makes."""

EPOCHS = (
    "op=epoch made=true dropouts=[0,0.5] launches=full warmup=1 budget_s=1.5 peers=[torch,pyg] "
    "\"presets=[full,hetu,'full runtime.cuda_graph=never','full optimizations.offload=always']\" "
    "\"methods=['torch CSR (AH)W + own backward','PyG GCNConv (torch CSR)','PyG GCNConv (EdgeIndex)']\""
)
"""The keys of the epochs on a look-alike."""

_ENVIRONMENT = {"TORCH_CPP_LOG_LEVEL": "ERROR", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Environment of all commands, where the user has set no other values. Collectives then stay on this machine."""

_RATES_S, _HITS_S, _PLAN_S, _MODEL_S, _RANKS_S = 50.0, 70.0, 40.0, 150.0, 100.0
_PRODUCTS_SHARE = 0.55  # of the time of a graph; the sweep has the rest
_FIRST_GRAPH_SHARE = 0.36  # of the time that is left then; the others share the rest
_WHOLE_S = 120.0
_MARGIN_S = 6.0  # for the start of Python and the end
_TOY_MINUTES = 10.0  # that it never needs, however busy the machine is
_MOST_CHARACTERS = 20_000
_TIMES = ("_ms", "_s", "ratio")  # ends of the keys whose values are times, or are made from times


class BenchPart:
    """A part: its time, and its results in ``<name>.json`` and, as a page, in ``<name>.md``; the part ``products`` also
    writes the tuning file of the sweep's winners.

    Args:
        options: of the command line.
        scratch: a folder for what is not kept.
    """

    def __init__(self, name: str, options: argparse.Namespace, scratch: Path):
        minutes = options.minutes or (_TOY_MINUTES if options.toy else MINUTES[name])
        self.name, self.toy, self.scale, self.scratch = name, options.toy, options.scale, scratch
        self.graphs, self._out = list(TOYS) if options.toy else options.graphs, options.out
        self.tuning = options.tuning.resolve() if options.tuning and name == "epochs" else None
        self.budget = Budget(60 * minutes - _MARGIN_S)
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

    def run(self) -> None:
        """Run all commands of the part, and keep their results whenever there are new ones."""
        try:
            PARTS[self.name](self)
            self.tree["finished"] = True
        finally:
            self.tree["run"]["elapsed_s"] = round(self.budget.elapsed, 1)
            self.write()
        if not self.toy:
            print(make_headline(self.tree), flush=True)
        self._say(f"{self._out / self.name}.md and {self.name}.json are written")

    def command(self, title: str, keys: str, seconds: float = math.inf, *more: str, module: str = "bench") -> Path:
        """Run a command of fullgnn, and return its folder; in a toy, and where ``seconds`` is infinite, it has all the
        time that is left."""
        seconds = self.budget.left if self.toy else min(seconds, self.budget.left)
        out = self.scratch / str(len(self.tree["commands"]))
        own = [f"device={'cpu' if self.toy else 'cuda'}", f"warmup={WARMUP}"]
        own += [f"cache_dir={quote(f'{self.scratch}/cache')}", f"limit_s={max(0.0, seconds - START_S):.0f}"]
        all_keys = [*(own if module == "bench" else []), *shlex.split(keys), *more, f"out={quote(str(out))}"]
        self.execute(title, [sys.executable, "-m", f"fullgnn.{module}", *all_keys], seconds, out)
        return out

    def execute(self, title: str, arguments: list[str], seconds: float, out: Path) -> None:
        """Run one command, whose results are in the folder ``out``. Nothing that it does ends the part."""
        text, begin = shlex.join(["python", *arguments[1:]]), self.budget.elapsed
        entry = self.add(title, command=text, state="begun")

        def look() -> None:
            if (result := kept(out)) != entry["result"]:
                entry["result"] = result
                self.write()

        try:
            if seconds < START_S:
                entry |= {"state": "left out", "reason": f"{seconds:.0f} s are left"}
            else:
                self._say(f"{title}: begun, {seconds:.0f} s")
                run_or_raise(arguments, seconds, look)
                entry["state"] = "done"
        except subprocess.TimeoutExpired:
            entry |= {"state": "left out", "reason": f"its time of {seconds:.0f} s was over"}
        except RuntimeError as error:
            entry |= {"state": "failed", "reason": str(error)}
        finally:
            entry["took_s"] = round(self.budget.elapsed - begin, 1)
            look()
            self.write()
        why = f": {entry['reason']}" if "reason" in entry else ""
        self._say(f"{title} {entry['state']} ({entry['took_s']} s){why}")

    def add(self, title: str, **fields: Any) -> dict[str, Any]:
        """The entry of a command, or of what cannot be measured, in the record."""
        self.tree["commands"].append({"title": title, "result": {}, **fields})
        return self.tree["commands"][-1]

    @property
    def last(self) -> dict[str, Any]:
        """What the last command has left; empty: nothing."""
        return self.tree["commands"][-1]["result"]

    def on_graph(self, graph: str, what: str, keys: str, seconds: float, *more: str) -> float | None:
        """Run a benchmark of a look-alike that is made on the device, and return the scale of the graph."""
        scale = [] if self.scale is None else [f"scale={self.scale:g}"]
        self.command(f"{graph}: {what}", f"{keys} graph={graph} backend=gloo", seconds, *scale, *more)
        return (self.last.get("problem") or {}).get("scale")

    def seconds_by_graph(self, reserved_s: float) -> Iterator[tuple[str, float]]:
        """Each graph, and the seconds for it."""
        for turn, name in enumerate(self.graphs):
            share = max(_FIRST_GRAPH_SHARE if turn == 0 else 0.0, 1 / (len(self.graphs) - turn))
            yield name, self.budget.part(share, reserved_s)

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


def checks(part: BenchPart) -> None:
    """The tests, then compute-sanitizer over a sample of them."""
    part.command("Checks", "op=checks backend=gloo")


def products(part: BenchPart) -> None:
    """Rates; then products and the sweep of one graph after the other; ncu last."""
    rates = part.command("Rates", "op=rates backend=gloo", _RATES_S)
    given = [f"rates={quote(str(rates / 'record.json'))}"] if part.last else []
    keys, scales = f"op=products widths={'[8]' if part.toy else '[128,64,47,41,8]'}", list[float | None]()
    for name, seconds in part.seconds_by_graph(_HITS_S):
        of_graph = Budget(seconds)
        scales.append(part.on_graph(name, "products", keys, _PRODUCTS_SHARE * seconds, *given))
        part.on_graph(name, "sweep", "op=sweep", of_graph.left)
    traffic = f"op=hits graph={part.graphs[0]} scale={scales[0] or 0.1:g} backend=gloo"
    part.command("Memory traffic by ncu", traffic)


def epochs(part: BenchPart) -> None:
    """The epochs of one graph after the other, ours and then the peers; then whole tables and plans."""
    own = ["at_once=2", "epochs=4"] if part.toy else ["at_once=10", "epochs=13"]
    own += [f"overrides=[{quote(f'runtime.cache_dir={part.scratch}/kernels')}]"]
    own += [] if part.tuning is None else [f"tuning={quote(str(part.tuning))}"]
    whole_s = 0.0 if part.toy else min(_WHOLE_S, 0.25 * part.budget.left)
    scales = {name: part.on_graph(name, "epochs", EPOCHS, s, *own) for name, s in part.seconds_by_graph(whole_s)}
    for name, scale in scales.items():
        if scale:
            keys = plan_keys({**LOOKALIKES, **TOYS}[name], scale)
            part.command(f"{name}: the plan", keys, _PLAN_S, module="plan")
    if part.toy:
        part.add("Reproduced", state="left out", reason="a toy has no GPU")
    for target in () if part.toy else TARGETS:
        part.command(f"Reproduced: {target}", f"target={target} device=cuda", module="reproduce")


def plan_keys(shape: Lookalike, scale: float) -> str:
    """The keys of ``fullgnn.plan`` for the numbers of a look-alike, on 1 to 8 GPUs."""
    num_nodes, num_entries = shape.scaled(scale)
    sizes = f"num_nodes={num_nodes} num_edges={num_entries} num_features={shape.num_features}"
    model = f"num_classes={shape.num_classes} model.hidden_channels={shape.hidden} experiment=full"
    return f"{sizes} {model} hardware=h200x8 nproc=1,2,4,8"


def models(part: BenchPart) -> None:
    """Models and trainings that the other parts leave out."""
    for title, keys in (TOY_MODELS if part.toy else MODELS).items():
        part.command(title, keys, _MODEL_S)


def ranks(part: BenchPart) -> None:
    """How a job ends whose rank fails; then epochs of our presets by the number of GPUs, where there are several."""
    part.command("How a job ends", "op=drill backend=gloo")
    num_gpus, title = 2 if part.toy else torch.cuda.device_count(), "Epochs by number of ranks"
    if num_gpus < 2:
        part.add(title, state="left out", reason="there is one GPU here")
    for graph in ("tiny epochs=9 threads=1",) if part.toy else ("products-mini", "reddit-mini"):
        for count in [count for count in COUNTS if count <= num_gpus > 1]:
            keys = f"op=epoch graph={graph} nproc={count} alone=[] peers=[] presets=[default,full]"
            part.command(f"{title}: {graph.split()[0]}", keys, _RANKS_S)


PARTS = {part.__name__: part for part in (checks, products, epochs, models, ranks)}


def run(options: argparse.Namespace) -> None:
    """The parts that were asked for, each with a budget and a record of its own."""
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    options.out.mkdir(parents=True, exist_ok=True)
    with temporary_folder() as scratch:
        if not os.access(Path.home(), os.W_OK):  # where Triton would keep what it compiles
            os.environ.setdefault("TRITON_CACHE_DIR", f"{scratch}/triton")
        for name in options.part:
            BenchPart(name, options, scratch / name).run()
            if name == "products" and options.tuning is None:
                options.tuning = options.out / TUNING_FILE


def kept(out: Path) -> dict[str, Any]:
    """What is kept of the folder of a command: results of a benchmark, a plan, or the page of a target."""
    texts = {path.name: path.read_text() for path in sorted([*out.glob("*.json"), *out.glob("*.md")])}
    if "op" in (fields := json.loads(texts.pop("record.json", "{}"))):
        return {key: fields[key] for key in ("op", "problem", "measurements", "checks", "missing", "gpu")}
    if "plan.json" in texts:
        return {"plan": planned(json.loads(texts["plan.json"]))}
    pages = [text for name, text in texts.items() if name.endswith(".md")]
    return {"page": pages[0][:_MOST_CHARACTERS]} if pages else {}


def planned(options: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fastest option of a plan that fits the memory, for each number of ranks."""
    best_ms = dict[int, float]()
    for option in sorted(options, key=lambda option: option["epoch_time_ms"]):
        if option["prediction"]["peak_tensor_bytes"] <= option["prediction"]["memory_bytes"]:
            best_ms.setdefault(option["world_size"], option["epoch_time_ms"])
    return [{"world_size": size, "predicted_epoch": f"{best_ms[size]:.3g} ms"} for size in sorted(best_ms)]


def without_times(node: Any) -> Any:
    """The tree of a record with words in the place of every time."""
    if isinstance(node, list):
        return [without_times(child) for child in node]
    if not isinstance(node, dict):
        return node
    return {key: NOT_MEASURED if key.endswith(_TIMES) else without_times(child) for key, child in node.items()}
