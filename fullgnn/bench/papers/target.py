"""The shape that all targets have: some rows for each graph, and panels of the rows."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from fullgnn.bench.papers.config import Keys
from fullgnn.bench.papers.graphs import GraphCase, cases
from fullgnn.bench.papers.result import Bars, Result, RowLabels

Fill = Callable[[Result, Any, Any], None]
"""Adds what there is of a graph to the result: rows, and perhaps panels, notes and details."""


@dataclass(frozen=True)
class Target:
    """A row of the table of a paper. Called with a configuration, it fills the result, graph by graph."""

    labels: RowLabels  # heads of the columns that name a row
    fill: Fill = lambda result, cfg, case: None
    columns: Sequence[str] | Mapping[str, str] = ()  # or column -> unit of the values; empty: those of the cells
    panels: Sequence[Callable[..., list[Bars]]] = ()  # each draws the ``rows`` of all graphs
    finish: Callable[[Result, Any], None] | None = None  # adds what there is of all graphs together, behind the notes
    cases: Callable[[Any], list[GraphCase]] = cases
    around: Callable[[Any], AbstractContextManager[Any]] = nullcontext  # gives the configuration to fill with
    keys: type[Keys] = Keys
    check: Callable[[Any], None] | None = None  # refuses what ``config.check_keys`` does not know

    def __call__(self, cfg: Any) -> Result:
        if self.check:
            self.check(cfg)
        units, paper = self.columns if isinstance(self.columns, Mapping) else {}, getattr(cfg, "paper", ())
        result = Result(self.labels, tuple(self.columns), cases=self.cases(cfg), paper=paper, units=units)
        with self.around(cfg) as own:
            for case in result.cases:
                self.fill(result, own, case)
            result.notes += cfg.notes  # behind what the target has said of the graphs
            if self.finish:
                self.finish(result, own)
        result.columns = result.columns or list(dict.fromkeys(name for row in result.rows for name in row.cells))
        for draw in self.panels:
            result.panels += draw(rows=result.rows)
        return result
