"""Every way to run one graph on so many ranks, predicted."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from fullgnn.config import Config
from fullgnn.costs.hardware import Hardware
from fullgnn.costs.predict import Prediction, predict
from fullgnn.costs.simulate import predict_own_scheme
from fullgnn.costs.statistics import GraphStatistics, counted_job, estimated_job, keep_job, kept_job, key_of_job
from fullgnn.graph import Graph
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.prepare.source import Preparation
from fullgnn.prepare.statistics import block_rows
from fullgnn.reorder.cache_model import hit_rate
from fullgnn.schemes.options import is_own, replications
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.log import counted

MAX_RANKS = 1 << 11
"""Most ranks in the search for the smallest job that fits: a plan has tables of (block rows)^2."""

LOCALITY_READS = 1 << 24
"""About how many non-zeros of a large matrix the cache model reads."""

SCALING_SIZES = [1 << k for k in range(11)]


@dataclass(frozen=True)
class Option:
    """One way to run a graph, and what it costs."""

    world_size: int
    scheme: str
    replication: int
    exchange: str  # empty: the scheme is one of the user's, which has no such key
    order: str
    kernel: str
    prediction: Prediction

    @property
    def scheme_keys(self) -> str:
        """The keys of the run that name its scheme."""
        return f"scheme={self.scheme}" + ("" if self.replication == 1 else f" scheme.replication={self.replication}")

    @property
    def overrides(self) -> str:
        """The keys of the run."""
        exchange = f" scheme.exchange={self.exchange}" if self.exchange else ""
        fetch = " scheme.fetch=whole" if self.prediction.fetch == "whole" else ""
        others = f"reorder={self.order} kernel={self.kernel} runtime.nproc={self.world_size}"
        return f"{self.scheme_keys}{exchange}{fetch} {others}"


@dataclass
class Search:
    """What is searched: runs of one graph, on one kind of machine."""

    runs: list[Config]  # of several orders and kernels, and otherwise equal
    graph: Callable[[], Graph] | GraphStatistics  # only its numbers: it is taken to be random
    hardware_for: Callable[[int], Hardware]  # the profile for a number of ranks
    cache: Cache = Cache(None)  # keeps planned jobs of datasets
    _prepared: dict[tuple[str, int], tuple[PreparedGraph, float]] = field(default_factory=dict)

    def options(self, world_sizes: list[int], exchanges: list[str], replicas: list[int] | None = None) -> list[Option]:
        """All of them, in no order of merit.

        Args:
            replicas: of a block row; None: every number that leaves each replica a stage.
        """
        scheme = self.runs[0].scheme
        if is_own(scheme):
            replicas, exchanges = [scheme.get("replication", 1)], [""]
        grids = [(size, r) for size in world_sizes for r in replicas or replications(size) if size % r == 0]
        grids.sort(key=lambda grid: grid[0] // grid[1])  # few block rows first
        of_grids = [(size, r, choice) for size, r in grids for choice in (exchanges if size > 1 else exchanges[:1])]
        wanted = list(itertools.product(self.runs, of_grids))
        return [self._option(cfg, *grid) for cfg, grid in counted(wanted, "options")]

    def _option(self, cfg: Config, size: int, replication: int, exchange: str) -> Option:
        hardware, order_and_kernel = self.hardware_for(size), (cfg.reorder.name, cfg.kernel["name"])
        if is_own(cfg.scheme):
            prediction = predict_own_scheme(cfg, size, *self._arranged(cfg, size), hardware)
            return Option(size, cfg.scheme["name"], replication, exchange, *order_and_kernel, prediction)
        cfg = replace(cfg, scheme=dict(cfg.scheme) | {"exchange": exchange, "replication": replication})
        if not isinstance(self.graph, GraphStatistics):
            key = key_of_job(cfg, size, hardware.near_bytes, self.cache)
            if (job := kept_job(cfg, size, key, self.cache)) is None:
                job = counted_job(cfg, size, *self._arranged(cfg, size))
                keep_job(job, key, self.cache)
        else:
            job = estimated_job(cfg, size, self.graph)
        prediction = predict(replace(job, local=size <= hardware.ranks_per_node), hardware)
        return Option(size, "1d" if replication == 1 else "1.5d", replication, exchange, *order_and_kernel, prediction)

    def scaling(self) -> list[Option]:
        """The exchange that the run asks for on 1 to 1024 ranks, with each replication that leaves every replica a
        stage."""
        exchanges = [self.runs[0].scheme["exchange"]]
        grids = (([size], [r for r in (1, 2, 4, 8, 16) if r * r <= size]) for size in SCALING_SIZES)
        return [option for sizes, wanted in grids for option in self.options(sizes, exchanges, wanted)]

    def smallest_that_fits(self, beyond: int) -> Option | None:
        """The best option on the first number of ranks that has one, among twice ``beyond``, twice that, and so on.

        None: no option fits on the largest machine of this kind, or on ``MAX_RANKS``; or the scheme is the user's own,
        whose program would run once for each rank.
        """
        if is_own(self.runs[0].scheme):
            return None
        size = 2 * beyond
        while size <= MAX_RANKS:
            hardware = self.hardware_for(size)
            if hardware.network is None and size > hardware.ranks_per_node:
                return None  # there is no larger machine of this kind
            if (smallest := best(self.options([size], ["auto"], [1]))) is not None:
                return smallest
            size *= 2
        return None

    def _arranged(self, cfg: Config, world_size: int) -> tuple[PreparedGraph, float]:
        """The graph in the order of a run, and its ``locality``. It is prepared once for each order and number of block
        rows."""
        assert not isinstance(self.graph, GraphStatistics)
        key = cfg.reorder.name, world_size // cfg.scheme.get("replication", 1)
        if key not in self._prepared:
            self._prepared.clear()  # one graph at a time: they may be large
            prepared = Preparation(cfg, key[1], self.graph()).in_memory()
            self._prepared[key] = prepared, locality(prepared, cfg, self.hardware_for(world_size).near_bytes)
        return self._prepared[key]


def locality(prepared: PreparedGraph, cfg: Config, near_bytes: int) -> float:
    """Fraction of random-order misses of a cache of ``near_bytes`` that the node order turns into hits."""
    facts, itemsize = prepared.facts, getattr(torch, cfg.runtime.dtype).itemsize
    hidden = max(1, int(cfg.model.get("hidden_channels", cfg.task.get("channels", facts.num_classes))))
    num_nodes, capacity = facts.num_nodes, max(1, near_bytes // (hidden * itemsize))
    by_chance = min(1.0, capacity / num_nodes)
    if by_chance == 1:
        return 0.0
    hits, reads = 0.0, 0
    for matrix in block_rows(prepared, cfg.self_loops):
        num_rows = min(matrix.shape[0], int(np.searchsorted(matrix.indptr, LOCALITY_READS - reads)))
        num_reads = int(matrix.indptr[num_rows])
        hits += num_reads * hit_rate(matrix.indptr, matrix.indices, num_nodes, capacity, rows=slice(0, num_rows))
        reads += num_reads
        if reads >= LOCALITY_READS:
            break
    return max(0.0, (hits / max(1, reads) - by_chance) / (1 - by_chance))


def best(options: list[Option]) -> Option | None:
    """The shortest predicted epoch among those that fit; among equal ones the fewest ranks."""
    fitting = [option for option in options if option.prediction.fits]
    return min(fitting, key=lambda o: (o.prediction.epoch_time_ms, o.world_size), default=None)
