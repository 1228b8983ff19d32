"""Table 2: blocks by scheme, as each scheme itself says."""

from dataclasses import dataclass, field

import numpy as np
import torch

from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import dry_world
from fullgnn.engine import make_scheme
from fullgnn.reproduce.config import Layout, TargetConfig
from fullgnn.reproduce.result import Result, Row, bars, cells
from fullgnn.schemes.stages import assign_stages, rank_sums, stage_nnz
from fullgnn.telemetry.meter import Meter

COLUMNS = ("block rows", "block columns", "blocks per rank")


@dataclass
class PaperLayout(Layout):
    """A layout, and the paper's numbers for it: the keys are ``COLUMNS`` with underscores."""

    paper: dict[str, int] = field(default_factory=dict)


@dataclass
class Config(TargetConfig):
    layouts: list[PaperLayout] = field(default_factory=list)


def run(cfg: Config) -> Result:
    """A row for each layout; nothing is multiplied."""
    rows = []
    for layout in cfg.layouts:
        paper = {column: layout.paper.get(column.replace(" ", "_")) for column in COLUMNS}
        name = f"{layout.scheme.upper()} p={layout.p} r={layout.r}"
        rows.append(Row((name,), cells(blocks(layout), paper, origin="derived")))
    panel = bars("", "blocks", rows, ("block rows", "blocks per rank"), "ours")
    return Result(("scheme",), COLUMNS, rows, [panel], notes=cfg.notes)


def blocks(layout: Layout) -> dict[str, int]:
    """By ``COLUMNS``: the scheme has b block rows of b blocks; the last is the largest number that a rank multiplies.

    Rank 0 of the layout builds the scheme, in a world that moves nothing.
    """
    runtime = ["runtime.device=cpu", f"runtime.threads={torch.get_num_threads()}"]  # as many as there were
    cfg = load_config(compose(*layout.overrides(), *runtime))
    with dry_world(cfg.runtime, 0, layout.p) as world:
        scheme = make_scheme(cfg, world, Meter(world.device))
    b = scheme.num_parts
    of_stage = stage_nnz(np.ones((b, b), np.int64), "diagonal")  # every block counts as one non-zero
    per_rank = rank_sums(of_stage, assign_stages(of_stage, scheme.replication))
    return dict(zip(COLUMNS, (b, of_stage.shape[1], int(per_rank.max()))))
