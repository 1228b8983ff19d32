"""Table 4: the time of an epoch, of PyTorch and DGL and of ours with one thing added after another."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from omegaconf import MISSING

from fullgnn.bench.harness import Method, loss_error, measure, timed
from fullgnn.bench.ours import trainer
from fullgnn.bench.peers import EPOCH, set_up
from fullgnn.bench.problem import first_weights, make_problem
from fullgnn.distributed import world_of_one
from fullgnn.engine.cuda_graph import EAGER_EPOCHS
from fullgnn.reproduce import jobs
from fullgnn.reproduce.config import Layout, TargetConfig
from fullgnn.reproduce.graphs import Case, cases
from fullgnn.reproduce.result import Cell, Result, Row, bars, speedups, with_label


@dataclass
class MethodConfig:
    """A column: a ``peer`` of the benchmark, or the ``overrides`` of a run of ours."""

    title: str = MISSING
    peer: Optional[str] = None
    overrides: list[str] = field(default_factory=list)
    paper: dict[str, Any] = field(default_factory=dict)
    """The paper's seconds by dataset, or its word for why there are none."""


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
    links = jobs.load_links(cfg, cfg.links, cfg.layouts)
    found, rows, details = list(map(jobs.thin, cases(cfg))), [], {}
    with jobs.measuring(cfg) as kept:
        for case in found:
            for layout in cfg.layouts:
                if layout.p == 1:
                    cells, details[case.title] = _one_process(kept, case, layout)
                else:  # ours alone, one method after another: the peers have one process
                    cells = {}
                    for method in (method for method in cfg.methods if method.peer is None):
                        prepared = jobs.prepare_job(kept, case, layout, method.overrides)
                        times = jobs.time_job(kept, case, layout, method.overrides, links, prepared)
                        cells[method.title] = Cell(max(times.epoch_ms) / 1e3, unit="s", origin=times.origin)
                rows.append(Row((case.title, layout.name), speedups(cells, cfg.base)))
    columns = tuple(method.title for method in cfg.methods)
    others = [column for column in columns if column != cfg.base]
    panels = [
        bars(f"{layout.name}: speed-up over {cfg.base}", "speed-up", with_label(rows, layout.name), others)
        for layout in cfg.layouts
    ]
    notes = [*cfg.notes, *_losses_notes(details), *jobs.links_notes(cfg, links)]
    return Result(("graph", "layout"), columns, rows, panels, found, notes, details)


def _one_process(cfg: Config, case: Case, layout: Layout) -> tuple[dict[str, Cell], dict[str, Any]]:
    """The cells of all methods, interleaved in this process from the same weights, and their details."""
    device = cfg.torch_device
    titles = {method.peer: method.title for method in cfg.methods if method.peer is not None}
    peers = {library: {name: of[name] for name in of if name in titles} for library, of in EPOCH.items()}
    problem = make_problem(case.graph, case.hidden, device)
    weights = first_weights(problem.widths, cfg.seed)
    steps, absent = set_up(peers, list(peers), problem, weights)
    methods = [Method(titles[name], "peer", timed(step, device)) for name, (step, _) in steps.items()]
    with world_of_one(device) as world:
        for method in (method for method in cfg.methods if method.peer is None):
            run_cfg = jobs.run_config(cfg, case.hidden, *method.overrides, *layout.overrides())
            step = trainer(run_cfg, case.graph, world, weights)
            methods.append(Method(method.title, "ours", timed(step, device)))
        warmup = max(cfg.warmup, EAGER_EPOCHS + 1) if cfg.device == "cuda" else cfg.warmup
        measurements, failed = measure(methods, world, jobs.num_epochs(cfg, case), warmup, cfg.budget_s)
    missing = {titles[one.method]: _why(one.reason) for one in absent} | {one.method: one.reason for one in failed}
    times = {one.name: one for one in measurements}
    ours = {title: Cell(one.median_ms / 1e3, unit="s") for title, one in times.items()}
    ours |= {title: Cell(reason) for title, reason in missing.items()}
    cells = {
        method.title: replace(ours[method.title], paper=method.paper.get(case.dataset))
        for method in cfg.methods
        if method.title in ours
    }
    return cells, {
        "times_ms": {title: one.times.ms for title, one in times.items()},
        "loss_error": {title: loss_error(one, times[cfg.base]) for title, one in times.items()},
        "missing": missing,
    }


def _why(reason: str) -> str:
    return "not installed" if reason.startswith("ModuleNotFoundError") else reason


def _losses_notes(details: Mapping[str, Mapping[str, Any]]) -> list[str]:
    errors = [error for of_case in details.values() for error in of_case["loss_error"].values()]
    return [f"In one process the losses of the methods differ by {max(errors):.1e} at most."] if errors else []
