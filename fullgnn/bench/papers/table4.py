"""Table 4: the time of an epoch, of PyTorch and DGL and of ours with one thing added after another."""

import functools
import itertools
from dataclasses import dataclass, field
from typing import Any, Optional

from omegaconf import MISSING

from fullgnn.bench.harness import Method, attempt, loss_error, measure, timed
from fullgnn.bench.ours import Epochs as trainer
from fullgnn.bench.papers import jobs
from fullgnn.bench.papers.config import JobShape, TargetConfig
from fullgnn.bench.papers.graphs import Case, cases
from fullgnn.bench.papers.result import Cell, Result, bars, speedups
from fullgnn.bench.papers.sampled import why_missing
from fullgnn.bench.peers import EPOCH
from fullgnn.bench.problem import first_weights, make_problem
from fullgnn.config.keys import check_choices
from fullgnn.distributed import world_of_one
from fullgnn.engine.cuda_graph import EAGER_EPOCHS


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
    """Keys of ``conf/experiment/reproduce/table4.yaml``."""

    warmup: int = MISSING
    budget_s: float = MISSING
    base: str = MISSING
    links: str = MISSING
    layouts: list[JobShape] = field(default_factory=list)
    methods: list[MethodConfig] = field(default_factory=list)

    @property
    def ours(self) -> list[MethodConfig]:
        """The methods that are no peers."""
        return [method for method in self.methods if method.peer is None]


def run(cfg: Config) -> Result:
    """Fill a row for each graph and layout. On several ranks ours run alone, one by one: a peer has one process."""
    links, columns = jobs.load_links(cfg, cfg.links, cfg.layouts), tuple(method.title for method in cfg.methods)
    result = Result(("graph", "layout"), columns, cases=list(map(jobs.thin, cases(cfg))), notes=[*cfg.notes])
    with jobs.measuring(cfg) as kept:
        for case, shape in itertools.product(result.cases, cfg.layouts):
            if shape.p == 1:
                cells, result.details[case.title] = _one_process(kept, case, shape)
            else:
                cells = {}
                for method in cfg.ours:
                    times = jobs.time_job(kept, case, shape, method.overrides, links)
                    cells[method.title] = Cell(max(times.epoch_ms) / 1e3, unit="s", origin=times.origin)
            result.add((case.title, shape.name), speedups(cells, cfg.base))
    others = [column for column in columns if column != cfg.base]
    result.panels += bars(f"{{1}}: speed-up over {cfg.base}", "speed-up", result.rows, others)
    errors = [error for of_case in result.details.values() for error in of_case["loss_error"].values()]
    if errors:
        result.notes.append(f"In one process the losses of the methods differ by {max(errors):.1e} at most.")
    result.notes += jobs.links_notes(cfg, links)
    return result


def _one_process(cfg: Config, case: Case, shape: JobShape) -> tuple[dict[str, Cell], dict[str, Any]]:
    """Time all methods, interleaved in this process from the same weights; return their cells and details."""
    device, missing, methods = cfg.torch_device, {}, []
    peers = {name: maker for of_library in EPOCH["gcn"].values() for name, maker in of_library.items()}
    problem = make_problem(case.graph, case.hidden, device)
    weights = first_weights(problem.widths, cfg.seed)
    check_choices("peer", [method.peer for method in cfg.methods if method.peer is not None], peers)
    with world_of_one(device) as world:
        for method in cfg.methods:
            if method.peer is None:
                run_cfg = jobs.run_config(cfg, case.hidden, *method.overrides, *shape.overrides())
                kind, make = "ours", functools.partial(trainer, run_cfg, case.graph, world, weights)
            else:
                kind, make = "peer", functools.partial(peers[method.peer], problem, weights)
            step, _, reason = attempt(make, Exception if kind == "peer" else ())
            if reason is None:
                methods.append(Method(method.title, kind, timed(step, device)))
            else:
                missing[method.title] = why_missing(reason)
        warmup = max(cfg.warmup, EAGER_EPOCHS + 1) if cfg.device == "cuda" else cfg.warmup
        measurements, failed = measure(methods, world, jobs.num_epochs(cfg, case), warmup, cfg.budget_s)
    times = {one.name: one for one in measurements}
    missing |= {one.method: one.reason for one in failed}
    cells = {}
    for method in cfg.methods:
        title, paper = method.title, method.paper.get(case.dataset)
        one = times.get(title)
        cells[title] = Cell(one.median_ms / 1e3, paper, "s") if one else Cell(missing[title], paper)
    return cells, {
        "times_ms": {title: one.times.ms for title, one in times.items()},
        "loss_error": {title: loss_error(one, times[cfg.base]) for title, one in times.items()},
        "missing": missing,
    }
