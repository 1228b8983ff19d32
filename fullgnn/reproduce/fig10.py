"""Figure 10: the block-sparse product on and off, for one rank, 1D and 1.5D."""

from dataclasses import asdict, dataclass, field

from omegaconf import MISSING

from fullgnn.reproduce import jobs
from fullgnn.reproduce.config import Layout, TargetConfig
from fullgnn.reproduce.graphs import cases
from fullgnn.reproduce.result import Bars, Result, Row, Series, rows_of, with_label

OFF, ON = "off", "on"


@dataclass
class Config(TargetConfig):
    layouts: dict[str, Layout] = field(default_factory=dict)
    choices: list[str] = MISSING
    """Overrides of every run."""
    plain: list[str] = MISSING
    """Overrides of the runs without the block-sparse product."""
    block_sparse: list[str] = MISSING
    links: str = MISSING


def run(cfg: Config) -> Result:
    """For each graph and layout the products, the computation and the whole of an epoch, off and on."""
    links = jobs.load_links(cfg, cfg.links, cfg.layouts.values())
    found, rows, details = cases(cfg), [], {}
    for case in found:
        for name, layout in cfg.layouts.items():
            prepared = jobs.prepare_job(cfg, case, layout, cfg.choices)
            times = {
                column: jobs.time_job(cfg, case, layout, [*cfg.choices, *own], links, prepared)
                for column, own in ((OFF, cfg.plain), (ON, cfg.block_sparse))
            }
            details[f"{case.dataset}, {name}"] = {column: asdict(one) for column, one in times.items()}
            rows += rows_of({column: one.cells(case.title, name) for column, one in times.items()}, OFF)
    notes = [*cfg.notes, *jobs.links_notes(cfg, links)]
    panels = [_panel(quantity, with_label(rows, quantity), list(cfg.layouts)) for quantity in (jobs.SPMM, jobs.EPOCH)]
    return Result(("graph", "layout", "of"), (OFF, ON), rows, panels, found, notes, details)


def _panel(quantity: str, rows: list[Row], layouts: list[str]) -> Bars:
    """A group of bars for each graph, a colour for each layout."""
    series = [Series(layout, [row.cells[ON].ratio for row in with_label(rows, layout)]) for layout in layouts]
    graphs = list(dict.fromkeys(row.labels[0] for row in rows))
    return Bars(f"{quantity}: speed-up by the block-sparse product", "speed-up", graphs, series)
