"""Table 3: statistics of the graphs, counted on those that the other targets run on."""

from dataclasses import dataclass, field

from fullgnn.reproduce.config import TargetConfig
from fullgnn.reproduce.graphs import GraphSize, cases
from fullgnn.reproduce.result import Cell, Result, TableRow, bars, cells

COLUMNS = ("nodes", "edges", "features", "classes", "mean degree", "density")
_PUBLISHED = ("num_nodes", "num_edges", "num_features", "num_classes")


@dataclass
class Config(TargetConfig):
    """Keys of ``conf/experiment/reproduce/table3.yaml``."""

    paper: dict[str, dict[str, int]] = field(default_factory=dict)
    """Published numbers by dataset; edges in both directions, without self-loops."""


def run(cfg: Config) -> Result:
    """Fill two rows a graph: as the target runs it, and the full size that its look-alike has with ``scale=1``."""
    rows, densities, found = [], [], cases(cfg)
    for case in found:
        published = cfg.paper.get(case.dataset, {})
        paper = {column: published.get(key) for column, key in zip(COLUMNS, _PUBLISHED)}
        rows += [
            TableRow((case.title, "real" if case.real else "look-alike, as run here"), cells(_statistics(case.size))),
            TableRow((case.title, "full size"), cells(_statistics(case.full), paper, origin="derived")),
        ]
        both = {"as run here": Cell(case.size.density), "full size": Cell(case.full.density)}
        densities.append(TableRow((case.title,), both))
    panels = bars("density: nnz / nodes²", "density", densities, ("as run here", "full size"), ("ours",))
    return Result(("graph", "of"), COLUMNS, rows, panels, found, cfg.notes)


def _statistics(size: GraphSize) -> dict[str, int | float]:
    """Count by ``COLUMNS``; edges are counted without self-loops."""
    num_edges = size.nnz - size.num_nodes
    counts = (size.num_nodes, num_edges, size.num_features, size.num_classes)
    return dict(zip(COLUMNS, (*counts, num_edges / size.num_nodes, size.density)))
