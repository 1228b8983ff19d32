"""Table 2 of Li et al. (2025): the speed-up of an epoch over three libraries, by graph and number of ranks."""

from dataclasses import dataclass, field

from omegaconf import MISSING

from fullgnn.bench.papers.graphs import Case
from fullgnn.bench.papers.result import Cell, Result, over
from fullgnn.bench.papers.sampled import DGL, OURS, PYG, SampledConfig, epoch_cells
from fullgnn.bench.papers.target import Target

LIBRARIES = (DGL, PYG, "Graph-Learn")
"""The last one has numbers in the paper alone."""


@dataclass
class Config(SampledConfig):
    """Keys of ``conf/experiment/reproduce/fused_table2.yaml``."""

    processes: list[int] = field(default_factory=list)
    links: str = MISSING
    paper: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    """Dataset -> ranks -> speed-up over DGL, PyG and Graph-Learn."""


def _fill(result: Result, cfg: Config, case: Case) -> None:
    """Divide the libraries' times of an epoch by ours, of the same ranks."""
    for p in cfg.processes:
        times, cells = epoch_cells(cfg, cfg.links, case, p), {}
        paper = cfg.paper.get(case.dataset, {}).get(p, [None] * len(LIBRARIES))
        for name, published in zip(LIBRARIES, paper, strict=True):
            ours = times[name].ours if name in times else "the paper's only"
            ratio = over(ours, times[OURS].ours)
            origin = times[OURS].origin if name in times else "measured"
            cells[f"over {name}"] = Cell(ours if ratio is None else ratio, published, "x", origin)
        result.add((case.title, f"p={p}"), cells)
        result.details[f"{case.title} p={p}"] = {name: cell.ours for name, cell in times.items()}


run = Target(("graph", "ranks"), _fill)
