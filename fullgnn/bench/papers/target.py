"""The shape that most targets have: some rows for each graph, and panels of these rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fullgnn.bench.papers.graphs import Case, cases
from fullgnn.bench.papers.result import Bars, Labels, Result
from fullgnn.config.keys import check_choices


@dataclass(frozen=True)
class Target:
    """Called with a configuration, it fills the result, graph by graph."""

    labels: Labels  # heads of the columns that name a row
    fill: Callable[[Result, Any, Any], None]  # adds what there is of a graph: rows, and perhaps panels and details
    columns: Sequence[str] = ()  # empty: those of the cells
    panels: Sequence[Callable[..., list[Bars]]] = ()  # each draws the ``rows`` of all graphs
    cases: Callable[..., list[Case]] = cases
    features: bool = True  # False: only the structure of the graphs is asked for

    def __call__(self, cfg: Any) -> Result:
        result = Result(self.labels, self.columns, cases=self.cases(cfg, self.features))
        for case in result.cases:
            self.fill(result, cfg, case)
        result.notes += cfg.notes  # behind what the target has said of the graphs
        result.columns = result.columns or list(dict.fromkeys(name for row in result.rows for name in row.cells))
        for draw in self.panels:
            result.panels += draw(rows=result.rows)
        return result


def family(targets: Mapping[str, Callable[[Any], Result]], check: Callable[[Any], None]) -> Callable[[Any], Result]:
    """The ``run`` of several targets, among which the key ``case`` chooses.

    Args:
        check: refuses values that no key can have.
    """

    def run(cfg: Any) -> Result:
        check_choices("case", [cfg.case], targets)
        check(cfg)
        return targets[cfg.case](cfg)

    return run
