"""The commands of each part of the GPU benchmark, the most wanted first, and how the part's time is shared."""

import itertools
import json
import math
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fullgnn.bench.cases import Budget
from fullgnn.config.overrides import quote
from fullgnn.graph.lookalikes import LOOKALIKES, TOYS, Lookalike

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

HARDWARE = "h200x8"
WARMUP = 6
"""Rounds of a benchmark that do not count: epochs are replayed as a CUDA graph from the fifth one on."""

EPOCHS = (
    "op=epoch made=true dropouts=[0,0.5] launches=full warmup=1 budget_s=1.5 peers=[torch,pyg] "
    "\"presets=[full,hetu,'full runtime.cuda_graph=never','full optimizations.offload=always']\" "
    "\"methods=['torch CSR (AH)W + own backward','PyG GCNConv (torch CSR)','PyG GCNConv (EdgeIndex)']\""
)
"""The keys of the epochs on a look-alike."""

START_S = 15.0
"""Time that a command needs before its first case: one with less time is left out."""

_RATES_S, _HITS_S, _PLAN_S, _MODEL_S, _RANKS_S = 50.0, 70.0, 40.0, 150.0, 100.0
_FIRST_GRAPH_SHARE = 0.36  # of the time that is left then; the others share the rest
_PRODUCTS_SHARE = 0.55  # of the time of a graph; the sweep has the rest
_WHOLE_S = 120.0
_MOST_CHARACTERS = 20_000


Read = Callable[[Path], dict[str, Any]]
"""What is kept of the folder of a command."""


@dataclass(frozen=True)
class Command:
    """A command of a part."""

    title: str  # of its results on the page
    arguments: list[str]
    seconds: float  # it is ended then
    out: Path  # its folder
    read: Read


@dataclass(frozen=True)
class Plan:
    """What the commands of a part depend on."""

    scratch: Path
    toy: bool
    graphs: list[str]
    scale: float | None
    tuning: str | None
    budget: Budget
    results: Callable[[str], dict[str, Any]]  # title -> what a command has left so far
    numbers: Iterator[int] = field(default_factory=itertools.count)  # of the folders

    def command(
        self,
        title: str,
        keys: str,
        seconds: float = math.inf,
        *more: str,
        module: str = "bench",
        read: Read | None = None,
    ) -> Command:
        """A command of fullgnn; in a toy, and where ``seconds`` is infinite, it has all the time that is left."""
        seconds, out = (
            self.budget.left if self.toy else min(seconds, self.budget.left),
            self.scratch / f"{next(self.numbers)}",
        )
        own = [
            f"device={'cpu' if self.toy else 'cuda'}",
            f"warmup={WARMUP}",
            f"cache_dir={quote(f'{self.scratch}/cache')}",
        ]
        own += [f"limit_s={max(0.0, seconds - START_S):.0f}"]
        keys_of = [*(own if module == "bench" else []), *shlex.split(keys), *more, f"out={quote(str(out))}"]
        return Command(title, [sys.executable, "-m", f"fullgnn.{module}", *keys_of], seconds, out, read or kept)

    def on_graph(self, graph: str, what: str, keys: str, seconds: float, *more: str) -> Command:
        """A benchmark of a look-alike that is made on the device."""
        scale = [] if self.scale is None else [f"scale={self.scale:g}"]
        return self.command(f"{graph}: {what}", f"{keys} graph={graph} backend=gloo", seconds, *scale, *more)

    def seconds_by_graph(self, reserved_s: float) -> Iterator[tuple[str, float]]:
        """Each graph, and the seconds for it."""
        for turn, name in enumerate(self.graphs):
            share = max(_FIRST_GRAPH_SHARE if turn == 0 else 0.0, 1 / (len(self.graphs) - turn))
            yield name, self.budget.part(share, reserved_s)

    def made_scale(self, title: str) -> float | None:
        """The scale of the graph that a command has made."""
        return (self.results(title).get("problem") or {}).get("scale")


Commands = Iterator[Command]


def check_commands(plan: Plan) -> Commands:
    """The tests, then compute-sanitizer over a sample of them."""
    yield plan.command("Checks", "op=checks backend=gloo")


def product_commands(plan: Plan) -> Commands:
    """Rates; then products and the sweep of one graph after the other; ncu last."""
    rates = plan.command("Rates", "op=rates backend=gloo", _RATES_S)
    yield rates
    given = [f"rates={quote(str(rates.out / 'record.json'))}"] if plan.results("Rates") else []
    for name, seconds in plan.seconds_by_graph(_HITS_S):
        of_graph = Budget(seconds)
        widths = "widths=[8]" if plan.toy else "widths=[128,64,47,41,8]"
        yield plan.on_graph(name, "products", f"op=products {widths}", _PRODUCTS_SHARE * seconds, *given)
        yield plan.on_graph(name, "sweep", "op=sweep", of_graph.left)
    scale = plan.made_scale(f"{plan.graphs[0]}: products") or 0.1
    yield plan.command("Memory traffic by ncu", f"op=hits graph={plan.graphs[0]} scale={scale:g} backend=gloo")


def epoch_commands(plan: Plan) -> Commands:
    """The epochs of one graph after the other, ours and then the peers; then whole tables and plans."""
    own = ["at_once=2", "epochs=4"] if plan.toy else ["at_once=10", "epochs=13"]
    own += [f"overrides=[{quote(f'runtime.cache_dir={plan.scratch}/kernels')}]"]
    own += [] if plan.tuning is None else [f"tuning={quote(plan.tuning)}"]
    for name, seconds in plan.seconds_by_graph(0.0 if plan.toy else min(_WHOLE_S, 0.25 * plan.budget.left)):
        yield plan.on_graph(name, "epochs", EPOCHS, seconds, *own)
    for name in plan.graphs:
        if scale := plan.made_scale(f"{name}: epochs"):
            keys = plan_keys({**LOOKALIKES, **TOYS}[name], scale)
            yield plan.command(f"{name}: the plan", keys, _PLAN_S, module="plan", read=planned)
    for target in () if plan.toy else TARGETS:
        keys = f"target={target} device=cuda"
        yield plan.command(f"Reproduced: {target}", keys, module="reproduce", read=reproduced)


def plan_keys(shape: Lookalike, scale: float) -> str:
    """The keys of ``fullgnn.plan`` for the numbers of a look-alike, on 1 to 8 GPUs."""
    num_nodes, num_entries = shape.scaled(scale)
    sizes = f"num_nodes={num_nodes} num_edges={num_entries} num_features={shape.num_features}"
    model = f"num_classes={shape.num_classes} model.hidden_channels={shape.hidden} experiment=full"
    return f"{sizes} {model} hardware={HARDWARE} nproc=1,2,4,8"


def model_commands(plan: Plan) -> Commands:
    """Models and trainings that the other parts leave out."""
    for title, keys in (TOY_MODELS if plan.toy else MODELS).items():
        yield plan.command(title, keys, _MODEL_S)


def rank_commands(plan: Plan) -> Commands:
    """How a job ends whose rank fails; then epochs of our presets by the number of GPUs, where there are several."""
    yield plan.command("How a job ends", "op=drill backend=gloo")
    num_gpus = 2 if plan.toy else torch.cuda.device_count()
    for graph in ("tiny epochs=9 threads=1",) if plan.toy else ("products-mini", "reddit-mini"):
        for count in [count for count in COUNTS if count <= num_gpus > 1]:
            keys = f"op=epoch graph={graph} nproc={count} alone=[] peers=[] presets=[default,full]"
            yield plan.command(f"Epochs by number of ranks: {graph.split()[0]}", keys, _RANKS_S)


PARTS: dict[str, Callable[[Plan], Commands]] = {
    "checks": check_commands,
    "products": product_commands,
    "epochs": epoch_commands,
    "models": model_commands,
    "ranks": rank_commands,
}


def kept(out: Path) -> dict[str, Any]:
    """What is kept of a ``record.json`` of the benchmark; nothing where there is none."""
    path = out / "record.json"
    record = json.loads(path.read_text()) if path.exists() else {}
    return {key: record[key] for key in ("op", "problem", "measurements", "checks", "missing", "gpu") if key in record}


def planned(out: Path) -> dict[str, Any]:
    """The fastest option that fits the memory, for each number of ranks, from a ``plan.json``."""
    best: dict[int, float] = {}
    for option in json.loads((out / "plan.json").read_text()) if (out / "plan.json").exists() else []:
        size, ms, needs = option["world_size"], option["epoch_time_ms"], option["prediction"]
        if needs["peak_tensor_bytes"] <= needs["memory_bytes"]:
            best[size] = min(ms, best.get(size, ms))
    return {"plan": [{"world_size": size, "predicted_epoch": f"{best[size]:.3g} ms"} for size in sorted(best)]}


def reproduced(out: Path) -> dict[str, Any]:
    """The page of a target."""
    return {"page": "".join(page.read_text()[:_MOST_CHARACTERS] for page in sorted(out.glob("*.md"))[:1])}
