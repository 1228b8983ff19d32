"""The planner of a run: it chooses for ``scheme=auto``, predicts what the run costs, and tells what a GPU needs for it
before anything is allocated.

Counted of a GPU: the blocks of A, as ``kernel=csr`` holds them; what an epoch of the rank's real program holds
(``trace.py``); the buffers of the exchange. Estimated, since only a GPU knows them: CUDA and NCCL, an evaluation beside
the pool of a CUDA graph, and the parts of the product X^T G.
"""

import functools
import logging
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch

from fullgnn.config import Config, RuntimeConfig
from fullgnn.config.options import takes_options
from fullgnn.costs.hardware import Hardware, load_hardware
from fullgnn.costs.measure import measured_hardware, needed_part
from fullgnn.costs.predict import block_bytes, fewest_pieces, heaviest_trace, predict
from fullgnn.costs.search import Option, Search, best, locality
from fullgnn.costs.statistics import PlannedJob, check_plannable, counted_job, why_unplannable
from fullgnn.costs.trace import Gemm, Trace
from fullgnn.distributed import World, all_gather_objects, broadcast_object, from_rank0
from fullgnn.engine.aggregate import OFFLOAD_SHARE
from fullgnn.engine.checks import replay_for
from fullgnn.engine.run import Planner, Run, with_supported_optimizations
from fullgnn.errors import ConfigError
from fullgnn.kernels.dense.host_rows import CHUNK_BYTES
from fullgnn.kernels.spmm import Kernel
from fullgnn.kernels.support.aligned import aligned_stride
from fullgnn.kernels.support.tuning import PARTS_BYTES, DenseTuning
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.prepare.process import PreparationWorker
from fullgnn.prepare.source import loaded_dataset
from fullgnn.schemes.options import ONE_AND_HALF_D, SchemeOptions, is_own, refuse_open, replications
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.meter import Meter
from fullgnn.telemetry.screen import num_bytes

log = logging.getLogger(__name__)

PART_ROWS = DenseTuning.gradient_steps * DenseTuning.gradient_rows
"""Rows whose products X^T G are one part, see ``_gradient_gpu.py``."""

BLOCKS, STEP, BUFFERS = "blocks of A", "features, parameters and activations", "buffers of the exchange"
CUDA, NCCL = "CUDA (estimated)", "NCCL (estimated)"
EVALUATION = "an evaluation beside the CUDA graph (estimated)"
PARTS = "parts of X^T G (estimated)"


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
        name, remeasure = cfg.scheme["hardware"], cfg.scheme["remeasure"]
        if name == "auto":
            hardware = measured_hardware(world, cfg.runtime, remeasure, lambda: work.call(needed_part, cfg))
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
            job = counted_job(with_supported_optimizations(cfg), world.size, prepared)
            return predict(replace(job, local=world.size == world.local_size), hardware).fetch

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
            return memory_need(job.fetching(grid.fetch, grid.piece_rows), world, cfg.runtime, available)

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
            cfg = replace(run.cfg, optimizations=run.optimizations)
            job = counted_job(cfg, world.size, prepared, locality(prepared, cfg, hardware.near_bytes))
            prediction = predict(replace(job, local=world.size == world.local_size), hardware)
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


@dataclass(frozen=True)
class MemoryNeed:
    """The bytes that a GPU needs, and has."""

    bytes_of: dict[str, int]  # in the order of the report
    available: int
    num_pieces: int  # of a product; 1: all rows arrive at once
    piece_rows: int | None  # see ``SchemeOptions``

    @property
    def total(self) -> int:
        return sum(self.bytes_of.values())

    @property
    def fits(self) -> bool:
        return self.total <= self.available

    def text(self) -> str:
        """The report in one line."""
        parts = [f"{name} {num_bytes(count)}" for name, count in self.bytes_of.items() if count]
        pieces = "" if self.num_pieces == 1 else f"; rows travel in {self.num_pieces} pieces a product"
        return f"{num_bytes(self.total)} of {num_bytes(self.available)}: {', '.join(parts)}{pieces}"


def device_bytes(world: World) -> int | None:
    """Bytes of the GPU of this rank; those of one that several ranks share are divided. None: it has no GPU."""
    if world.device.type != "cuda":
        return None
    return torch.cuda.get_device_properties(world.device).total_memory // world.ranks_per_device


def advise(need: MemoryNeed, cfg: Config, world: World) -> None:
    """Refuse a run that needs more memory than a GPU has, or warn of one that needs it beside a CUDA graph alone.

    Raises:
        ConfigError: one line with the numbers and what would help; a warning with ``runtime.check_memory=false``.
    """
    if need.total - need.bytes_of[EVALUATION] <= need.available:  # it fits without a CUDA graph
        doubt = f"an evaluation may not fit beside the CUDA graph of a step ({need.text()})"
        log.warning("%s: if it does not, set runtime.cuda_graph=never", doubt)
        return
    cures = ["more GPUs (runtime.nproc)", "a smaller model (model.hidden_channels)"]
    if world.size > 1 and cfg.partition["name"] != "metis":
        cures.append("fewer rows between ranks (partition=metis)")
    if world.size > 1 and not (cfg.scheme["fetch"] in ("auto", "packed") and cfg.scheme["exchange"] != "broadcast"):
        cures.append("rows that travel in pieces (scheme.fetch=packed)")
    problem = f"this run does not fit into a GPU, {need.text()}"
    if not cfg.runtime.check_memory:
        log.warning("%s; it starts all the same, since runtime.check_memory=false", problem)
        return
    more = "python -m fullgnn.plan shows what a rank needs, and runtime.check_memory=false starts it all the same"
    raise ConfigError(f"{problem}: take {', or '.join(cures)}; {more}")


def memory_need(job: PlannedJob, world: World, runtime: RuntimeConfig, available: int) -> MemoryNeed:
    """What the rank that multiplies most needs; where rows travel packed, in the fewest pieces that fit."""
    need = functools.cache(lambda job: _need(job, world, runtime, available))
    return need(fewest_pieces(job, lambda packed: need(packed).fits) if job.grid.packs else job)


def _need(job: PlannedJob, world: World, runtime: RuntimeConfig, available: int) -> MemoryNeed:
    trace = heaviest_trace(job, world.device)
    alone = job.grid.num_ranks == 1 or world.backend != "nccl"
    num_communicators = 0 if alone else 1 + (job.grid.replication > 1)  # of all ranks; of the replicas of a block row
    bytes_of = {
        BLOCKS: block_bytes(job, trace, world.device.type),
        STEP: trace.peak_tensor_bytes - trace.buffer_bytes - _offloaded_bytes(job, trace, available),
        BUFFERS: trace.buffer_bytes,
        CUDA: 600 << 20,  # of a process: its context, and the code of kernels
        NCCL: (400 << 20) * num_communicators,  # buffers for the other ranks
        EVALUATION: _evaluation_bytes(job, trace, world, runtime),
        PARTS: max((_part_bytes(gemm, job, world) for gemm in trace.gemms), default=0),
    }
    num_pieces = max((cut.num_exchanges for product in job.products.values() if (cut := product.pieces)), default=1)
    return MemoryNeed(bytes_of, available, num_pieces, job.grid.piece_rows)


def _offloaded_bytes(job: PlannedJob, trace: Trace, available: int) -> int:
    """Bytes of A @ H0 that the trace counts, and that stay on the host; see ``optimizations.offload``."""
    choice = job.cfg.optimizations.offload
    stays = choice == "always" or (choice == "auto" and trace.kept_bytes > OFFLOAD_SHARE * available)
    return max(0, trace.kept_bytes - 2 * CHUNK_BYTES) if stays else 0


def _evaluation_bytes(job: PlannedJob, trace: Trace, world: World, runtime: RuntimeConfig) -> int:
    """Two of the widest rows of each node. The graph keeps the memory of a step, and an evaluation needs its own."""
    if replay_for(runtime.cuda_graph, world).make_graph is None or job.links is not None:
        return 0
    widths = [gemm.n for gemm in trace.gemms if gemm.m >= gemm.k]
    widths += [product.reads.sources for product in trace.products]
    stride = aligned_stride(world.device, max(widths, default=0), job.dtype)
    return 2 * int(job.num_own_rows.max()) * stride * job.dtype.itemsize


def _part_bytes(gemm: Gemm, job: PlannedJob, world: World) -> int:
    """Bytes of the parts of one product, if it is X^T G of tall matrices and a kernel of this project computes it."""
    if gemm.k <= gemm.m or job.dtype != torch.float32 or world.device.type != "cuda":
        return 0
    return min(PARTS_BYTES, -(-gemm.k // PART_ROWS) * (gemm.m + 1) * gemm.n * 4)
