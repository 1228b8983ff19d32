"""What a scheme of one's own costs. The program of each rank runs alone, and what it multiplies and receives is noted.

The planner knows 1D and 1.5D by their layouts (``statistics.py``), so that it can plan them for a graph of which only
the numbers are given. Of any other scheme it knows the program alone. A dry run of it (``distributed/dry.py``) on the
prepared graph, with a kernel that multiplies nothing, gives

    bytes     what each rank receives, by collective: exact
    memory    the peak of the tensors of an epoch, and the blocks by the formula of their kernel
    spmm      as in ``predict.py``: nnz x columns numbers are gathered from a table of the block's columns
    comm      latency + bytes / bandwidth of each collective, which nothing hides
    dense     that of 1D, or of 1.5D where the scheme has replicas, whose ranks have as many rows
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fullgnn.config import Config, build
from fullgnn.costs.hardware import Hardware
from fullgnn.costs.predict import Prediction, dense_s, heaviest_rank, held_by_kernel, kernel_of, other_s
from fullgnn.costs.statistics import counted_job
from fullgnn.costs.trace import trace_epoch
from fullgnn.distributed import dry_world
from fullgnn.engine.run import distribute, learn, prepare_input
from fullgnn.engine.step_runner import StepRunner
from fullgnn.errors import UnsupportedError
from fullgnn.kernels.spmm import NO_EPILOGUE, Epilogue, LocalCSR
from fullgnn.kernels.support.trials import TensorPeak
from fullgnn.prepare.prepared import PreparedGraph
from fullgnn.schemes.base import CHOOSE_SCHEME
from fullgnn.schemes.options import ONE_AND_HALF_D
from fullgnn.telemetry.meter import Meter


@dataclass(eq=False)
class _Block:
    """A block that a rank multiplies."""

    num_rows: int
    num_cols: int
    nnz: int
    has_values: bool
    widths: list[int] = field(default_factory=list)  # columns of X, of each product


class _NotingKernel:
    """A ``Kernel`` that notes what it would multiply."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> _Block:
        self.blocks.append(_Block(adj.num_rows, adj.num_cols, adj.nnz, adj.values is not None))
        return self.blocks[-1]

    def spmm(self, block: _Block, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NO_EPILOGUE) -> None:
        block.widths.append(x.shape[1])
        if not accumulate:
            out.zero_()

    def tensors(self, block: _Block) -> list[Tensor]:
        return []

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        return "nothing"


class _NotingMeter(Meter):
    """A ``Meter`` that notes each collective."""

    def __init__(self, device: torch.device):
        super().__init__(device)
        self.transfers: list[tuple[str, int]] = []  # collective, and bytes that this rank receives

    def received(self, collective: str, num_bytes: int) -> None:
        super().received(collective, num_bytes)
        self.transfers.append((collective, num_bytes))


@dataclass(frozen=True)
class _RankEpoch:
    """The second epoch of a rank."""

    blocks: list[_Block]
    transfers: list[tuple[str, int]]
    peak_tensor_bytes: int  # without the blocks


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
    ranks = [_run_alone(cfg, world_size, rank, prepared, hardware) for rank in range(world_size)]
    replication = cfg.scheme.get("replication", 1)
    like = replace(cfg, scheme={"_target_": ONE_AND_HALF_D, "name": "1.5d", "replication": replication})
    job = counted_job(like, world_size, prepared, locality)
    trace = trace_epoch(job, heaviest_rank(job))
    dense, other = (of_job.ravel() for of_job in (dense_s(job, trace, hardware), other_s(job, trace, hardware)))
    itemsize, kernel = job.dtype.itemsize, kernel_of(cfg, hardware)

    def multiply_s(block: _Block) -> float:
        by_column = block.nnz * itemsize
        tables = [block.num_cols * width * itemsize for width in block.widths]
        rates = [locality / hardware.gather_rate(1) + (1 - locality) / hardware.gather_rate(table) for table in tables]
        gathered_s = sum(by_column * width * rate for width, rate in zip(block.widths, rates))
        return gathered_s + len(block.widths) * hardware.op_s

    def transfer_s(collective: str, num_bytes: int) -> float:
        link = hardware.link(collective, world_size)
        return link.latency_s + num_bytes / link.bytes_per_s

    def held(block: _Block) -> float:
        row_bytes = {width * itemsize for width in block.widths}
        value_bytes = itemsize if block.has_values else 0
        return held_by_kernel(kernel, block.num_rows, block.num_cols, block.nnz, value_bytes, row_bytes, itemsize)

    times = [
        {
            "spmm": sum(map(multiply_s, rank.blocks)),
            "comm": sum(transfer_s(*transfer) for transfer in rank.transfers) if world_size > 1 else 0.0,
            "dense": float(dense[number]),
            "other": float(other[number]),
        }
        for number, rank in enumerate(ranks)
    ]
    received = {name: [0] * world_size for rank in ranks for name, num_bytes in rank.transfers if num_bytes}
    for number, rank in enumerate(ranks):
        for name, num_bytes in rank.transfers:
            if num_bytes:
                received[name][number] += num_bytes
    slowest = max(times, key=lambda of_rank: sum(of_rank.values()))
    return Prediction(
        hardware=hardware.name,
        time_ms={phase: 1e3 * seconds for phase, seconds in slowest.items()},
        comm_bytes_per_epoch={name: sum(of_ranks) / world_size for name, of_ranks in received.items()},
        comm_bytes_per_rank=received,
        fetch="stages",
        peak_tensor_bytes=max(rank.peak_tensor_bytes + round(sum(map(held, rank.blocks))) for rank in ranks),
        memory_bytes=hardware.memory_bytes,
    )


def _run_alone(cfg: Config, world_size: int, rank: int, prepared: PreparedGraph, hardware: Hardware) -> _RankEpoch:
    """Train two epochs as ``rank``, on the CPU, and note the second."""
    runtime = replace(cfg.runtime, device="cpu", nproc=hardware.ranks_per_node, cuda_graph="never")
    cfg, kernel = replace(cfg, runtime=runtime), _NotingKernel()
    with dry_world(runtime, rank, world_size) as world:
        meter = _NotingMeter(world.device)
        run = learn(cfg, world, meter, prepared.facts.nodes)
        if run.request.edges:
            model, name = cfg.model["name"], cfg.scheme["name"]
            raise UnsupportedError(f"model={model} reads edges, which is not planned in scheme={name}: {CHOOSE_SCHEME}")
        scheme: dict[str, Any] = {"world": world, "kernel": kernel, "meter": meter}
        run.scheme = build(cfg.scheme, **scheme)
        distribute(run, prepared)
        prepare_input(run)
        runner = StepRunner(run)
        runner(1)  # makes the moments of the optimizer
        meter.transfers.clear()
        for block in kernel.blocks:
            block.widths.clear()
        peak = TensorPeak(world.device)
        with peak.watch(*run.graph.tensors(), *runner.state.tensors()):
            runner(2)
    return _RankEpoch(kernel.blocks, meter.transfers, peak.bytes)
