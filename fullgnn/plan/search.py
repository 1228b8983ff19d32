"""Every way to run one graph on so many ranks, predicted."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from fullgnn.config import Config, build
from fullgnn.engine.prepare import prepare
from fullgnn.graph import Graph, load_dataset
from fullgnn.kernels.support.lines import pads_rows
from fullgnn.plan.grids import grid, replications
from fullgnn.plan.hardware import Hardware
from fullgnn.plan.predict import Prediction, predict
from fullgnn.plan.statistics import GraphStatistics, Traffic, counted_traffic, estimated_traffic, statistics_of
from fullgnn.plan.trace import trace_epoch
from fullgnn.reorder.cache_model import hit_rate
from fullgnn.schemes.base import PreparedGraph
from fullgnn.schemes.cut import Grid
from fullgnn.storage.cache import Cache

log = logging.getLogger(__name__)

MAX_RANKS = 1 << 11
"""Of the search for the smallest job that fits: a plan has tables of (block rows)^2."""

LOCALITY_ROWS = 1 << 20
"""Rows of a large matrix that the cache model reads."""


@dataclass(frozen=True)
class Option:
    """One way to run it."""

    world_size: int
    replication: int
    exchange: str
    order: str
    kernel: str
    prediction: Prediction

    @property
    def scheme(self) -> str:
        return "1d" if self.replication == 1 else "1.5d"

    @property
    def overrides(self) -> str:
        """The keys of the run."""
        replication = "" if self.replication == 1 else f" scheme.replication={self.replication}"
        return (
            f"scheme={self.scheme}{replication} scheme.exchange={self.exchange} reorder={self.order} "
            f"kernel={self.kernel} runtime.nproc={self.world_size}"
        )


Source = Callable[[Config, Grid], tuple[GraphStatistics, Traffic]]
"""The numbers of a run's graph, and its traffic on a grid."""


def from_numbers(graph: GraphStatistics) -> Source:
    """Of a random graph."""
    return lambda cfg, grid: (graph, estimated_traffic(graph, grid, cfg.optimizations.loss_rows_only))


def from_dataset(cfg: Config, near_bytes: int) -> Source:
    """Of ``cfg.dataset``; see ``from_graph``."""
    return from_graph(load_dataset(cfg.dataset), near_bytes)


def from_graph(graph: Graph, near_bytes: int) -> Source:
    """Of ``graph``, prepared once for each order and number of block rows.

    Args:
        near_bytes: of the cache in which an order should keep the rows of H.
    """
    last: dict[tuple[str, int], tuple[GraphStatistics, PreparedGraph]] = {}

    def source(cfg: Config, grid: Grid) -> tuple[GraphStatistics, Traffic]:
        key = cfg.reorder.name, grid.num_parts
        if key not in last:
            last.clear()  # one graph at a time: they may be large
            last[key] = _prepared(cfg, grid, graph, near_bytes)
        statistics, prepared = last[key]
        return statistics, counted_traffic(prepared, grid, cfg.optimizations.loss_rows_only)

    return source


def _prepared(cfg: Config, grid: Grid, graph: Graph, near_bytes: int) -> tuple[GraphStatistics, PreparedGraph]:
    prepared, preparation = prepare(cfg, grid.num_parts, graph, Cache(cfg.runtime.cache_dir))
    log.info("%s, %s, %d block rows: prepared", graph.name, preparation.reorder, grid.num_parts)
    return statistics_of(prepared, locality(prepared, cfg, near_bytes)), prepared


def locality(prepared: PreparedGraph, cfg: Config, near_bytes: int) -> float:
    """Of the reads of H that would miss a cache of ``near_bytes`` if columns were random, the share that hits it."""
    hidden = int(cfg.model.get("hidden_channels", prepared.graph.num_classes))
    num_nodes, capacity = prepared.graph.num_nodes, max(1, near_bytes // (hidden * prepared.dtype.itemsize))
    by_chance = min(1.0, capacity / num_nodes)
    if by_chance == 1:
        return 0.0
    matrix = prepared.adj.matrix
    found = hit_rate(matrix.indptr, matrix.indices, num_nodes, capacity, rows=slice(0, LOCALITY_ROWS))
    return max(0.0, (found - by_chance) / (1 - by_chance))


def options(
    runs: dict[tuple[str, str], Config],
    source: Source,
    hardware_for: Callable[[int], Hardware],
    world_sizes: list[int],
    exchanges: list[str],
    chosen_replications: list[int] | None = None,
) -> Iterator[Option]:
    """All of them, in no order of merit.

    Args:
        runs: the run's configuration by order and kernel.
        hardware_for: the profile for a number of ranks.
        chosen_replications: null: all that make sense.
    """
    for (order, kernel), cfg in runs.items():
        by_grid = [
            (size, r)
            for size in world_sizes
            for r in chosen_replications or replications(size)
            if size % r == 0 and not (chosen_replications and r > size)
        ]
        for size, replication in sorted(by_grid, key=lambda pair: pair[0] // pair[1]):
            hardware = hardware_for(size)
            local = size <= hardware.ranks_per_node
            name = kernel_of(cfg, hardware)
            for exchange in exchanges if size > 1 else exchanges[:1]:
                scheme = dict(cfg.scheme) | {"exchange": exchange, "replication": replication}
                one = replace(cfg, scheme=scheme)
                graph, traffic = source(one, grid(scheme, size, replication))
                prediction = prediction_of(one, graph, traffic, hardware, name, local)
                yield Option(size, replication, exchange, order, kernel, prediction)


def prediction_of(
    cfg: Config, graph: GraphStatistics, traffic: Traffic, hardware: Hardware, kernel: str, local: bool
) -> Prediction:
    """Of the run ``cfg`` on ``traffic.grid``, and of the memory of the rank that multiplies most; see ``predict``."""
    heaviest = int(traffic.rank_nnz("adj").argmax())
    trace = trace_epoch(cfg, graph, traffic, heaviest, local, padded=pads_rows(torch.device(hardware.device)))
    return predict(cfg, graph, traffic, trace, hardware, kernel, local)


def kernel_of(cfg: Config, hardware: Hardware) -> str:
    """The kernel that multiplies: ``auto`` is counted as what it is most like."""
    if cfg.kernel["name"] != "auto":
        return cfg.kernel["name"]
    if hardware.device == "cpu":
        return build(cfg.kernel).name_for(torch.device("cpu"), getattr(torch, cfg.runtime.dtype))
    return "csr"


def best(found: list[Option]) -> Option | None:
    """The shortest predicted epoch among those that fit; of equal ones the fewest ranks."""
    fitting = [option for option in found if option.prediction.fits]
    return min(fitting, key=lambda o: (o.prediction.epoch_time_ms, o.world_size), default=None)


def smallest_that_fits(
    runs: dict[tuple[str, str], Config], source: Source, hardware_for: Callable[[int], Hardware], beyond: int
) -> Option | None:
    """The first number of ranks, twice ``beyond`` and twice again, with an option that fits; None up to the
    largest such machine, or MAX_RANKS."""
    size = 2 * beyond
    while size <= MAX_RANKS:
        hardware = hardware_for(size)
        if hardware.network is None and size > hardware.ranks_per_node:
            return None  # there is no larger machine of this kind
        found = best(list(options(runs, source, hardware_for, [size], ["auto"], [1])))
        if found is not None:
            return found
        size *= 2
    return None
