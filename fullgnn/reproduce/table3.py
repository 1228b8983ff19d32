"""Table 3: statistics of the graphs, counted on those that the other targets run on."""

from dataclasses import dataclass, field

from fullgnn.reproduce.config import TargetConfig
from fullgnn.reproduce.graphs import FullSize, cases
from fullgnn.reproduce.result import Bars, Result, Row, Series, cells

COLUMNS = ("nodes", "edges", "features", "classes", "mean degree", "density")
_PUBLISHED = ("num_nodes", "num_edges", "num_features", "num_classes")


@dataclass
class Config(TargetConfig):
    paper: dict[str, dict[str, int]] = field(default_factory=dict)
    """Published numbers by dataset; edges in both directions, without self-loops."""


def run(cfg: Config) -> Result:
    """Two rows a graph: the graph as the target runs it, and the full size that its look-alike has with ``scale=1``."""
    rows, found = [], cases(cfg)
    for case in found:
        graph, published = case.graph, cfg.paper.get(case.dataset, {})
        here = FullSize(graph.num_nodes, case.nnz, graph.num_features, graph.num_classes)
        paper = {column: published.get(key) for column, key in zip(COLUMNS, _PUBLISHED)}
        rows += [
            Row((case.title, "real" if case.real else "look-alike, as run here"), cells(_statistics(here))),
            Row((case.title, "full size"), cells(_statistics(case.full), paper, origin="derived")),
        ]
    density = [
        Series("as run here", [case.density for case in found]),
        Series("full size", [case.full.density for case in found]),
    ]
    panel = Bars("density: nnz / nodes²", "density", [case.title for case in found], density)
    return Result(("graph", "of"), COLUMNS, rows, [panel], found, cfg.notes)


def _statistics(size: FullSize) -> dict[str, int | float]:
    """By ``COLUMNS``; edges are counted without self-loops."""
    num_edges = size.nnz - size.num_nodes
    counts = (size.num_nodes, num_edges, size.num_features, size.num_classes)
    return dict(zip(COLUMNS, (*counts, num_edges / size.num_nodes, size.density)))
