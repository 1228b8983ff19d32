"""The commands of each part of the GPU benchmark, the most wanted first, and how the part's time is shared."""

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from fullgnn.bench.cases import Budget
from fullgnn.bench.gpu.parts import BenchPart, Command
from fullgnn.bench.gpu.tunables import TUNING_FILE
from fullgnn.config.overrides import quote
from fullgnn.graph.lookalikes import LOOKALIKES, TOYS, Lookalike
from fullgnn.storage.folder import temporary_folder

_ENVIRONMENT = {"TORCH_CPP_LOG_LEVEL": "ERROR", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Environment of all commands, where the user has set no other values. Collectives then stay on this machine."""

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
EPOCHS = (
    "op=epoch made=true dropouts=[0,0.5] launches=full warmup=1 budget_s=1.5 peers=[torch,pyg] "
    "\"presets=[full,hetu,'full runtime.cuda_graph=never','full optimizations.offload=always']\" "
    "\"methods=['torch CSR (AH)W + own backward','PyG GCNConv (torch CSR)','PyG GCNConv (EdgeIndex)']\""
)
"""The keys of the epochs on a look-alike."""

_RATES_S, _HITS_S, _PLAN_S, _MODEL_S, _RANKS_S = 50.0, 70.0, 40.0, 150.0, 100.0
_PRODUCTS_SHARE = 0.55  # of the time of a graph; the sweep has the rest
_WHOLE_S = 120.0

Commands = Iterator[Command]


def check_commands(part: BenchPart) -> Commands:
    """The tests, then compute-sanitizer over a sample of them."""
    yield part.command("Checks", "op=checks backend=gloo")


def product_commands(part: BenchPart) -> Commands:
    """Rates; then products and the sweep of one graph after the other; ncu last."""
    rates = part.command("Rates", "op=rates backend=gloo", _RATES_S)
    yield rates
    given = [f"rates={quote(str(rates.out / 'record.json'))}"] if part.result("Rates") else []
    for name, seconds in part.seconds_by_graph(_HITS_S):
        of_graph = Budget(seconds)
        widths = "widths=[8]" if part.toy else "widths=[128,64,47,41,8]"
        yield part.on_graph(name, "products", f"op=products {widths}", _PRODUCTS_SHARE * seconds, *given)
        yield part.on_graph(name, "sweep", "op=sweep", of_graph.left)
    scale = part.made_scale(f"{part.graphs[0]}: products") or 0.1
    yield part.command("Memory traffic by ncu", f"op=hits graph={part.graphs[0]} scale={scale:g} backend=gloo")


def epoch_commands(part: BenchPart) -> Commands:
    """The epochs of one graph after the other, ours and then the peers; then whole tables and plans."""
    own = ["at_once=2", "epochs=4"] if part.toy else ["at_once=10", "epochs=13"]
    own += [f"overrides=[{quote(f'runtime.cache_dir={part.scratch}/kernels')}]"]
    own += [] if part.tuning is None else [f"tuning={quote(str(part.tuning))}"]
    for name, seconds in part.seconds_by_graph(0.0 if part.toy else min(_WHOLE_S, 0.25 * part.budget.left)):
        yield part.on_graph(name, "epochs", EPOCHS, seconds, *own)
    for name in part.graphs:
        if scale := part.made_scale(f"{name}: epochs"):
            keys = plan_keys({**LOOKALIKES, **TOYS}[name], scale)
            yield part.command(f"{name}: the plan", keys, _PLAN_S, module="plan")
    if part.toy:
        part.add("Reproduced", state="left out", reason="a toy has no GPU")
    for target in () if part.toy else TARGETS:
        keys = f"target={target} device=cuda"
        yield part.command(f"Reproduced: {target}", keys, module="reproduce")


def plan_keys(shape: Lookalike, scale: float) -> str:
    """The keys of ``fullgnn.plan`` for the numbers of a look-alike, on 1 to 8 GPUs."""
    num_nodes, num_entries = shape.scaled(scale)
    sizes = f"num_nodes={num_nodes} num_edges={num_entries} num_features={shape.num_features}"
    model = f"num_classes={shape.num_classes} model.hidden_channels={shape.hidden} experiment=full"
    return f"{sizes} {model} hardware={HARDWARE} nproc=1,2,4,8"


def model_commands(part: BenchPart) -> Commands:
    """Models and trainings that the other parts leave out."""
    for title, keys in (TOY_MODELS if part.toy else MODELS).items():
        yield part.command(title, keys, _MODEL_S)


def rank_commands(part: BenchPart) -> Commands:
    """How a job ends whose rank fails; then epochs of our presets by the number of GPUs, where there are several."""
    yield part.command("How a job ends", "op=drill backend=gloo")
    num_gpus = 2 if part.toy else torch.cuda.device_count()
    if num_gpus < 2:
        part.add("Epochs by number of ranks", state="left out", reason="there is one GPU here")
    for graph in ("tiny epochs=9 threads=1",) if part.toy else ("products-mini", "reddit-mini"):
        for count in [count for count in COUNTS if count <= num_gpus > 1]:
            keys = f"op=epoch graph={graph} nproc={count} alone=[] peers=[] presets=[default,full]"
            yield part.command(f"Epochs by number of ranks: {graph.split()[0]}", keys, _RANKS_S)


PARTS: dict[str, Callable[[BenchPart], Commands]] = {
    "checks": check_commands,
    "products": product_commands,
    "epochs": epoch_commands,
    "models": model_commands,
    "ranks": rank_commands,
}


def run(options: argparse.Namespace) -> None:
    """The parts that were asked for, each with a budget and a record of its own."""
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    options.out.mkdir(parents=True, exist_ok=True)
    with temporary_folder() as scratch:
        if not os.access(Path.home(), os.W_OK):  # where Triton would keep what it compiles
            os.environ.setdefault("TRITON_CACHE_DIR", f"{scratch}/triton")
        for name in options.part:
            part = BenchPart(name, options, scratch / name)
            part.run(PARTS[name](part))
            if name == "products" and options.tuning is None:
                options.tuning = options.out / TUNING_FILE
