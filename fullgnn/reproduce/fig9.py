"""Figure 9: an epoch and its sparse products in several orders of the nodes, scheme by scheme."""

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any

from omegaconf import MISSING

from fullgnn.errors import UnsupportedError
from fullgnn.plan.hardware import Hardware
from fullgnn.reproduce import jobs
from fullgnn.reproduce.config import Layout, TargetConfig
from fullgnn.reproduce.graphs import Case, cases
from fullgnn.reproduce.result import Cell, Result, Row, bars, speedups, with_label

QUANTITIES = (jobs.SPMM, jobs.EPOCH)
SCOPES = {"whole": "whole", "block": "blockwise"}
BASE = "none"

Times = dict[str, dict[str, jobs.JobTimes | str]]
"""By layout and column; a text says why a column has no times."""


@dataclass
class PaperSpeedup:
    """A number that the paper's text gives: times without an order over times with ``order``."""

    dataset: str = MISSING
    scheme: str = MISSING
    p: int = MISSING
    order: str = MISSING
    of: str = MISSING
    """One of ``QUANTITIES``."""
    speedup: float = MISSING


@dataclass
class Config(TargetConfig):
    preset: str = MISSING
    links: str = MISSING
    rounds: int = MISSING
    layouts: list[Layout] = field(default_factory=list)
    orders: list[str] = field(default_factory=list)
    paper_scope: str = MISSING
    paper: list[PaperSpeedup] = field(default_factory=list)

    @property
    def columns(self) -> dict[str, tuple[str, str]]:
        """Order and scope of each column."""
        both = itertools.product(self.orders, SCOPES)
        return {BASE: (BASE, "block")} | {f"{name.upper()} {SCOPES[scope]}": (name, scope) for name, scope in both}


def run(cfg: Config) -> Result:
    """Each configuration trains a few epochs a round; its rounds are minutes apart."""
    links = jobs.load_links(cfg, cfg.links, cfg.layouts)
    found = list(map(jobs.thin, cases(cfg)))
    with jobs.measuring(cfg) as kept:
        rounds = [{case.title: time_case(kept, case, links) for case in found} for _ in range(cfg.rounds)]
    rows: list[Row] = []
    times_ms: dict[str, dict[str, Any]] = {case.title: {} for case in found}
    for case, layout in itertools.product(found, cfg.layouts):
        of_rounds = [one[case.title][layout.name] for one in rounds]
        times = {column: _fastest([one[column] for one in of_rounds]) for column in cfg.columns}
        rows += [Row((case.title, layout.name, of), _cells(cfg, case, layout, of, times)) for of in QUANTITIES]
        plain = {column: one if isinstance(one, str) else asdict(one) for column, one in times.items()}
        times_ms[case.title][layout.name] = plain
    panels = [
        bars(f"{case.title}: {of}, speed-up over no order", "speed-up", of_panel, [*cfg.columns][1:], group=1)
        for case, of in itertools.product(found, QUANTITIES)
        if (of_panel := with_label(rows, case.title, of))
    ]
    notes = [*cfg.notes, jobs.THIN, f"The fastest of {cfg.rounds} rounds, minutes apart, counts for each rank."]
    notes += [] if links is None else [jobs.links_note(cfg, links)]
    details = {"hardware": links and asdict(links), "times_ms": times_ms}
    return Result(("graph", "scheme", "of"), tuple(cfg.columns), rows, panels, found, notes, details)


def time_case(cfg: Config, case: Case, links: Hardware | None) -> Times:
    """One round. Layouts with as many block rows share the prepared graphs."""
    times: Times = {}
    num_parts = attrgetter("num_parts")
    for _, group in itertools.groupby(sorted(cfg.layouts, key=num_parts), key=num_parts):
        layouts = list(group)
        prepared = {column: _prepare(cfg, case, layouts[0], column) for column in cfg.columns}
        for layout in layouts:
            times[layout.name] = {
                column: one
                if isinstance(one, str)
                else jobs.time_job(cfg, case, layout, _overrides(cfg, column), links, one)
                for column, one in prepared.items()
            }
    return times


def _prepare(cfg: Config, case: Case, layout: Layout, column: str) -> jobs.Prepared | str:
    """``case`` in the order of ``column``, cut for ``layout``; or why the order is not available."""
    try:
        return jobs.prepare_ordered(cfg, case, layout, *_overrides(cfg, column))
    except UnsupportedError as error:
        return str(error)


def _overrides(cfg: Config, column: str) -> list[str]:
    name, scope = cfg.columns[column]
    return [f"experiment={cfg.preset}", f"reorder={name}", f"reorder.scope={scope}"]


def _fastest(rounds: list[jobs.JobTimes | str]) -> jobs.JobTimes | str:
    times = [one for one in rounds if not isinstance(one, str)]
    return jobs.fastest(times) if times else rounds[0]


def _cells(
    cfg: Config, case: Case, layout: Layout, quantity: str, times: Mapping[str, jobs.JobTimes | str]
) -> dict[str, Cell]:
    """A cell for each column, with the speed-up that the paper's text gives for it."""
    given = {(one.dataset, one.scheme, one.p, one.of, one.order, cfg.paper_scope): one.speedup for one in cfg.paper}
    here = (case.dataset, layout.scheme, layout.p, quantity)
    published = {column: given[*here, *order] for column, order in cfg.columns.items() if (*here, *order) in given}
    cells = {column: Cell(one) if isinstance(one, str) else one.cell(quantity) for column, one in times.items()}
    return speedups(cells, BASE, published)
