"""Figure 7 of Li et al. (2025): the time of an epoch beside DGL's, and the largest speed-up."""

import itertools
from dataclasses import dataclass, field

from omegaconf import MISSING

from fullgnn.bench.papers.graphs import cases
from fullgnn.bench.papers.result import Cell, Result, bars, speedups, with_label
from fullgnn.bench.papers.sampled import DGL, OURS, SampledConfig, epoch_cells


@dataclass
class Config(SampledConfig):
    """Keys of ``conf/experiment/reproduce/fused_fig7.yaml``."""

    processes: list[int] = field(default_factory=list)
    links: str = MISSING
    paper: dict[str, float] = field(default_factory=dict)
    """Dataset -> largest speed-up over DGL."""


def run(cfg: Config) -> Result:
    """Time an epoch of both on each graph and number of ranks."""
    result = Result(("graph", "ranks"), (DGL, OURS), cases=cases(cfg), notes=cfg.notes)
    for case, p in itertools.product(result.cases, cfg.processes):
        cells = epoch_cells(cfg, cfg.links, case, p)
        result.add((case.title, f"p={p}"), speedups({name: cells[name] for name in (DGL, OURS)}, DGL))
    result.panels += bars("{1}: speed-up over DGL", "speed-up", result.rows, (OURS,))
    for case in result.cases:
        ours = [row.cells[OURS] for row in with_label(result.rows, case.title)]
        for origin in dict.fromkeys(cell.origin for cell in ours):
            ratios = [cell.ratio for cell in ours if cell.origin == origin and cell.ratio is not None]
            largest = Cell(max(ratios, default=None), cfg.paper.get(case.dataset), "x", origin)
            result.add((case.title, "largest speed-up"), {OURS: largest})
    return result
