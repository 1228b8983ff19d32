"""Table 2: blocks by scheme, as each scheme itself says."""

from dataclasses import dataclass, field

import numpy as np
import torch

from fullgnn.bench.papers.config import JobShape, TargetConfig
from fullgnn.bench.papers.result import OURS_AND_PAPER, Result, bars, cells
from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import dry_world
from fullgnn.engine import make_scheme
from fullgnn.schemes.product_layout import assign_stages, rank_sums, stage_nnz
from fullgnn.telemetry.meter import Meter

COLUMNS = ("block rows", "block columns", "blocks per rank")


@dataclass
class PaperShape(JobShape):
    """A scheme and its ranks, and the paper's numbers for it: the keys are ``COLUMNS`` with underscores."""

    paper: dict[str, int] = field(default_factory=dict)


@dataclass
class Config(TargetConfig):
    """Keys of ``conf/experiment/reproduce/table2.yaml``."""

    layouts: list[PaperShape] = field(default_factory=list)


def run(cfg: Config) -> Result:
    """Fill a row for each scheme; nothing is multiplied."""
    result = Result(("scheme",), COLUMNS, notes=cfg.notes)
    for shape in cfg.layouts:
        paper = {column: shape.paper.get(column.replace(" ", "_")) for column in COLUMNS}
        name = f"{shape.scheme.upper()} p={shape.p} r={shape.r}"
        result.add((name,), cells(blocks(shape), paper, origin="derived"))
    result.panels += bars("", "blocks", result.rows, ("block rows", "blocks per rank"), OURS_AND_PAPER)
    return result


def blocks(shape: JobShape) -> dict[str, int]:
    """Count blocks by ``COLUMNS``: b block rows of b blocks, and the largest number that a rank multiplies.

    Rank 0 of the job builds the scheme, in a world that moves nothing.
    """
    runtime = ["runtime.device=cpu", f"runtime.threads={torch.get_num_threads()}"]  # as many as there were
    cfg = load_config(compose(*shape.overrides(), *runtime))
    with dry_world(cfg.runtime, 0, shape.p) as world:
        scheme = make_scheme(cfg, world, Meter(world.device))
    b = scheme.num_parts
    of_stage = stage_nnz(np.ones((b, b), np.int64), "diagonal")  # every block counts as one non-zero
    per_rank = rank_sums(of_stage, assign_stages(of_stage, scheme.replication))
    return dict(zip(COLUMNS, (b, of_stage.shape[1], int(per_rank.max()))))
