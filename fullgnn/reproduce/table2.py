"""Table 2: blocks by scheme, read off the schemes themselves."""

from dataclasses import dataclass, field

import numpy as np
import torch

from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import dry_world
from fullgnn.engine import make_scheme
from fullgnn.reproduce.config import Layout, TargetConfig
from fullgnn.reproduce.result import Bars, Cell, Result, Row, Series
from fullgnn.schemes.base import Scheme
from fullgnn.schemes.layout import stage_nnz
from fullgnn.schemes.stages import rank_sums, share_stages
from fullgnn.telemetry.meter import Meter

COLUMNS = {"block_rows": "block rows", "block_columns": "block columns", "blocks_per_rank": "blocks per rank"}


@dataclass
class PaperLayout(Layout):
    """A layout, and what the paper says of it, by the keys of ``COLUMNS``."""

    paper: dict[str, int] = field(default_factory=dict)


@dataclass
class Config(TargetConfig):
    layouts: list[PaperLayout] = field(default_factory=list)


def run(cfg: Config) -> Result:
    """The layouts of ``cfg``; nothing is multiplied."""
    rows = []
    for layout in cfg.layouts:
        found = blocks(layout)
        cells = {title: Cell(found[key], layout.paper.get(key), origin="derived") for key, title in COLUMNS.items()}
        rows.append(Row((f"{layout.scheme.upper()} p={layout.p} r={layout.r}",), cells))
    cells_of = {title: [row.cells[title] for row in rows] for title in COLUMNS.values()}
    series = [
        Series(title, [float(str(cell.ours)) for cell in cells], [cell.paper for cell in cells])  # type: ignore[misc]
        for title, cells in cells_of.items()
        if title != COLUMNS["block_columns"]
    ]
    notes = ["Derived: each scheme is built for its ranks and asked for its block rows and for the stages of a rank."]
    return Result(("scheme",), tuple(COLUMNS.values()), rows, [Bars("", "blocks", _names(rows), series)], notes=notes)


def blocks(layout: Layout) -> dict[str, int]:
    """Of the scheme itself: b block rows of b blocks each, and the most that one rank multiplies."""
    scheme = scheme_of(layout)
    b = scheme.num_parts
    of_stage = stage_nnz(np.ones((b, b), np.int64), "diagonal")  # every block counts as one non-zero
    per_rank = rank_sums(of_stage, share_stages(of_stage, scheme.replication))
    return {"block_rows": b, "block_columns": of_stage.shape[1], "blocks_per_rank": int(per_rank.max())}


def scheme_of(layout: Layout) -> Scheme:
    """The scheme as rank 0 of its ranks builds it; it can be asked what it holds, and moves nothing."""
    runtime = ["runtime.device=cpu", f"runtime.threads={torch.get_num_threads()}"]  # as many as there were
    cfg = load_config(compose(*layout.overrides(), *runtime))
    with dry_world(cfg.runtime, 0, layout.p) as world:
        return make_scheme(cfg, world, Meter(world.device))


def _names(rows: list[Row]) -> list[str]:
    return [row.labels[0] for row in rows]
