"""What a GPU needs in a run, before anything is allocated for it.

Counted: the blocks of A, as ``kernel=csr`` holds them; what an epoch of the rank's real program holds (``trace.py``);
the buffers of the exchange. Estimated, since only a GPU knows them: CUDA and NCCL, an evaluation beside the pool of a
CUDA graph, and the parts of the product X^T G.
"""

import functools
import logging
from dataclasses import dataclass

import torch

from fullgnn.config import Config, RuntimeConfig
from fullgnn.costs.predict import block_bytes, fewest_pieces, heaviest_trace
from fullgnn.costs.statistics import PlannedJob
from fullgnn.costs.trace import Gemm, Trace
from fullgnn.distributed import World
from fullgnn.engine.aggregate import OFFLOAD_SHARE
from fullgnn.engine.checks import replay_for
from fullgnn.errors import ConfigError
from fullgnn.kernels.dense.host_rows import CHUNK_BYTES
from fullgnn.kernels.support.aligned import aligned_stride
from fullgnn.kernels.support.tuning import PARTS_BYTES, DenseTuning
from fullgnn.telemetry.screen import num_bytes

log = logging.getLogger(__name__)

CUDA_BYTES = 600 << 20
"""Bytes that CUDA itself takes in a process: its context, and the code of kernels. Estimated, not measured."""

NCCL_BYTES = 400 << 20
"""Bytes that NCCL takes for one communicator: its buffers for the other ranks. Estimated, not measured."""

PART_ROWS = DenseTuning.gradient_steps * DenseTuning.gradient_rows
"""Rows whose products X^T G are one part, see ``_gradient_gpu.py``."""


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


BLOCKS, STEP, BUFFERS = "blocks of A", "features, parameters and activations", "buffers of the exchange"
CUDA, NCCL = "CUDA (estimated)", "NCCL (estimated)"
EVALUATION = "an evaluation beside the CUDA graph (estimated)"
PARTS = "parts of X^T G (estimated)"


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
        CUDA: CUDA_BYTES,
        NCCL: NCCL_BYTES * num_communicators,
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
