"""Shares of Li et al. (2025): of toBlock in sampling, of redundant searches in toBlock, of the transfer in loading."""

from dataclasses import dataclass, field
from typing import Any

from fullgnn.bench.sampling import SEPARATE
from fullgnn.reproduce.graphs import Case, cases
from fullgnn.reproduce.result import Cell, Result, TableRow, bars, with_label
from fullgnn.reproduce.sampled import DGL, OURS, SampledConfig, measure

BLOCK, REDUNDANT, TRANSFER = "toBlock in sampling", "redundant searches in toBlock", "transfer in loading"
COLUMNS = (DGL, SEPARATE, OURS)


@dataclass
class Config(SampledConfig):
    """Keys of ``conf/experiment/reproduce/fused_breakdown.yaml``."""

    paper: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Share -> dataset -> per cent, or a text. The paper's are DGL's."""


def run(cfg: Config) -> Result:
    """Take the shares from benchmarks of the sampling, and, on a GPU, of sampled training."""
    found, rows = cases(cfg), []
    for case in found:
        sampling = measure(cfg, case, "sampling")
        for what, key in ((BLOCK, "block_share"), (REDUNDANT, "redundant_share")):
            cells = {}
            for column in (DGL, SEPARATE):
                share = sampling.details.get(column, {}).get(key)
                absent = sampling.missing.get(column, "not counted")
                cells[column] = Cell(100 * share if share is not None else absent, unit="%")
            rows.append(_row(cfg, case, what, cells))
        rows.append(_row(cfg, case, TRANSFER, {OURS: Cell(_transfer(cfg, case), unit="%")}))
    panels = bars(f"{BLOCK} (1 rank)", "%", with_label(rows, BLOCK), COLUMNS[:2], ("ours", "paper"))
    return Result(("graph", "share of"), COLUMNS, rows, panels, found, cfg.notes)


def _row(cfg: Config, case: Case, what: str, cells: dict[str, Cell]) -> TableRow:
    """The paper's share is DGL's."""
    first = cells.get(DGL, Cell("not measured", unit="%"))
    paper = cfg.paper.get(what, {}).get(case.dataset)
    return TableRow((case.title, what), cells | {DGL: Cell(first.ours, paper, first.unit)})


def _transfer(cfg: Config, case: Case) -> float | str:
    if cfg.device != "cuda":
        return "not measured: no GPU"
    steps = measure(cfg, case, "minibatch").details[OURS]["steps_ms"]
    return float(100 * steps["load"] / (steps["gather"] + steps["load"]))
