"""One training epoch of one rank, as its real program goes through it, on a skeleton of its share of the graph.

Two runs, neither of which needs the graph:

    memory   on the CPU, without other ranks: the scheme's own operators and exchange, with a few of the rank's rows and
             a kernel that multiplies nothing. The peak memory is linear in the number of rows, so two points give it.
    work     on the device "meta", where tensors have a size and no content: the dense products of some rows. Each side
             of such a product is linear in the number of rows as well.

A new model, or another order of multiplying, is thus planned by the code that runs it, and needs no formula.
"""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fullgnn.distributed import CountingAxis
from fullgnn.engine.job import build_model
from fullgnn.engine.memory import TensorPeak
from fullgnn.engine.train_step import TrainStep
from fullgnn.kernels.spmm import NO_EPILOGUE, Epilogue, LocalCSR
from fullgnn.kernels.support.aligned import zero_padded
from fullgnn.nn import set_epoch, set_spmm_order
from fullgnn.plan.statistics import PlannedJob, estimated_job
from fullgnn.schemes.adjacency import Adjacency
from fullgnn.schemes.base import Aggregated, ShardedGraph
from fullgnn.schemes.exchange import MeshAxes, RankContext
from fullgnn.schemes.operator import Operator
from fullgnn.schemes.rows import RowDistribution
from fullgnn.telemetry.meter import Meter

SAMPLE_ROWS = 4096
"""Rows of the smaller of the two skeletons: enough that the program treats them as large matrices."""


class Gemm(NamedTuple):
    """A dense product: (m, k) times (k, n)."""

    m: int
    k: int
    n: int

    @property
    def flops(self) -> int:
        return 2 * self.m * self.k * self.n

    @property
    def numbers(self) -> int:
        """Numbers that are read or written."""
        return self.m * self.k + self.k * self.n + self.m * self.n


@dataclass(frozen=True)
class Trace:
    """One epoch of one rank."""

    rank: int
    products: list[tuple[str, int]]  # name as in ``Layout`` and columns, in order
    gemms: list[Gemm]
    num_parameters: int
    peak_tensor_bytes: int  # without the blocks of the adjacency


def trace_epoch(job: PlannedJob, rank: int, padded: bool = False) -> Trace:
    """The epoch of ``rank``.

    Args:
        padded: rows that arrive or stay are laid out in lines, as on a GPU, see ``aligned.py``.
    """
    num_rows = max(1, int(job.num_own_rows()[job.grid.place(rank)]))
    few = min(num_rows, SAMPLE_ROWS)
    beyond = (num_rows - few) / few  # of the way from one skeleton to the next, twice as large

    def line(small: int, large: int) -> int:
        return round(small + (large - small) * beyond)

    def memory(sample: int) -> tuple[int, list[tuple[str, int]], int]:
        return _memory(job.scaled(sample / num_rows), rank, padded)

    peak, products, num_parameters = memory(few)
    gemms = _gemms(job, few)
    if beyond:
        peak = line(peak, memory(2 * few)[0])
        gemms = [Gemm(*map(line, one, two)) for one, two in zip(gemms, _gemms(job, 2 * few))]
    return Trace(rank, products, gemms, num_parameters, peak)


def _memory(job: PlannedJob, rank: int, padded: bool) -> tuple[int, list[tuple[str, int]], int]:
    """The most bytes of tensors in the first epoch, the products in it, and the number of parameters."""
    context = _context(job, rank, torch.device("cpu"), padded)
    products: list[tuple[str, int]] = []
    sharded, model = _skeleton(job, context, products), _model(job, context.device)
    scheme: Any = SimpleNamespace(sum_over_rows=lambda tensor: tensor)  # there is no other rank to add to
    epochs = TrainStep(model, sharded, scheme, job.cfg.train, context.axes.world.meter)
    peak = TensorPeak(context.device)
    with peak.watch(*sharded.tensors(), *epochs.tensors()):
        epochs(1)
    return peak.bytes, products, sum(parameter.numel() for parameter in model.parameters())


def _gemms(job: PlannedJob, num_rows: int) -> list[Gemm]:
    """The dense products of a step on ``num_rows`` rows, by one rank alone."""
    num_train = min(num_rows, round(job.graph.num_train * (num_rows / job.graph.num_nodes)))
    part = replace(job.graph, num_nodes=num_rows, nnz=num_rows, num_train=num_train)
    alone = dict(job.cfg.scheme) | {"replication": 1, "split_rows": True, "exchange": "broadcast"}
    job = estimated_job(replace(job.cfg, scheme=alone), 1, part)
    context = _context(job, 0, torch.device("meta"), padded=False)
    sharded, model = _skeleton(job, context, []), _model(job, context.device)
    set_epoch(model, 1)
    with _Gemms() as seen:
        logits = model(sharded.features, sharded.train_adj or sharded.adj)
        logits.backward(torch.empty_like(logits))
    return seen.found


class _Gemms(TorchDispatchMode):
    """Collects the dense products."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Gemm] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        factors = None
        if func in (torch.ops.aten.mm.default, torch.ops.aten.mm.out):
            factors = args[:2]
        elif func is torch.ops.aten.addmm.default:
            factors = args[1:3]
        if factors is not None:
            self.found.append(Gemm(*factors[0].shape, factors[1].shape[1]))
        return func(*args, **(kwargs or {}))


class _Nothing:
    """A ``Kernel`` for blocks without content."""

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> LocalCSR:
        return adj

    def spmm(self, block: Any, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NO_EPILOGUE) -> None:
        pass

    def tensors(self, block: Any) -> list[Tensor]:
        return []

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        return "nothing"


class _Traced:
    """An operator that appends its name and the columns of X to ``products`` as it multiplies."""

    def __init__(self, name: str, operator: Operator, products: list[tuple[str, int]]):
        self._name, self._operator, self._products = name, operator, products
        self.input_scale, self.tensors = operator.input_scale, operator.tensors

    def __call__(self, x: Tensor, epilogue: Epilogue = NO_EPILOGUE, *, scaled: bool = False) -> Tensor:
        self._products.append((self._name, x.shape[1]))
        return self._operator(x, epilogue, scaled=scaled)


def _context(job: PlannedJob, rank: int, device: torch.device, padded: bool) -> RankContext:
    """Where ``rank`` stands on the mesh, with axes on which nothing moves."""
    grid, meter = job.grid, Meter(torch.device("cpu"))
    part, replica = grid.place(rank)
    return RankContext(
        part,
        replica,
        grid.num_parts,
        grid.replication,
        MeshAxes(
            CountingAxis(grid.num_parts, part, meter),
            CountingAxis(grid.replication, replica, meter),
            CountingAxis(grid.num_ranks, rank, meter),
        ),
        device=device,
        wire_dtype=job.options.torch_wire_dtype,
        shared_memory=job.local and grid.num_ranks > 1 and job.options.shared_memory,
        timeout_s=1.0,
        pads_rows=padded,
        dry=True,
    )


def _model(job: PlannedJob, device: torch.device) -> torch.nn.Module:
    model = build_model(job.cfg, job.graph.num_features, job.graph.num_classes, device)
    set_spmm_order(model, job.cfg.optimizations.spmm_order)
    return model


def _skeleton(job: PlannedJob, context: RankContext, products: list[tuple[str, int]]) -> ShardedGraph:
    """What ``shard`` would give this rank, with blocks that have the reads of the real ones and no other entries.

    Args:
        products: the name and columns of each product are appended to it as it is multiplied.
    """
    graph, optimizations, device = job.graph, job.cfg.optimizations, context.device

    def own(rows: RowDistribution) -> int:
        held = rows.own(context.part, context.replica)
        return held.stop - held.start

    def operator(name: str) -> Operator:
        product = job.products[name]
        matrices, boundary = _blocks(job, name, context.part, context.replica)
        made = Operator(context, _Nothing(), product, matrices, boundary, True, job.dtype)
        if not job.folded:
            return made
        return made.scaled(np.ones(product.out_rows.block_size(context.part)), np.ones(own(product.in_rows)))

    def adjacency(forward: str, backward: str, index: Tensor | None, output: Any = None) -> Adjacency:
        made = operator(forward)
        made_t = made if graph.symmetric and forward == "adj" else operator(backward)
        pair = (_Traced(forward, made, products), _Traced(backward, made_t, products))
        return Adjacency(*pair, node_id, index, output)  # type: ignore[arg-type]

    num_own = own(job.rows)
    num_train, loss = num_own * graph.num_train // graph.num_nodes, job.products.get("loss")
    node_id, masks = torch.arange(num_own, device=device), torch.zeros(3, num_own, dtype=torch.bool)
    output = None
    if loss is not None:
        num_train = own(loss.out_rows)
        output = adjacency("loss", "loss_t", torch.arange(num_train, device=device))
    adj = adjacency("adj", "adj_t", None, output)
    masks[0, :num_train] = True
    features = torch.zeros(num_own, graph.num_features, dtype=job.dtype, device=device)
    if context.pads_rows:
        features = zero_padded(num_own, graph.num_features, like=features)
    if not optimizations.cache_aggregation and not optimizations.skip_input_gradient:
        features.requires_grad_()
    return ShardedGraph(
        adj=adj,
        train_adj=None if loss is None else adj,
        features=Aggregated(features) if optimizations.cache_aggregation else features,
        labels=torch.zeros(num_own, dtype=torch.int64),
        masks=masks,
        num_features=graph.num_features,
        num_classes=graph.num_classes,
        num_split_nodes=(max(1, num_train), 0, 0),
    )


def _blocks(job: PlannedJob, name: str, part: int, replica: int) -> tuple[list[csr_array], list[np.ndarray]]:
    """A matrix for each stage of the rank, with all its entries in one row, and what the others read here."""
    product, halo = job.products[name], job.halo[name]
    num_rows, matrices = product.out_rows.block_size(part), []
    for stage in product.stages[replica]:
        source = product.source(part, stage)
        num_columns = product.in_rows.block_size(source)
        columns = np.arange(min(1, num_columns))
        if halo is not None:
            parts = zip(product.in_rows.slices(source), halo[part, source])
            columns = np.concatenate([rows.start + np.arange(count) for rows, count in parts])
        if num_rows == 0:
            columns = columns[:0]
        indptr = np.full(num_rows + 1, len(columns), np.int32)
        indptr[0] = 0
        entries = np.ones(len(columns), np.int8), columns.astype(np.int32), indptr
        matrices.append(csr_array(entries, (num_rows, num_columns)))
    slice_ = replica if product.in_rows.num_slices > 1 else 0
    counts = np.zeros(job.grid.num_parts, np.int64) if halo is None else halo[:, part, slice_]
    return matrices, [np.arange(count) for count in counts]
