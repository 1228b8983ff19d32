"""Figure 7 of Li et al. (2025): the time of an epoch beside DGL's, and the largest speed-up."""

from dataclasses import dataclass, field

from omegaconf import MISSING

from fullgnn.reproduce.graphs import cases
from fullgnn.reproduce.result import Cell, Result, TableRow, bars, speedups
from fullgnn.reproduce.sampled import DGL, OURS, SampledConfig, epoch_cells


@dataclass
class Config(SampledConfig):
    """Keys of ``conf/experiment/reproduce/fused_fig7.yaml``."""

    processes: list[int] = field(default_factory=list)
    links: str = MISSING
    paper: dict[str, float] = field(default_factory=dict)
    """Dataset -> largest speed-up over DGL."""


def run(cfg: Config) -> Result:
    """Time an epoch of both on each graph and number of ranks."""
    found, rows, largest = cases(cfg), [], []
    for case in found:
        of_case = []
        for p in cfg.processes:
            cells = epoch_cells(cfg, cfg.links, case, p)
            of_case.append(TableRow((case.title, f"p={p}"), speedups({name: cells[name] for name in (DGL, OURS)}, DGL)))
        for origin in dict.fromkeys(row.cells[OURS].origin for row in of_case):
            ratios = [row.cells[OURS].ratio for row in of_case if row.cells[OURS].origin == origin]
            most = max((ratio for ratio in ratios if ratio is not None), default=None)
            cell = Cell(most, cfg.paper.get(case.dataset), "x", origin)
            largest.append(TableRow((case.title, "largest speed-up"), {OURS: cell}))
        rows += of_case
    panels = bars("{1}: speed-up over DGL", "speed-up", rows, (OURS,))
    return Result(("graph", "ranks"), (DGL, OURS), rows + largest, panels, found, cfg.notes)
