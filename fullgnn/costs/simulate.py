"""A job of more ranks than there are devices: each rank's real program, one after another on one device.

Every rank is a dry run (``distributed/dry.py``) on its real blocks, whose computation is measured. The time of its
collectives is predicted (``predict.py``) from the profile of a machine. The two are kept apart: whoever adds them up
labels the sum as simulated. With one rank nothing is simulated, and the result is a measurement.
"""

import gc
from dataclasses import dataclass, replace

import numpy as np

from fullgnn.config import Config
from fullgnn.costs.edge_time import edge_time
from fullgnn.costs.hardware import Hardware
from fullgnn.costs.predict import communication_s
from fullgnn.costs.statistics import counted_job
from fullgnn.costs.trace import trace_epoch
from fullgnn.distributed import World, dry_world
from fullgnn.engine.checks import replay_for
from fullgnn.engine.run import set_up, with_supported_optimizations
from fullgnn.engine.step_runner import StepRunner
from fullgnn.graph import Graph
from fullgnn.kernels.support.process import keep_freed_memory
from fullgnn.kernels.support.trials import TensorPeak
from fullgnn.prepare.prepared import PreparedGraph
from fullgnn.prepare.source import Preparation
from fullgnn.schemes.options import num_parts
from fullgnn.telemetry.meter import Meter


@dataclass(frozen=True)
class RankRun:
    """One rank, alone on the device."""

    time_ms: dict[str, float]  # epoch, spmm: medians over the epochs after the first, without collectives
    peak_tensor_bytes: int


@dataclass(frozen=True)
class Simulation:
    """A job, rank by rank."""

    ranks: list[RankRun]
    comm_ms: list[float] | None  # predicted waiting of each rank; None: no profile was given

    @property
    def simulated(self) -> bool:
        """Whether there is more than one rank."""
        return len(self.ranks) > 1


def simulate(
    cfg: Config,
    world_size: int,
    prepared: PreparedGraph,
    epochs: int = 5,
    hardware: Hardware | None = None,
) -> Simulation:
    """Run every rank of a job of ``world_size`` in this process, which is in no job itself.

    Args:
        prepared: what ``prepare_for`` returned for ``cfg``.
        epochs: how many each rank runs; the first is not counted.
        hardware: the machine whose collectives are predicted; None: no collectives are.

    Raises:
        FullGNNError: a user error in ``cfg``.
    """
    assert epochs > 1, "the first epoch is not counted"
    keep_freed_memory()
    cfg = with_supported_optimizations(cfg)
    # All ranks are on one machine. An epoch that is replayed as a CUDA graph would have no phases.
    cfg = replace(cfg, runtime=replace(cfg.runtime, nproc=None, cuda_graph="never"))
    ranks = []
    for rank in range(world_size):
        with dry_world(cfg.runtime, rank, world_size) as world:
            ranks.append(_run(cfg, world, prepared, epochs))
        gc.collect()  # a rank's blocks are large, and it is gone
    comm_ms = None if hardware is None else _waiting_ms(cfg, prepared, ranks, hardware)
    return Simulation(ranks, comm_ms)


def prepare_for(cfg: Config, world_size: int, graph: Graph | None = None) -> PreparedGraph:
    """The prepared graph of a job of ``world_size`` ranks; jobs with as many block rows and the same order can share
    it."""
    cfg = with_supported_optimizations(cfg)
    return Preparation(cfg, num_parts(cfg.scheme, world_size), graph).in_memory()


def _waiting_ms(cfg: Config, prepared: PreparedGraph, ranks: list[RankRun], hardware: Hardware) -> list[float]:
    """How long each rank waits for data in an epoch, by the model, behind products that took the measured time."""
    if hardware.network is None:  # a measured profile: its links are taken to hold for as many ranks
        hardware = replace(hardware, ranks_per_node=len(ranks))
    job = counted_job(cfg, len(ranks), prepared)
    trace = trace_epoch(job, 0)
    num_bytes = [(name, width * job.dtype.itemsize) for name, width in trace.products]
    num_bytes += [(one.name, one.gathered_bytes) for one in trace.passes]
    weights = [job.products[name].rank_nnz * float(of_edge) for name, of_edge in num_bytes]
    measured = np.array([rank.time_ms["spmm"] for rank in ranks]).reshape(job.num_own_rows.shape) / 1e3
    spmm_s = [measured * weight / np.maximum(sum(weights), 1) for weight in weights]
    product_s, edge_s = spmm_s[: len(trace.products)], spmm_s[len(trace.products) :]
    edges = [edge_time(job, one, hardware, seconds) for one, seconds in zip(trace.passes, edge_s)]
    return (1e3 * communication_s(job, trace, product_s, edges, hardware)).ravel().tolist()


def _run(cfg: Config, world: World, prepared: PreparedGraph, epochs: int) -> RankRun:
    run = set_up(cfg, world, Meter(world.device), prepared=prepared)
    training = StepRunner(run, replay_for(cfg.runtime.cuda_graph, world))
    run.meter.take()
    peak = TensorPeak(world.device)
    with peak.watch(*run.graph.tensors(), *training.state.tensors()):
        training(1).cost.read()
    times = [training(epoch).cost.read().time_ms for epoch in range(2, epochs + 1)]
    computed = {
        "epoch": [time.get("epoch", 0.0) - time.get("comm", 0.0) for time in times],
        "spmm": [time.get("spmm", 0.0) for time in times],
    }
    return RankRun({phase: float(np.median(found)) for phase, found in computed.items()}, peak.bytes)
