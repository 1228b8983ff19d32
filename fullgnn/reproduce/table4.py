"""Table 4: the time of an epoch, of PyTorch and DGL and of ours with one thing added after another."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Optional

import torch
from omegaconf import MISSING

from fullgnn.bench.config import load_bench
from fullgnn.bench.epoch import loss_error
from fullgnn.bench.harness import Measurement, Method, measure, timed
from fullgnn.bench.ours import trainer
from fullgnn.bench.peers import EPOCH, set_up
from fullgnn.bench.problem import as_problem, first_weights
from fullgnn.distributed import World
from fullgnn.engine.cuda_graph import EAGER_EPOCHS
from fullgnn.plan.hardware import Hardware
from fullgnn.plan.simulate import prepare_for
from fullgnn.reproduce.config import Layout, TargetConfig
from fullgnn.reproduce.graphs import Case, cases
from fullgnn.reproduce.jobs import THIN, frozen_heap, load_links, num_epochs, run_config, thin, time_job
from fullgnn.reproduce.result import Bars, Cell, Curves, Result, Row, ratio_bars, speedups
from fullgnn.reproduce.table5 import TILES_ON_CPU
from fullgnn.reproduce.timing import world_of_one


@dataclass
class MethodConfig:
    """A column: a ``peer`` of the benchmark or the ``overrides`` of a run of ours."""

    title: str = MISSING
    peer: Optional[str] = None
    overrides: list[str] = field(default_factory=list)
    paper: dict[str, Any] = field(default_factory=dict)
    """Dataset -> the paper's seconds, or its word for why there are none."""


@dataclass
class Config(TargetConfig):
    warmup: int = MISSING
    budget_s: float = MISSING
    base: str = MISSING
    links: str = MISSING
    layouts: list[Layout] = field(default_factory=list)
    methods: list[MethodConfig] = field(default_factory=list)


def run(cfg: Config) -> Result:
    """A row for each graph and layout."""
    hardware = load_links(cfg, cfg.links) if any(layout.p > 1 for layout in cfg.layouts) else None
    found, rows, details = list(map(thin, cases(cfg))), [], {}
    with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder, frozen_heap():
        kept = cfg if cfg.cache_dir else replace(cfg, cache_dir=folder)  # METIS once, not once a method
        for case in found:
            for layout in cfg.layouts:
                if layout.p == 1:
                    cells, details[case.title] = _one_process(kept, case, layout)
                else:
                    assert hardware is not None
                    cells = _ranks(kept, case, layout, hardware)
                rows.append(Row((case.title, layout.name), speedups(cells, cfg.base)))
    columns = tuple(method.title for method in cfg.methods)
    others = [column for column in columns if column != cfg.base]
    panels: list[Bars | Curves] = [
        ratio_bars(
            f"{layout.name}: speed-up over {cfg.base}", [row for row in rows if row.labels[1] == layout.name], others
        )
        for layout in cfg.layouts
    ]
    return Result(("graph", "layout"), columns, rows, panels, found, _notes(cfg, details, hardware), details)


def _one_process(cfg: Config, case: Case, layout: Layout) -> tuple[dict[str, Cell], dict[str, Any]]:
    """All methods interleaved in this process, from the same weights."""
    with world_of_one(cfg.torch_device) as world:
        methods, missing = _peers(cfg, case)
        methods += [_ours(cfg, case, layout, method, world) for method in cfg.methods if method.peer is None]
        warmup = max(cfg.warmup, EAGER_EPOCHS + 1) if cfg.device == "cuda" else cfg.warmup
        measurements, failed = measure(methods, world, num_epochs(cfg, case), warmup, cfg.budget_s)
    missing |= {one.method: one.reason for one in failed}
    times = {one.method: one for one in measurements}
    cells = {
        method.title: replace(
            _measured(times.get(method.title), missing.get(method.title)), paper=method.paper.get(case.dataset)
        )
        for method in cfg.methods
        if method.title in times or method.title in missing
    }
    base = times[cfg.base]
    return cells, {
        "times_ms": {title: one.times_ms for title, one in times.items()},
        "loss_error": {title: loss_error(one, base) for title, one in times.items()},
        "missing": missing,
    }


def _peers(cfg: Config, case: Case) -> tuple[list[Method], dict[str, str]]:
    """The peers among the methods, and for those that cannot run why."""
    titles = {method.peer: method.title for method in cfg.methods if method.peer is not None}
    makers = {library: {name: of[name] for name in of if name in titles} for library, of in EPOCH.items()}
    problem = as_problem(load_bench("op=epoch", f"hidden={case.hidden}"), case.graph, cfg.torch_device)
    weights = first_weights(problem.widths, cfg.seed)
    steps, missing = set_up(makers, list(makers), problem, weights)
    threads = torch.get_num_threads()
    return [
        Method(titles[name], "peer", timed(step, cfg.torch_device), 1, threads) for name, (step, _) in steps.items()
    ], {titles[one.method]: _why(one.reason) for one in missing}


def _why(reason: str) -> str:
    return "not installed" if reason.startswith("ModuleNotFoundError") else reason


def _ours(cfg: Config, case: Case, layout: Layout, method: MethodConfig, world: World) -> Method:
    run = run_config(cfg, case.hidden, *method.overrides, *layout.overrides())
    widths = [case.graph.num_features, case.hidden, case.graph.num_classes]
    step = trainer(run, case.graph, world, first_weights(widths, cfg.seed))
    return Method(method.title, "ours", timed(step, world.device), 1, torch.get_num_threads())


def _measured(one: Measurement | None, reason: str | None) -> Cell:
    return Cell(reason) if one is None else Cell(one.median_ms / 1e3, unit="s")


def _ranks(cfg: Config, case: Case, layout: Layout, hardware: Hardware) -> dict[str, Cell]:
    """Ours on the ranks of ``layout``, one method after another; the peers have one process."""
    cells = {}
    for method in cfg.methods:
        if method.peer is None:
            own = [*method.overrides, *layout.overrides()]
            prepared = prepare_for(run_config(cfg, case.hidden, *own), layout.p, case.graph)
            epochs = num_epochs(cfg, case)
            times = time_job(cfg, own, case, layout.p, epochs, prepared, case.graph, hardware)
            cells[method.title] = Cell(max(times.epoch_ms) / 1e3, unit="s", origin=times.origin)
    return cells


def _notes(cfg: Config, details: Mapping[str, Mapping[str, Any]], hardware: Hardware | None) -> list[str]:
    error = max(max(of_case["loss_error"].values()) for of_case in details.values())
    notes = [
        "Our sources do not say on how many GPUs the paper's table was measured: its seconds stand beside one process. "
        f"Only ratios within a row are compared, over {cfg.base}. OOM is the paper's word: out of its GPU's memory.",
        "In one process all methods take turns, from the same weights and without dropout: their losses differ by "
        f"{error:.1e} at most. There is one block, so the blockwise METIS is that of the whole graph.",
        THIN,
        "PyTorch: its CSR product with autograd's backward; PyTorch, backward by A: the same with a backward pass that "
        "knows that A is symmetric.",
    ]
    if cfg.torch_device.type == "cpu":
        notes.append(f"{TILES_ON_CPU} What + block-sparse gains here is the kernel of all other rows, blocked.")
    if hardware is not None:
        notes.append(
            "Several ranks: each rank's computation is measured, one rank after another; an epoch adds the unhidden "
            f"communication of links={hardware.name}: {hardware.source}."
        )
    return notes
