"""Figure 10: the block-sparse product on and off, for one rank, 1D and 1.5D."""

import itertools
from dataclasses import asdict, dataclass, field

from omegaconf import MISSING

from fullgnn.bench.papers import jobs
from fullgnn.bench.papers.config import JobShape, TargetConfig
from fullgnn.bench.papers.graphs import cases
from fullgnn.bench.papers.result import Result, TableRow, bars, rows_of, with_label

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
    result = Result(("graph", "layout", "of"), (OFF, ON), cases=cases(cfg))
    for case, (name, shape) in itertools.product(result.cases, cfg.layouts.items()):
        prepared = jobs.prepare_job(cfg, case, shape, cfg.choices)
        times = {
            column: jobs.time_job(cfg, case, shape, [*cfg.choices, *own], links, prepared)
            for column, own in ((OFF, cfg.plain), (ON, cfg.block_sparse))
        }
        result.rows += rows_of({column: one.cells(case.title, name) for column, one in times.items()}, OFF)
        result.details[f"{case.dataset}, {name}"] = {column: asdict(one) for column, one in times.items()}
    for of in (jobs.SPMM, jobs.EPOCH):
        by_graph = {case.title: with_label(result.rows, case.title, of) for case in result.cases}
        on = [TableRow((title, of), {row.labels[1]: row.cells[ON] for row in own}) for title, own in by_graph.items()]
        result.panels += bars("{1}: speed-up by the block-sparse product", "speed-up", on, heights=("ratio",))
    result.notes = [*cfg.notes, *jobs.links_notes(cfg, links)]
    return result
