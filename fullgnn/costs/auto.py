"""``scheme=auto``: the planner chooses the scheme of a run, and predicts what the run costs."""

import logging
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from fullgnn.config import Config
from fullgnn.config.options import takes_options
from fullgnn.costs.gpu_memory import MemoryNeed, advise, device_bytes, memory_need
from fullgnn.costs.hardware import Hardware, load_hardware
from fullgnn.costs.measure import measured_hardware, needed_part
from fullgnn.costs.predict import predict
from fullgnn.costs.search import Option, Search, best, locality
from fullgnn.costs.statistics import check_plannable, counted_job, why_unplannable
from fullgnn.distributed import World, all_gather_objects, broadcast_object, from_rank0
from fullgnn.engine.run import Planner, Run, with_supported_optimizations
from fullgnn.kernels.spmm import Kernel
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.prepare.process import PreparationWorker
from fullgnn.prepare.source import loaded_dataset
from fullgnn.schemes.options import ONE_AND_HALF_D, SchemeOptions, is_own, refuse_open, replications
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.meter import Meter
from fullgnn.telemetry.screen import num_bytes

log = logging.getLogger(__name__)


@takes_options(SchemeOptions)
def open_choices(
    world: World, kernel: Kernel, meter: Meter, hardware: str = "auto", remeasure: bool = False, **options: Any
) -> NoReturn:
    """The target of ``conf/scheme/auto.yaml``: a scheme that is not chosen yet."""
    refuse_open()


class CostPlanner(Planner):
    """Predicts what each choice costs, and takes the cheapest."""

    _hardware: Hardware | None = None  # that the scheme was chosen for; None: the user chose it

    def with_scheme(self, cfg: Config, world: World, work: PreparationWorker) -> Config:
        """See ``Planner``.

        ``scheme=auto`` becomes the scheme with the lowest predicted time among those that fit; if none does, the one
        that needs least memory, with a warning. The order is the run's own, and is computed for each number of block
        rows.
        """
        if cfg.scheme["name"] != "auto":
            return cfg
        check_plannable(cfg)
        name = cfg.scheme["hardware"]
        if name == "auto":
            needed = partial(work.call, needed_part, cfg)
            hardware = measured_hardware(world, cfg.runtime, cfg.scheme["remeasure"], needed)
        else:
            hardware = broadcast_object(from_rank0(lambda: load_hardware(name, cfg.runtime)))
        self._hardware = hardware
        replication = broadcast_object(from_rank0(lambda: work.call(_choose, cfg, world.size, hardware)))
        return _with_replication(cfg, replication)

    def with_fetch(self, run: Run, prepared: PreparedGraph) -> Config:
        """See ``Planner``.

        On GPUs, rows travel packed, in the fewest pieces that fit, unless a key asks for another way. On CPUs, a
        deterministic run keeps the stages, since a choice by measured times could differ from run to run; so does a run
        whose machine has not been measured.
        """
        cfg, world = run.cfg, run.world
        if is_own(cfg.scheme):
            return cfg
        available = [num_bytes for num_bytes in all_gather_objects(device_bytes(world)) if num_bytes is not None]
        if available:
            return self._within_memory(run, prepared, min(available))
        in_stages = world.size == 1 or cfg.runtime.deterministic or cfg.scheme["stage_order"] == "broadcast"
        hardware = self._hardware
        if hardware is None or cfg.scheme["fetch"] != "auto" or in_stages or why_unplannable(cfg):
            return cfg

        def choice() -> str:
            local = world.size == world.local_size
            job = replace(counted_job(with_supported_optimizations(cfg), world.size, prepared), local=local)
            return predict(job, hardware).fetch

        return replace(cfg, scheme=dict(cfg.scheme) | {"fetch": broadcast_object(from_rank0(choice))})

    def _within_memory(self, run: Run, prepared: PreparedGraph, available: int) -> Config:
        """The configuration of ``run`` with pieces that fit ``available`` bytes; the log says what a GPU needs.

        Raises:
            ConfigError: it needs more than it has; the same on every rank.
        """
        cfg, world = run.cfg, run.world
        grid = SchemeOptions.of(cfg.scheme).grid_on(world.device, world.size)
        sparse = "multiplies sparse features, whose memory is not planned"
        if unknown := sparse if run.optimizations.sparse_features else why_unplannable(cfg):
            log.info("the memory of a GPU is not estimated: model=%s %s", cfg.model["name"], unknown)
            return cfg

        def need() -> MemoryNeed:
            job = counted_job(replace(cfg, optimizations=run.optimizations), world.size, prepared)
            job = job.fetching(grid.fetch, grid.piece_rows)
            return memory_need(job, world, cfg.runtime, available)

        needed = broadcast_object(from_rank0(need))
        log.info("memory of a GPU, %s", needed.text())
        if not needed.fits:
            advise(needed, cfg, world)
        if not grid.packs:
            return cfg
        return replace(cfg, scheme=dict(cfg.scheme) | {"fetch": "packed", "piece_rows": needed.piece_rows})

    def predicted(self, run: Run, prepared: PreparedGraph) -> dict[str, Any] | None:
        """See ``Planner``."""
        world = run.world
        if (hardware := self._hardware) is None or run.optimizations.sparse_features:
            return None  # the planner knows products of dense features alone

        def predicted() -> dict[str, Any]:
            cfg, local = replace(run.cfg, optimizations=run.optimizations), world.size == world.local_size
            counted = counted_job(cfg, world.size, prepared, locality(prepared, cfg, hardware.near_bytes))
            prediction = predict(replace(counted, local=local), hardware)
            kept = ("hardware", "time_ms", "comm_bytes_per_epoch", "peak_tensor_bytes", "epoch_time_ms")
            return {key: getattr(prediction, key) for key in kept}

        return broadcast_object(from_rank0(predicted))


def choose(options: list[Option]) -> Option:
    """The lowest predicted time among those that fit, else the smallest, with a warning."""
    if (chosen := best(options)) is not None:
        return chosen
    smallest = min(options, key=lambda option: option.prediction.peak_tensor_bytes)
    has, needs = num_bytes(smallest.prediction.memory_bytes), num_bytes(smallest.prediction.peak_tensor_bytes)
    log.warning("scheme=auto: nothing fits %s of memory by prediction; the smallest is tried, of %s", has, needs)
    return smallest


def _choose(cfg: Config, world_size: int, hardware: Hardware) -> int:
    """The replication. The log says why it is chosen."""
    candidates = replications(world_size)
    if len(candidates) == 1:
        ranks = "one rank" if world_size == 1 else f"{world_size} ranks"
        log.info("scheme=auto: scheme=1d, the only choice of %s: r replicas of a block row need r^2 ranks", ranks)
        return candidates[0]
    runs, cache = [with_supported_optimizations(_with_replication(cfg, 1))], Cache(cfg.runtime.cache_dir)
    search = Search(runs, lambda: loaded_dataset(cfg.dataset), lambda _: hardware, cache)
    options = search.options([world_size], [cfg.scheme["exchange"]], candidates)
    chosen = choose(options)
    others = [f"{option.scheme_keys} {_cost(option)}" for option in options if option is not chosen]
    log.info("scheme=auto: %s, predicted %s; %s", chosen.scheme_keys, _cost(chosen), ", ".join(others))
    return chosen.replication


def _cost(option: Option) -> str:
    fits = "" if option.prediction.fits else " and does not fit"
    return f"{option.prediction.epoch_time_ms:.1f} ms an epoch{fits}"


def _with_replication(cfg: Config, replication: int) -> Config:
    """``cfg`` with 1D or 1.5D."""
    scheme: dict[str, Any] = {key: value for key, value in cfg.scheme.items() if key not in ("hardware", "remeasure")}
    kind = {"_target_": ONE_AND_HALF_D, "name": "1d" if replication == 1 else "1.5d"}
    return replace(cfg, scheme=scheme | kind | {"replication": replication})
