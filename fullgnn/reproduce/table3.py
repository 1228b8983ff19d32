"""Table 3: statistics of the graphs, counted on those that the other targets run on."""

from dataclasses import dataclass, field

from fullgnn.reproduce.config import TargetConfig
from fullgnn.reproduce.graphs import Case, cases
from fullgnn.reproduce.result import Bars, Cell, Result, Row, Series

COLUMNS = {
    "num_nodes": "nodes",
    "num_edges": "edges",
    "num_features": "features",
    "num_classes": "classes",
    "mean_degree": "mean degree",
    "density": "density",
}


@dataclass
class Config(TargetConfig):
    paper: dict[str, dict[str, int]] = field(default_factory=dict)
    """Published numbers by dataset; edges in both directions, without self-loops."""


def run(cfg: Config) -> Result:
    """Two rows a graph: as it is run here, and the full size that its look-alike has with ``scale=1``."""
    found = cases(cfg)
    rows = []
    for case in found:
        published = cfg.paper.get(case.dataset, {})
        here = {title: Cell(_here(case)[key], origin="measured") for key, title in COLUMNS.items()}
        full = {
            title: Cell(value, published.get(key), origin="derived")
            for (key, title), value in zip(COLUMNS.items(), _full(case).values())
        }
        source = "real" if case.real else "look-alike, as run here"
        rows += [Row((case.title, source), here), Row((case.title, "full size"), full)]
    groups = [case.title for case in found]
    density = [
        Series("as run here", [case.density for case in found]),
        Series("full size", [case.full.density for case in found]),
    ]
    notes = [
        "Edges are counted in both directions and without self-loops. Full size: what the dataset's YAML asks for.",
        "Paper: published numbers of the real graph; '-' where none is known for certain.",
    ]
    panel = Bars("density: nnz / nodes²", "density", groups, density)
    return Result(("graph", "of"), tuple(COLUMNS.values()), rows, [panel], found, notes)


def _here(case: Case) -> dict[str, int | float]:
    graph = case.graph
    return {
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
        "num_classes": graph.num_classes,
        "mean_degree": graph.num_edges / graph.num_nodes,
        "density": case.density,
    }


def _full(case: Case) -> dict[str, int | float]:
    full = case.full
    num_edges = full.nnz - full.num_nodes
    return {
        "num_nodes": full.num_nodes,
        "num_edges": num_edges,
        "num_features": full.num_features,
        "num_classes": full.num_classes,
        "mean_degree": num_edges / full.num_nodes,
        "density": full.density,
    }
