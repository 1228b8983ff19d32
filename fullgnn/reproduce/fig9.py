"""Figure 9: an epoch and its sparse products in several orders of the nodes, scheme by scheme."""

import itertools
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import Any

from omegaconf import MISSING

from fullgnn.errors import UnsupportedError
from fullgnn.plan.hardware import Hardware
from fullgnn.reproduce import jobs
from fullgnn.reproduce.config import Layout, TargetConfig
from fullgnn.reproduce.graphs import Case, cases
from fullgnn.reproduce.result import Cell, Labels, Result, bars, rows_of, with_label

QUANTITIES = (jobs.SPMM, jobs.EPOCH)
SCOPES = {"whole": "whole", "block": "blockwise"}
BASE = "none"


@dataclass
class Config(TargetConfig):
    preset: str = MISSING
    links: str = MISSING
    rounds: int = MISSING
    layouts: list[Layout] = field(default_factory=list)
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
    """Each configuration trains a few epochs a round; its rounds are minutes apart."""
    links = jobs.load_links(cfg, cfg.links, cfg.layouts)
    found, rows = list(map(jobs.thin, cases(cfg))), []
    with jobs.measuring(cfg) as kept:
        rounds = [{case.title: time_case(kept, case, links) for case in found} for _ in range(cfg.rounds)]
    times_ms: dict[str, dict[str, Any]] = {case.title: {} for case in found}
    for case, layout in itertools.product(found, cfg.layouts):
        of_rounds = [one[case.title][layout.name] for one in rounds]
        times = {column: jobs.fastest([one[column] for one in of_rounds]) for column in cfg.columns}
        rows += rows_of({column: _cells(cfg, case, layout, column, one) for column, one in times.items()}, BASE)
        plain = {column: one if isinstance(one, str) else asdict(one) for column, one in times.items()}
        times_ms[case.title][layout.name] = plain
    panels = [
        bars(f"{case.title}: {of}, speed-up over no order", "speed-up", of_panel, [*cfg.columns][1:], group=1)
        for case, of in itertools.product(found, QUANTITIES)
        if (of_panel := with_label(rows, case.title, of))
    ]
    notes = [*cfg.notes, *jobs.links_notes(cfg, links)]
    details = {"hardware": links and asdict(links), "times_ms": times_ms}
    return Result(("graph", "scheme", "of"), tuple(cfg.columns), rows, panels, found, notes, details)


def time_case(cfg: Config, case: Case, links: Hardware | None) -> dict[str, dict[str, jobs.JobTimes | str]]:
    """One round, by layout and column; a text says why a column has no times.

    Layouts with as many block rows share the prepared graphs.
    """
    times: dict[str, dict[str, jobs.JobTimes | str]] = {layout.name: {} for layout in cfg.layouts}
    num_parts = attrgetter("num_parts")
    for _, group in itertools.groupby(sorted(cfg.layouts, key=num_parts), key=num_parts):
        layouts = list(group)
        prepared = {column: _prepare(cfg, case, layouts[0], column) for column in cfg.columns}
        for layout, (column, one) in itertools.product(layouts, prepared.items()):
            times[layout.name][column] = (
                one if isinstance(one, str) else jobs.time_job(cfg, case, layout, _overrides(cfg, column), links, one)
            )
    return times


def _prepare(cfg: Config, case: Case, layout: Layout, column: str) -> jobs.Prepared | str:
    """``case`` in the order of ``column``, cut for ``layout``; or why the order is not available."""
    try:
        return jobs.prepare_job(cfg, case, layout, _overrides(cfg, column), exact=True)
    except UnsupportedError as error:
        return str(error)


def _overrides(cfg: Config, column: str) -> list[str]:
    name, scope = cfg.columns[column]
    return [f"experiment={cfg.preset}", f"reorder={name}", f"reorder.scope={scope}"]


def _cells(cfg: Config, case: Case, layout: Layout, column: str, times: jobs.JobTimes | str) -> dict[Labels, Cell]:
    """The cells of ``QUANTITIES`` in one column, with the speed-ups that the paper's text gives."""
    order, scope = cfg.columns[column]
    here = {"dataset": case.dataset, "scheme": layout.scheme, "p": layout.p, "order": order}
    paper = {one["of"]: one["speedup"] for one in cfg.paper if here.items() <= one.items() and scope == cfg.paper_scope}
    labels = (case.title, layout.name)
    cells = {} if isinstance(times, str) else times.cells(*labels)
    reason = Cell(times if isinstance(times, str) else None)
    return {(*labels, of): replace(cells.get((*labels, of), reason), paper_ratio=paper.get(of)) for of in QUANTITIES}
