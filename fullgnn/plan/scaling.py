"""One graph on 1 to 1024 ranks."""

from collections.abc import Callable

from fullgnn.config import Config
from fullgnn.plan.hardware import Hardware
from fullgnn.plan.search import Option, Source, options

WORLD_SIZES = [1 << k for k in range(11)]
REPLICATIONS = [1, 2, 4, 8, 16]


def scaling(
    runs: dict[tuple[str, str], Config], source: Source, hardware_for: Callable[[int], Hardware]
) -> list[Option]:
    """The exchange that the run asks for, on each number of ranks with each replication that has a stage for every
    replica."""
    cfg = next(iter(runs.values()))
    found: list[Option] = []
    for size in WORLD_SIZES:
        usable = [r for r in REPLICATIONS if r * r <= size]
        found += options(runs, source, hardware_for, [size], [cfg.scheme["exchange"]], usable)
    return found
