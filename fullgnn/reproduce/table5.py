"""Table 5: an epoch by the density from which a tile goes to the block-sparse product."""

from dataclasses import asdict, dataclass, field

import torch
from omegaconf import MISSING

from fullgnn.kernels.spmm import LocalCSR
from fullgnn.kernels.spmm.tiles import split_tiles
from fullgnn.plan.simulate import prepare_for
from fullgnn.reproduce.config import ONE_RANK, TargetConfig
from fullgnn.reproduce.graphs import cases
from fullgnn.reproduce.jobs import JobTimes, num_epochs, run_config, time_job
from fullgnn.reproduce.result import Bars, Cell, Result, Row, Series, ratio_bars, speedups
from fullgnn.schemes.base import PreparedGraph

EPOCH, SPMM, SHARE = "epoch", "SpMM of an epoch", "non-zeros in dense tiles"

TILES_ON_CPU = (
    "A CPU has no tensor cores: kernel=tile32 unpacks its dense tiles there, and the more of them the slower. Only the "
    "share of the non-zeros in such tiles says on a CPU what a threshold does; times like the paper's need device=cuda."
)


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
        common = [*cfg.choices, *ONE_RANK.overrides()]
        prepared = prepare_for(run_config(cfg, case.hidden, *common), 1, case.graph)
        times = [
            time_job(
                cfg,
                [*common, f"kernel.density_threshold={threshold}"],
                case,
                1,
                num_epochs(cfg, case),
                prepared,
                case.graph,
            )
            for threshold in cfg.thresholds
        ]
        details[case.dataset] = [asdict(one) for one in times]
        rows.append(Row((case.title, EPOCH), _time_cells(columns, times, "epoch", cfg.paper.get(case.dataset, []))))
        rows.append(Row((case.title, SPMM), _time_cells(columns, times, "SpMM", [])))
        shares = [100 * dense_share(prepared[0], threshold) for threshold in cfg.thresholds]
        rows.append(Row((case.title, SHARE), {name: Cell(share, unit="%") for name, share in zip(columns, shares)}))
    notes = [f"Speed-ups are over a threshold of {columns[0]}. Share: counted on the ordered matrix."]
    if cfg.torch_device.type == "cpu":
        notes.append(TILES_ON_CPU)
    return Result(("graph", "of"), tuple(columns), rows, _panels(columns, rows), found, notes, details)


def dense_share(prepared: PreparedGraph, threshold: float) -> float:
    """The share of the non-zeros that lie in tiles of more than ``threshold`` x 1024."""
    matrix = prepared.adj.matrix
    indptr, indices = torch.from_numpy(matrix.indptr).int(), torch.from_numpy(matrix.indices)
    tiles, rest = split_tiles(LocalCSR(indptr, indices, None, *matrix.shape), threshold)
    return tiles.nnz / max(1, tiles.nnz + rest.nnz)


def _time_cells(columns: list[str], times: list[JobTimes], what: str, paper: list[float]) -> dict[str, Cell]:
    theirs = dict(zip(columns, paper))
    seconds = [float(str(one.cells()[what].ours)) / 1e3 for one in times]
    cells = {name: Cell(value, theirs.get(name), "s") for name, value in zip(columns, seconds)}
    return speedups(cells, columns[0])


def _panels(columns: list[str], rows: list[Row]) -> list[Bars]:
    shares = [row for row in rows if row.labels[1] == SHARE]
    series = [Series(name, [float(str(row.cells[name].ours)) for row in shares]) for name in columns]
    return [
        ratio_bars(f"epoch: speed-up over {columns[0]}", [row for row in rows if row.labels[1] == EPOCH], columns),
        Bars(SHARE, "%", [row.labels[0] for row in shares], series),
    ]
