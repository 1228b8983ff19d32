"""Table 2 of Li et al. (2025): the speed-up of an epoch over three libraries, by graph and number of ranks."""

from dataclasses import dataclass, field

from omegaconf import MISSING

from fullgnn.reproduce.graphs import cases
from fullgnn.reproduce.result import Cell, Result, TableRow, over
from fullgnn.reproduce.sampled import DGL, OURS, PYG, SampledConfig, epoch_cells

GRAPH_LEARN = "Graph-Learn"
COLUMNS = tuple(f"over {name}" for name in (DGL, PYG, GRAPH_LEARN))


@dataclass
class Config(SampledConfig):
    """Keys of ``conf/experiment/reproduce/fused_table2.yaml``."""

    processes: list[int] = field(default_factory=list)
    links: str = MISSING
    paper: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    """Dataset -> ranks -> speed-up over DGL, PyG and Graph-Learn."""


def run(cfg: Config) -> Result:
    """Divide the libraries' times of an epoch by ours, of the same ranks."""
    found, rows, details = cases(cfg), [], {}
    for case in found:
        for p in cfg.processes:
            times = epoch_cells(cfg, cfg.links, case, p)
            paper = cfg.paper.get(case.dataset, {}).get(p, [None] * len(COLUMNS))
            cells = {}
            for column, name, published in zip(COLUMNS, (DGL, PYG, GRAPH_LEARN), paper, strict=True):
                if name not in times:
                    cells[column] = Cell("the paper's only", published, "x")
                    continue
                ratio = over(times[name].ours, times[OURS].ours)
                cells[column] = Cell(times[name].ours if ratio is None else ratio, published, "x", times[OURS].origin)
            rows.append(TableRow((case.title, f"p={p}"), cells))
            details[f"{case.title} p={p}"] = {name: cell.ours for name, cell in times.items()}
    return Result(("graph", "ranks"), COLUMNS, rows, [], found, cfg.notes, details)
