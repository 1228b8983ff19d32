"""A job of more ranks than there are devices: each rank's real program, one after another on one device.

Every rank is a dry run (``distributed/dry.py``) on its part of the prepared graph. There are two uses:

``simulate``            measures the computation of each rank on its real blocks. The time of its collectives is
                        predicted (``predict.py``) from the profile of a machine. The two are kept apart: whoever adds
                        them up labels the sum as simulated. With one rank nothing is simulated, and the result is a
                        measurement.
``predict_own_scheme``  plans a scheme of one's own. The planner knows 1D and 1.5D by their layouts (``statistics.py``),
                        so that it can plan them for a graph of which only the numbers are given. Of any other scheme it
                        knows the program alone. A dry run of it, with a kernel that multiplies nothing, gives

    bytes     what each rank receives, by collective: exact
    memory    the peak of the tensors of an epoch, and the blocks by the formula of their kernel
    spmm      as in ``predict.py``: nnz x columns numbers are gathered from a table of the block's columns
    comm      latency + bytes / bandwidth of each collective, which nothing hides
    dense     that of 1D, or of 1.5D where the scheme has replicas, whose ranks have as many rows
"""

import gc
from collections import defaultdict
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fullgnn.config import Config
from fullgnn.costs.hardware import Hardware
from fullgnn.costs.layout import PlannedBlocks
from fullgnn.costs.predict import EpochTimes, Prediction, heaviest_trace, held_by_kernel, kernel_of, prediction_of
from fullgnn.costs.statistics import counted_job
from fullgnn.costs.trace import EmptyKernel, peak_bytes, trace_epoch
from fullgnn.distributed import World, dry_world
from fullgnn.engine.run import set_up, with_supported_optimizations
from fullgnn.engine.step_runner import StepRunner
from fullgnn.errors import UnsupportedError
from fullgnn.graph import Graph
from fullgnn.kernels.spmm import NO_EPILOGUE, Epilogue, LocalCSR
from fullgnn.kernels.support.process import keep_freed_memory
from fullgnn.nn.contract import block_request, trial_model
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.prepare.source import Preparation
from fullgnn.schemes.base import CHOOSE_SCHEME
from fullgnn.schemes.options import ONE_AND_HALF_D, num_parts
from fullgnn.telemetry.meter import Meter


@dataclass(frozen=True)
class RankRun:
    """One rank, alone on the device."""

    time_ms: dict[str, float]
    """``epoch`` and ``spmm``: medians over the epochs after the first, without collectives; ``comm``: predicted waiting
    for data, 0 if no profile was given."""
    peak_tensor_bytes: int


def simulate(
    cfg: Config, world_size: int, prepared: PreparedGraph, epochs: int = 5, hardware: Hardware | None = None
) -> list[RankRun]:
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
    waiting_ms = [0.0] * world_size if hardware is None else _waiting_ms(cfg, prepared, ranks, hardware)
    return [replace(rank, time_ms=rank.time_ms | {"comm": ms}) for rank, ms in zip(ranks, waiting_ms)]


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
    numbers = [(row_pass.name, row_pass.reads.sources + row_pass.reads.targets) for row_pass in trace.passes]
    weights = [job.products[name].rank_nnz * float(of_edge) for name, of_edge in numbers]
    measured = np.array([rank.time_ms["spmm"] for rank in ranks]).reshape(job.num_own_rows.shape) / 1e3
    shares = [measured * weight / np.maximum(sum(weights), 1) for weight in weights]
    return (1e3 * EpochTimes(job, trace, hardware).by_phase(shares)["comm"]).ravel().tolist()


def _run(cfg: Config, world: World, prepared: PreparedGraph, epochs: int) -> RankRun:
    run = set_up(cfg, world, Meter(world.device), prepared=prepared)
    training = StepRunner(run)
    run.meter.take()
    most_bytes = peak_bytes(training, 1)
    times = [defaultdict(float, training(epoch).cost.read().time_ms) for epoch in range(2, epochs + 1)]
    epoch_ms, spmm_ms = ([time["epoch"] - time["comm"] for time in times], [time["spmm"] for time in times])
    return RankRun({"epoch": float(np.median(epoch_ms)), "spmm": float(np.median(spmm_ms))}, most_bytes)


@dataclass(eq=False)
class _Block:
    """A block that a rank multiplies."""

    sizes: PlannedBlocks
    has_values: bool
    widths: list[int] = field(default_factory=list)  # columns of X, of each product


@dataclass(eq=False)
class NotingKernel(EmptyKernel):
    """A ``Kernel`` that notes what it would multiply."""

    blocks: list[_Block]

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> _Block:
        self.blocks.append(_Block(PlannedBlocks(1, adj.num_rows, adj.num_cols, adj.nnz), adj.values is not None))
        return self.blocks[-1]

    def spmm(self, block: _Block, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NO_EPILOGUE) -> None:
        block.widths.append(x.shape[1])
        if not accumulate:
            out.zero_()


_Transfer = tuple[str, int]
"""A collective, and the bytes that this rank receives in it."""


class _NotingMeter(Meter):
    """A ``Meter`` that notes each collective."""

    def __init__(self, device: torch.device):
        super().__init__(device)
        self.transfers: list[_Transfer] = []

    def received(self, collective: str, num_bytes: int) -> None:
        super().received(collective, num_bytes)
        self.transfers.append((collective, num_bytes))


def predict_own_scheme(
    cfg: Config, world_size: int, prepared: PreparedGraph, locality: float, hardware: Hardware
) -> Prediction:
    """Time, bytes and memory of a run whose scheme is not of the package. The slowest rank and the largest count.

    Args:
        prepared: the graph, cut into the parts of the scheme.
        locality: see ``GraphStatistics``.

    Raises:
        ConfigError: the scheme lacks what the model needs, or the profile lacks a link.
        UnsupportedError: the model reads edges one by one, or the task finds links.
    """
    if block_request(trial_model(cfg), cfg.optimizations).edges:
        model, name = cfg.model["name"], cfg.scheme["name"]
        raise UnsupportedError(f"model={model} reads edges, which is not planned in scheme={name}: {CHOOSE_SCHEME}")
    replication = cfg.scheme.get("replication", 1)
    like = replace(cfg, scheme={"_target_": ONE_AND_HALF_D, "name": "1.5d", "replication": replication})
    job = counted_job(like, world_size, prepared, locality)
    times = EpochTimes(job, heaviest_trace(job, torch.device("cpu")), hardware)
    itemsize, kernel = job.dtype.itemsize, kernel_of(cfg, hardware.device)

    def multiply_s(block: _Block) -> float:
        tables = [(width * itemsize, block.sizes.num_cols * width * itemsize) for width in block.widths]
        gathered_s = sum(block.sizes.nnz * row * hardware.gather_s_per_byte(table, locality) for row, table in tables)
        return gathered_s + len(block.widths) * hardware.op_s

    def held(block: _Block) -> float:
        row_bytes, value_bytes = {width * itemsize for width in block.widths}, itemsize if block.has_values else 0
        return held_by_kernel(kernel, block.sizes, value_bytes, row_bytes, itemsize)

    runtime = replace(cfg.runtime, device="cpu", nproc=hardware.ranks_per_node, cuda_graph="never")
    spmm_s, comm_s, most_bytes = np.zeros(world_size), np.zeros(world_size), 0
    received: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(world_size, np.int64))
    for rank in range(world_size):
        with dry_world(runtime, rank, world_size) as world:
            blocks, transfers, num_bytes = _second_epoch(replace(cfg, runtime=runtime), world, prepared)
        spmm_s[rank] = sum(map(multiply_s, blocks))
        most_bytes = max(most_bytes, num_bytes + round(sum(map(held, blocks))))
        for name, num_bytes in transfers if world_size > 1 else ():
            comm_s[rank] += hardware.link(name, world_size).time_s(num_bytes)
            if num_bytes:
                received[name][rank] += num_bytes
    by_rank = {"spmm": spmm_s, "comm": comm_s, "dense": times.dense_s().ravel(), "other": times.other_s().ravel()}
    return prediction_of(by_rank, received, "stages", most_bytes, hardware)


def _second_epoch(cfg: Config, world: World, prepared: PreparedGraph) -> tuple[list[_Block], list[_Transfer], int]:
    """The blocks, the transfers, and the peak bytes of tensors without the blocks, of a rank in its second epoch."""
    blocks = list[_Block]()
    cfg = replace(cfg, kernel={"_target_": f"{__name__}.NotingKernel", "name": "noting", "blocks": blocks})
    meter = _NotingMeter(world.device)
    runner = StepRunner(set_up(cfg, world, meter, prepared=prepared))
    runner(1)  # makes the moments of the optimizer
    meter.transfers.clear()
    for block in blocks:
        block.widths.clear()
    return blocks, meter.transfers, peak_bytes(runner, 2)
