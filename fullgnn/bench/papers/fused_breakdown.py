"""Shares of Li et al. (2025): of toBlock in sampling, of redundant searches in toBlock, of the transfer in loading."""

import itertools
from dataclasses import dataclass, field
from typing import Any

from fullgnn.bench.papers.graphs import Case
from fullgnn.bench.papers.result import OURS_AND_PAPER, Bars, Result, TableRow, Value, bars, cells, with_label
from fullgnn.bench.papers.sampled import DGL, OURS, SampledConfig, measure
from fullgnn.bench.papers.target import Target
from fullgnn.bench.sampling import SEPARATE

BLOCK, REDUNDANT, TRANSFER = "toBlock in sampling", "redundant searches in toBlock", "transfer in loading"
COLUMNS = (DGL, SEPARATE, OURS)


@dataclass
class Config(SampledConfig):
    """Keys of ``conf/experiment/reproduce/fused_breakdown.yaml``."""

    paper: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Share -> dataset -> per cent, or a text. The paper's are DGL's."""


def _fill(result: Result, cfg: Config, case: Case) -> None:
    """Take the shares from benchmarks of the sampling, and, on a GPU, of sampled training."""
    sampling = measure(cfg, case, "sampling")
    shares: dict[str, dict[str, Value]] = {what: {} for what in (BLOCK, REDUNDANT)}
    for (what, key), name in itertools.product(((BLOCK, "block_share"), (REDUNDANT, "redundant_share")), COLUMNS[:2]):
        share = sampling.details.get(name, {}).get(key)
        shares[what][name] = sampling.missing.get(name, "not counted") if share is None else 100 * share
    shares[TRANSFER] = {OURS: _transfer(cfg, case), DGL: "not measured"}
    for what, values in shares.items():
        result.add((case.title, what), cells(values, {DGL: cfg.paper.get(what, {}).get(case.dataset)}, "%"))


def _transfer(cfg: Config, case: Case) -> float | str:
    if cfg.device != "cuda":
        return "not measured: no GPU"
    steps = measure(cfg, case, "minibatch").details[OURS]["steps_ms"]
    return float(100 * steps["load"] / (steps["gather"] + steps["load"]))


def _panels(rows: list[TableRow]) -> list[Bars]:
    return bars(f"{BLOCK} (1 rank)", "%", with_label(rows, BLOCK), COLUMNS[:2], OURS_AND_PAPER)


run = Target(("graph", "share of"), _fill, COLUMNS, [_panels])
