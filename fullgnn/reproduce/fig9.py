"""Figure 9: an epoch and its sparse products in several orders of the nodes, scheme by scheme."""

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from omegaconf import MISSING

from fullgnn.engine.prepare import Preparation
from fullgnn.graph import Graph
from fullgnn.partition.kway import MetisError
from fullgnn.plan.hardware import Hardware
from fullgnn.plan.simulate import prepare_for
from fullgnn.reproduce.config import Layout, TargetConfig
from fullgnn.reproduce.graphs import Case, cases, order
from fullgnn.reproduce.jobs import (
    THIN,
    JobTimes,
    fastest,
    frozen_heap,
    load_links,
    num_epochs,
    run_config,
    thin,
    time_job,
)
from fullgnn.reproduce.result import Bars, Cell, Curves, Result, Row, ratio_bars, speedups
from fullgnn.schemes.base import PreparedGraph

QUANTITIES = ("SpMM", "epoch")
SCOPES = {"whole": "whole", "block": "blockwise"}
BASE = "none"


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


@dataclass(frozen=True)
class Ordered:
    """A graph in one order, ready for every job with as many block rows."""

    graph: Graph
    own: list[str]  # the overrides that order it
    prepared: tuple[PreparedGraph, Preparation]


def run(cfg: Config) -> Result:
    """Each configuration trains a few epochs a round; the rounds of one are minutes apart."""
    hardware = load_links(cfg, cfg.links)
    found = list(map(thin, cases(cfg)))
    with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder, frozen_heap():
        kept = cfg if cfg.cache_dir else replace(cfg, cache_dir=folder)  # an order is computed once, not once a round
        rounds = [{case.title: time_case(kept, case, hardware) for case in found} for _ in range(cfg.rounds)]
    times = {
        case.title: {
            layout.name: {
                column: _fastest([one[case.title][layout.name][column] for one in rounds]) for column in _columns(cfg)
            }
            for layout in cfg.layouts
        }
        for case in found
    }
    rows = [
        Row((case.title, layout.name, quantity), _cells(cfg, case, layout, quantity, times[case.title][layout.name]))
        for case, layout, quantity in itertools.product(found, cfg.layouts, QUANTITIES)
    ]
    columns = tuple(_columns(cfg))
    panels: list[Bars | Curves] = [
        ratio_bars(f"{case.title}: {quantity}, speed-up over no order", of_panel, columns[1:], group=1)
        for case, quantity in itertools.product(found, QUANTITIES)
        if (of_panel := [row for row in rows if row.labels[0] == case.title and row.labels[2] == quantity])
    ]
    return Result(
        ("graph", "scheme", "of"),
        columns,
        rows,
        panels,
        found,
        _notes(cfg, hardware),
        {"hardware": asdict(hardware), "times_ms": _plain(times)},
    )


def time_case(cfg: Config, case: Case, hardware: Hardware) -> dict[str, dict[str, JobTimes | str]]:
    """Layout -> column -> its times in one round, or why there are none."""
    times = {}
    for _, layouts in itertools.groupby(sorted(cfg.layouts, key=_num_parts), key=_num_parts):
        first, *others = layouts
        ordered = {column: _ordered(cfg, case, first, *key) for column, key in _columns(cfg).items()}
        for layout in (first, *others):
            times[layout.name] = {
                column: one if isinstance(one, str) else _time(cfg, case, layout, one, hardware)
                for column, one in ordered.items()
            }
    return times


def _fastest(rounds: Sequence[JobTimes | str]) -> JobTimes | str:
    times = [one for one in rounds if isinstance(one, JobTimes)]
    return fastest(times) if times else rounds[0]


def _num_parts(layout: Layout) -> int:
    return layout.num_parts


def _columns(cfg: Config) -> dict[str, tuple[str, str]]:
    """Column -> order and scope."""
    both = itertools.product(cfg.orders, SCOPES)
    return {BASE: (BASE, "whole")} | {f"{name.upper()} {SCOPES[scope]}": (name, scope) for name, scope in both}


def _ordered(cfg: Config, case: Case, layout: Layout, name: str, scope: str) -> Ordered | str:
    """``case`` in the order ``name``, cut for ``layout``; or why it cannot be had.

    An order of the whole graph does not depend on the cut: it is computed once.
    """
    graph, own = case.graph, ["reorder=none"]
    if scope == "block":
        own = [f"reorder={name}", "reorder.scope=block"]
    elif name != BASE:
        try:
            graph = graph.permute(order(case, name, cfg))
        except MetisError as error:
            return f"no {name}: {error}"
    prepared = prepare_for(run_config(cfg, case.hidden, *_scheme(cfg, layout), *own), layout.p, graph)
    if scope == "block" and prepared[1].reorder != name:
        return f"no {name}: {prepared[1].reorder} took its place"
    return Ordered(graph, own, prepared)


def _scheme(cfg: Config, layout: Layout) -> list[str]:
    return [f"experiment={cfg.preset}", *layout.overrides()]


def _time(cfg: Config, case: Case, layout: Layout, one: Ordered, hardware: Hardware) -> JobTimes:
    own = [*_scheme(cfg, layout), *one.own]
    return time_job(cfg, own, case, layout.p, num_epochs(cfg, case), one.prepared, one.graph, hardware)


def _cells(
    cfg: Config, case: Case, layout: Layout, quantity: str, times: Mapping[str, JobTimes | str]
) -> dict[str, Cell]:
    published = {
        (one.order, cfg.paper_scope): one.speedup
        for one in cfg.paper
        if (one.dataset, one.scheme, one.p, one.of) == (case.dataset, layout.scheme, layout.p, quantity)
    }
    cells = {}
    for column, key in _columns(cfg).items():
        one = times[column]
        cell = Cell(one) if isinstance(one, str) else one.cells()[quantity]
        cells[column] = replace(cell, paper_ratio=published.get(key))
    return speedups(cells, BASE)


def _notes(cfg: Config, hardware: Hardware) -> list[str]:
    return [
        "SpMM: the sparse products of an epoch on the slowest rank. A layout of more ranks than devices has its ranks "
        "measured one after another; its epoch is simulated: the slowest sum of a rank's measured computation and of "
        "its communication by the model, unhidden. Of each rank the fastest of "
        f"{cfg.rounds} rounds counts, which are minutes apart.",
        f"Communication is that of links={hardware.name}: {hardware.source}.",
        THIN,
        "The paper's text does not say whether its speed-ups are of the whole-graph or of the blockwise order.",
    ]


def _plain(times: Mapping[str, Mapping[str, Mapping[str, JobTimes | str]]]) -> dict[str, Any]:
    return {
        title: {
            layout: {column: one if isinstance(one, str) else asdict(one) for column, one in of_layout.items()}
            for layout, of_layout in of_case.items()
        }
        for title, of_case in times.items()
    }
