"""Table 5: an epoch by the density from which a tile goes to the block-sparse product."""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from omegaconf import MISSING

from fullgnn.bench.papers import jobs
from fullgnn.bench.papers.config import TargetConfig
from fullgnn.bench.papers.graphs import cases
from fullgnn.bench.papers.result import Cell, Labels, Result, bars, rows_of, with_label
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.kernels.spmm.tiles import split_tiles
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.prepare.statistics import whole_matrix

EPOCH, SPMM, SHARE = "epoch", "SpMM of an epoch", "non-zeros in dense tiles"


@dataclass
class Config(TargetConfig):
    """Keys of ``conf/experiment/reproduce/table5.yaml``."""

    choices: list[str] = MISSING
    """Overrides of a run."""
    thresholds: list[float] = MISSING
    paper: dict[str, list[float]] = field(default_factory=dict)
    """Seconds per epoch, by dataset and threshold."""


def run(cfg: Config) -> Result:
    """Fill for each graph a row of epochs, one of their products, and one of what the threshold chooses."""
    columns = [f"{100 * threshold:g} %" for threshold in cfg.thresholds]
    result = Result(("graph", "of"), columns, cases=cases(cfg), notes=cfg.notes)
    for case in result.cases:
        prepared = jobs.prepare_job(cfg, case, jobs.ONE_RANK, cfg.choices)
        paper, details = dict(zip(columns, cfg.paper.get(case.dataset, []))), list[Any]()
        measured: dict[str, dict[Labels, Cell]] = {}
        for column, threshold in zip(columns, cfg.thresholds):
            own = [*cfg.choices, f"kernel.density_threshold={threshold}"]
            times = jobs.time_job(cfg, case, jobs.ONE_RANK, own, None, prepared)
            details.append(asdict(times))
            measured[column] = {
                (case.title, EPOCH): Cell(times.epoch_ms[0] / 1e3, paper.get(column), "s"),
                (case.title, SPMM): Cell(times.spmm_ms[0] / 1e3, unit="s"),
                (case.title, SHARE): Cell(100 * dense_share(prepared, threshold), unit="%"),
            }
        result.rows += rows_of(measured, columns[0])
        result.details[case.dataset] = details
    epochs, shares = (with_label(result.rows, of) for of in (EPOCH, SHARE))
    result.panels += bars(f"epoch: speed-up over {columns[0]}", "speed-up", epochs, columns)
    result.panels += bars(SHARE, "%", shares, columns, ("ours",))
    return result


def dense_share(prepared: PreparedGraph, threshold: float) -> float:
    """Compute the fraction of the non-zeros that lie in tiles with more than ``threshold`` x 1024 of them."""
    matrix = whole_matrix(prepared, self_loops=True)
    indptr, indices = torch.from_numpy(matrix.indptr).int(), torch.from_numpy(matrix.indices)
    tiles, rest = split_tiles(LocalCSR(indptr, indices, None, *matrix.shape), threshold)
    return tiles.nnz / max(1, tiles.nnz + rest.nnz)
