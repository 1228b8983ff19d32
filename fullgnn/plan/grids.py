"""The grids that a number of ranks can form."""

from collections.abc import Mapping
from typing import Any

from fullgnn.config import Config
from fullgnn.schemes.cut import Grid
from fullgnn.schemes.one_and_half_d import check_replication


def grid_of(cfg: Config, world_size: int) -> Grid:
    """The grid of a run of ``cfg`` on ``world_size`` ranks.

    Raises:
        ConfigError: its replication does not divide them.
    """
    replication = int(cfg.scheme["replication"])
    check_replication(replication, world_size)
    return grid(cfg.scheme, world_size, replication)


def grid(scheme: Mapping[str, Any], world_size: int, replication: int) -> Grid:
    """That of the options of a ``scheme``, with another replication."""
    return Grid(world_size // replication, replication, scheme["split_rows"], scheme["stage_order"], scheme["exchange"])


def replications(world_size: int) -> list[int]:
    """The replications r with at least one stage for each replica: r divides p, and r^2 <= p."""
    return [r for r in range(1, world_size + 1) if world_size % r == 0 and r * r <= world_size]
