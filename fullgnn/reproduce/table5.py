"""Table 5: an epoch by the density from which a tile goes to the block-sparse product."""

from dataclasses import asdict, dataclass, field, replace

import torch
from omegaconf import MISSING

from fullgnn.kernels.spmm import LocalCSR
from fullgnn.kernels.spmm.tiles import split_tiles
from fullgnn.reproduce import jobs
from fullgnn.reproduce.config import TargetConfig
from fullgnn.reproduce.graphs import cases
from fullgnn.reproduce.result import Result, Row, bars, cells, speedups, with_label
from fullgnn.schemes.base import PreparedGraph

EPOCH, SPMM, SHARE = "epoch", "SpMM of an epoch", "non-zeros in dense tiles"


@dataclass
class Config(TargetConfig):
    choices: list[str] = MISSING
    """Overrides of a run."""
    thresholds: list[float] = MISSING
    paper: dict[str, list[float]] = field(default_factory=dict)
    """Seconds per epoch, by dataset and threshold."""


def run(cfg: Config) -> Result:
    """For each graph a row of epochs, one of their products, and one of what the threshold chooses."""
    columns = [f"{100 * threshold:g} %" for threshold in cfg.thresholds]
    found, rows, details = cases(cfg), [], {}
    for case in found:
        prepared = jobs.prepare_job(cfg, case, jobs.ONE_RANK, *cfg.choices)
        times = {}
        for column, threshold in zip(columns, cfg.thresholds):
            own = [*cfg.choices, f"kernel.density_threshold={threshold}"]
            times[column] = jobs.time_job(cfg, case, jobs.ONE_RANK, own, None, prepared)
        details[case.dataset] = [asdict(one) for one in times.values()]
        paper = dict(zip(columns, cfg.paper.get(case.dataset, [])))
        epoch = {column: replace(one.cell(jobs.EPOCH, "s"), paper=paper.get(column)) for column, one in times.items()}
        spmm = {column: one.cell(jobs.SPMM, "s") for column, one in times.items()}
        shares = {name: 100 * dense_share(prepared[0], limit) for name, limit in zip(columns, cfg.thresholds)}
        rows += [
            Row((case.title, EPOCH), speedups(epoch, columns[0])),
            Row((case.title, SPMM), speedups(spmm, columns[0])),
            Row((case.title, SHARE), cells(shares, unit="%")),
        ]
    panels = [
        bars(f"epoch: speed-up over {columns[0]}", "speed-up", with_label(rows, EPOCH), columns),
        bars(SHARE, "%", with_label(rows, SHARE), columns, "ours"),
    ]
    notes = [f"Speed-ups are over a threshold of {columns[0]}.", *cfg.notes]
    if cfg.torch_device.type == "cpu":
        notes.append(jobs.TILES_ON_CPU)
    return Result(("graph", "of"), tuple(columns), rows, panels, found, notes, details)


def dense_share(prepared: PreparedGraph, threshold: float) -> float:
    """Fraction of the non-zeros in tiles that have more than ``threshold`` x 1024 of them."""
    matrix = prepared.adj.matrix
    indptr, indices = torch.from_numpy(matrix.indptr).int(), torch.from_numpy(matrix.indices)
    tiles, rest = split_tiles(LocalCSR(indptr, indices, None, *matrix.shape), threshold)
    return tiles.nnz / max(1, tiles.nnz + rest.nnz)
