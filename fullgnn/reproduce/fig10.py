"""Figure 10: the block-sparse product on and off, for one rank, 1D and 1.5D."""

from dataclasses import asdict, dataclass, field

from omegaconf import MISSING

from fullgnn.reproduce import jobs
from fullgnn.reproduce.config import JobShape, TargetConfig
from fullgnn.reproduce.graphs import cases
from fullgnn.reproduce.result import Result, TableRow, bars, rows_of, with_label

OFF, ON = "off", "on"


@dataclass
class Config(TargetConfig):
    """Keys of ``conf/experiment/reproduce/fig10.yaml``."""

    layouts: dict[str, JobShape] = field(default_factory=dict)
    choices: list[str] = MISSING
    """Overrides of every run."""
    plain: list[str] = MISSING
    """Overrides of the runs without the block-sparse product."""
    block_sparse: list[str] = MISSING
    links: str = MISSING


def run(cfg: Config) -> Result:
    """Time the products, the computation and the whole of an epoch for each graph and layout, off and on."""
    links = jobs.load_links(cfg, cfg.links, cfg.layouts.values())
    found, rows, details = cases(cfg), [], {}
    for case in found:
        for name, shape in cfg.layouts.items():
            prepared = jobs.prepare_job(cfg, case, shape, cfg.choices)
            times = {
                column: jobs.time_job(cfg, case, shape, [*cfg.choices, *own], links, prepared)
                for column, own in ((OFF, cfg.plain), (ON, cfg.block_sparse))
            }
            details[f"{case.dataset}, {name}"] = {column: asdict(one) for column, one in times.items()}
            rows += rows_of({column: one.cells(case.title, name) for column, one in times.items()}, OFF)
    by_graph = [
        TableRow((case.title, of), {row.labels[1]: row.cells[ON] for row in with_label(rows, case.title, of)})
        for of in (jobs.SPMM, jobs.EPOCH)
        for case in found
    ]
    title = "{1}: speed-up by the block-sparse product"
    panels = bars(title, "speed-up", by_graph, list(cfg.layouts), ("ratio",))
    notes = [*cfg.notes, *jobs.links_notes(cfg, links)]
    return Result(("graph", "layout", "of"), (OFF, ON), rows, panels, found, notes, details)
