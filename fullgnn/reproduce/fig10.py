"""Figure 10: the block-sparse product on and off, for one rank, 1D and 1.5D."""

from dataclasses import asdict, dataclass, field

from omegaconf import MISSING

from fullgnn.plan.simulate import prepare_for
from fullgnn.reproduce.config import Layout, TargetConfig
from fullgnn.reproduce.graphs import cases
from fullgnn.reproduce.jobs import JobTimes, load_links, num_epochs, run_config, time_job
from fullgnn.reproduce.result import Bars, Cell, Result, Row, Series, speedups
from fullgnn.reproduce.table5 import TILES_ON_CPU

OFF, ON = "off", "on"
SPMM, COMPUTE, EPOCH = "SpMM", "computation", "epoch"
QUANTITIES = (SPMM, COMPUTE, EPOCH)


@dataclass
class Config(TargetConfig):
    layouts: dict[str, Layout] = field(default_factory=dict)
    choices: list[str] = MISSING
    """Overrides of every run."""
    plain: list[str] = MISSING
    """Those of the runs without the block-sparse product."""
    block_sparse: list[str] = MISSING
    links: str = MISSING


def run(cfg: Config) -> Result:
    """For each graph and layout the products, the computation and the whole of an epoch, off and on."""
    links = load_links(cfg, cfg.links) if any(layout.p > 1 for layout in cfg.layouts.values()) else None
    found, rows, details = cases(cfg), [], {}
    for case in found:
        for name, layout in cfg.layouts.items():
            common = [*cfg.choices, *layout.overrides()]
            prepared = prepare_for(run_config(cfg, case.hidden, *common), layout.p, case.graph)
            times = {
                key: time_job(cfg, [*common, *own], case, layout.p, num_epochs(cfg, case), prepared, case.graph, links)
                for key, own in ((OFF, cfg.plain), (ON, cfg.block_sparse))
            }
            details[f"{case.dataset}, {name}"] = {key: asdict(one) for key, one in times.items()}
            rows += [Row((case.title, name, what), _cells(times, what)) for what in QUANTITIES]
    notes = [
        "Of the slowest rank. Computation: an epoch without its collectives. Speed-ups are over off.",
        "The paper's values of this figure are not known here; its table 4 has + reorder against + block-sparse.",
    ]
    if links is not None:
        notes.append(
            f"A layout of more than {cfg.nproc} ranks is simulated: each rank's computation is measured, one after "
            f"another on this device, and only its epoch has the waiting that a model adds from links={links.name} "
            f"({links.source})."
        )
    if cfg.torch_device.type == "cpu":
        notes.append(TILES_ON_CPU)
    return Result(("graph", "layout", "of"), (OFF, ON), rows, _panels(cfg, rows), found, notes, details)


def _cells(times: dict[str, JobTimes], what: str) -> dict[str, Cell]:
    return speedups({key: one.cells()[what] for key, one in times.items()}, OFF)


def _panels(cfg: Config, rows: list[Row]) -> list[Bars]:
    panels = []
    for what in (SPMM, EPOCH):
        chosen = {(row.labels[0], row.labels[1]): row.cells[ON].ratio for row in rows if row.labels[2] == what}
        graphs = list(dict.fromkeys(graph for graph, _ in chosen))
        series = [Series(layout, [chosen[graph, layout] for graph in graphs]) for layout in cfg.layouts]
        panels.append(Bars(f"{what}: speed-up by the block-sparse product", "speed-up", graphs, series))
    return panels
