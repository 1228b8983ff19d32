"""Table 3 of Li et al. (2025): the seconds of an epoch by the size of a batch."""

from dataclasses import dataclass, field
from functools import partial

from omegaconf import MISSING

from fullgnn.bench.papers.graphs import Case
from fullgnn.bench.papers.result import Result, bars, speedups
from fullgnn.bench.papers.sampled import DGL, OURS, PYG, SampledConfig, epoch_cells
from fullgnn.bench.papers.target import Target


@dataclass
class Config(SampledConfig):
    """Keys of ``conf/experiment/reproduce/fused_table3.yaml``."""

    batch_sizes: list[int] = field(default_factory=list)
    """At full size; multiplied by the scale of the graph."""
    links: str = MISSING
    paper: dict[int, dict[str, float]] = field(default_factory=dict)
    """Batch size at full size -> column -> seconds."""


def _fill(result: Result, cfg: Config, case: Case) -> None:
    """Time an epoch with each size of a batch, on one rank."""
    for size in cfg.batch_sizes:
        scaled = max(1, round(size * case.scale))
        cells = epoch_cells(cfg, cfg.links, case, 1, scaled, cfg.paper.get(size))
        result.add((case.title, f"{size:,} x {case.scale:g} = {scaled:,}"), speedups(cells, DGL))


_PANELS = [partial(bars, "{0}: speed-up over DGL", "speed-up", columns=(PYG, OURS), group=1)]
run = Target(("graph", "batch"), _fill, panels=_PANELS)
