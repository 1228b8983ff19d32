"""Table 3: statistics of the graphs, counted on those that the other targets run on."""

from dataclasses import dataclass, field

from fullgnn.bench.papers.config import TargetConfig
from fullgnn.bench.papers.graphs import Case, GraphSize
from fullgnn.bench.papers.result import Bars, Result, TableRow, bars, cells
from fullgnn.bench.papers.target import Target

COLUMNS = ("nodes", "edges", "features", "classes", "mean degree", "density")
_PUBLISHED = ("num_nodes", "num_edges", "num_features", "num_classes")


@dataclass
class Config(TargetConfig):
    """Keys of ``conf/experiment/reproduce/table3.yaml``."""

    paper: dict[str, dict[str, int]] = field(default_factory=dict)
    """Published numbers by dataset; edges in both directions, without self-loops."""


def _fill(result: Result, cfg: Config, case: Case) -> None:
    """Add two rows: as the target runs the graph, and the full size that its look-alike has with ``scale=1``."""
    published = cfg.paper.get(case.dataset, {})
    paper = {column: published.get(key) for column, key in zip(COLUMNS, _PUBLISHED)}
    result.add((case.title, "real" if case.real else "look-alike, as run here"), cells(_statistics(case.size)))
    result.add((case.title, "full size"), cells(_statistics(case.full), paper, origin="derived"))


def _statistics(size: GraphSize) -> dict[str, int | float]:
    """Count by ``COLUMNS``; edges are counted without self-loops."""
    num_edges = size.nnz - size.num_nodes
    counts = (size.num_nodes, num_edges, size.num_features, size.num_classes)
    return dict(zip(COLUMNS, (*counts, num_edges / size.num_nodes, size.density)))


def _panels(rows: list[TableRow]) -> list[Bars]:
    """The density of both."""
    both = [
        TableRow(here.labels[:1], {"as run here": here.cells["density"], "full size": full.cells["density"]})
        for here, full in zip(rows[::2], rows[1::2])
    ]
    return bars("density: nnz / nodes²", "density", both, heights=("ours",))


run = Target(("graph", "of"), _fill, COLUMNS, [_panels])
