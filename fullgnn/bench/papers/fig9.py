"""Figure 9: an epoch and its sparse products in several orders of the nodes, scheme by scheme."""

import itertools
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import Any

from omegaconf import MISSING

from fullgnn.bench.papers import jobs
from fullgnn.bench.papers.config import JobShape, TargetConfig
from fullgnn.bench.papers.graphs import Case, cases
from fullgnn.bench.papers.result import Cell, Labels, Result, bars, rows_of
from fullgnn.costs.hardware import Hardware
from fullgnn.errors import UnsupportedError

QUANTITIES = (jobs.SPMM, jobs.EPOCH)
SCOPES = {"whole": "whole", "block": "blockwise"}
BASE = "none"


@dataclass
class Config(TargetConfig):
    """Keys of ``conf/experiment/reproduce/fig9.yaml``."""

    preset: str = MISSING
    links: str = MISSING
    rounds: int = MISSING
    layouts: list[JobShape] = field(default_factory=list)
    orders: list[str] = field(default_factory=list)
    paper_scope: str = MISSING
    paper: list[dict[str, Any]] = MISSING
    """Speed-ups over no order that the paper's text gives, each ``of`` one of ``QUANTITIES``."""

    @property
    def columns(self) -> dict[str, tuple[str, str]]:
        """Order and scope of each column."""
        both = itertools.product(self.orders, SCOPES)
        return {BASE: (BASE, "block")} | {f"{name.upper()} {SCOPES[scope]}": (name, scope) for name, scope in both}


def run(cfg: Config) -> Result:
    """Train each configuration a few epochs a round; its rounds are minutes apart."""
    links = jobs.load_links(cfg, cfg.links, cfg.layouts)
    result = Result(("graph", "scheme", "of"), tuple(cfg.columns), cases=list(map(jobs.thin, cases(cfg))))
    with jobs.measuring(cfg) as kept:
        rounds = [{case.title: time_case(kept, case, links) for case in result.cases} for _ in range(cfg.rounds)]
    times_ms: dict[str, dict[str, Any]] = {case.title: {} for case in result.cases}
    for case, shape in itertools.product(result.cases, cfg.layouts):
        of_rounds = [one[case.title][shape.name] for one in rounds]
        times = {column: jobs.fastest([one[column] for one in of_rounds]) for column in cfg.columns}
        result.rows += rows_of({column: _cells(cfg, case, shape, column, one) for column, one in times.items()}, BASE)
        plain = {column: one if isinstance(one, str) else asdict(one) for column, one in times.items()}
        times_ms[case.title][shape.name] = plain
    result.panels += bars("{0}: {2}, speed-up over no order", "speed-up", result.rows, [*cfg.columns][1:], group=1)
    result.notes = [*cfg.notes, *jobs.links_notes(cfg, links)]
    result.details = {"hardware": links and asdict(links), "times_ms": times_ms}
    return result


def time_case(cfg: Config, case: Case, links: Hardware | None) -> dict[str, dict[str, jobs.JobTimes | str]]:
    """Time one round, by layout and column; a text says why a column has no times.

    Layouts with as many block rows share the prepared graphs.
    """
    times: dict[str, dict[str, jobs.JobTimes | str]] = {shape.name: {} for shape in cfg.layouts}
    num_parts = attrgetter("num_parts")
    for _, group in itertools.groupby(sorted(cfg.layouts, key=num_parts), key=num_parts):
        shapes = list(group)
        for column, (name, scope) in cfg.columns.items():
            own = [f"experiment={cfg.preset}", f"reorder={name}", f"reorder.scope={scope}"]
            try:
                prepared = jobs.prepare_job(cfg, case, shapes[0], own, exact=True)
            except UnsupportedError as error:
                reason = str(error)
                for shape in shapes:
                    times[shape.name][column] = reason
            else:
                for shape in shapes:
                    times[shape.name][column] = jobs.time_job(cfg, case, shape, own, links, prepared)
    return times


def _cells(cfg: Config, case: Case, shape: JobShape, column: str, times: jobs.JobTimes | str) -> dict[Labels, Cell]:
    """Fill the cells of ``QUANTITIES`` in one column, with the speed-ups that the paper's text gives."""
    order, scope = cfg.columns[column]
    here = {"dataset": case.dataset, "scheme": shape.scheme, "p": shape.p, "order": order}
    paper = {one["of"]: one["speedup"] for one in cfg.paper if here.items() <= one.items() and scope == cfg.paper_scope}
    rows = [(case.title, shape.name, of) for of in QUANTITIES]
    cells = dict.fromkeys(rows, Cell(times)) if isinstance(times, str) else times.cells(case.title, shape.name)
    return {labels: replace(cells[labels], paper_ratio=paper.get(labels[-1])) for labels in rows}
