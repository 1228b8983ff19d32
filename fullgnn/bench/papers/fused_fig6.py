"""Figure 6 of Li et al. (2025): the sampling of a batch by separate operators, by toBlockFast, and fused."""

from dataclasses import dataclass, field, replace
from functools import partial

from fullgnn.bench.papers.graphs import Case
from fullgnn.bench.papers.result import Result, bars, number, speedups
from fullgnn.bench.papers.sampled import DGL, Measured, SampledConfig, measure
from fullgnn.bench.papers.target import Target
from fullgnn.bench.sampling import FAST, FUSED, SEPARATE

COLUMNS = (DGL, SEPARATE, FAST, FUSED)


@dataclass
class Config(SampledConfig):
    """Keys of ``conf/experiment/reproduce/fused_fig6.yaml``."""

    paper: dict[str, dict[str, float]] = field(default_factory=dict)
    """Dataset -> column -> speed-up over DGL."""


def _fill(result: Result, cfg: Config, case: Case) -> None:
    """Time the four, which take turns in one process."""
    measured = _with_fastest_dgl(measure(cfg, case, "sampling"))
    paper = cfg.paper.get(case.dataset, {})
    cells = {name: replace(measured.cell(name), paper_ratio=paper.get(name)) for name in COLUMNS}
    base = DGL if number(cells[DGL].ours) is not None else SEPARATE
    result.add((case.title, f"ms, speed-up over {base}"), speedups(cells, base))
    result.details[case.title] = vars(measured)


def _with_fastest_dgl(found: Measured) -> Measured:
    """Take the fastest one of DGL's samplers as DGL's."""
    times = {name: ms for name, ms in found.ms.items() if name.startswith(DGL)}
    return replace(found, ms=found.ms | {DGL: min(times.values())}) if times else found


_PANELS = [partial(bars, "sampling of a batch", "speed-up", columns=(FAST, FUSED))]
run = Target(("graph", "a batch"), _fill, COLUMNS, _PANELS, features=False)
