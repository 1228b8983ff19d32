"""One training epoch of one rank, as its real program goes through it, on a skeleton of its share of the graph.

Two runs, neither of which needs the graph:

    memory   on the CPU, without other ranks: the scheme's own operators and exchange, with a few of the rank's rows and
             a kernel that multiplies nothing. The peak memory is linear in the number of rows, so two points give it.
    work     on the device "meta", where tensors have a size and no content: the dense products of some rows. Each side
             of such a product is linear in the number of rows as well.

A new model, or another order of multiplying, is thus planned by the code that runs it, and needs no formula.
"""

import copy
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fullgnn.costs.statistics import PlannedJob, PlannedProduct, estimated_job
from fullgnn.distributed import CountingAxis, SharedSlots
from fullgnn.engine.blocks import all_logits, input_powers, input_propagation, loss_logits, needs_of
from fullgnn.engine.job import Job, build_model
from fullgnn.engine.memory import TensorPeak
from fullgnn.engine.sharded import place_rows
from fullgnn.engine.state import TrainState
from fullgnn.engine.step_runner import StepRunner
from fullgnn.graph import Propagation
from fullgnn.graph.labels import LabelFacts
from fullgnn.kernels.spmm import NO_EPILOGUE, Epilogue, LocalCSR
from fullgnn.kernels.support.aligned import like_rows, zero_padded
from fullgnn.nn import set_epoch, set_spmm_order
from fullgnn.partition.counts import columns_read
from fullgnn.schemes.base import ShardedGraph
from fullgnn.schemes.block import Block, FusedProduct, Input, PropagatedInput
from fullgnn.schemes.buffers import BufferPool
from fullgnn.schemes.exchange import Exchange, MeshAxes, RankContext
from fullgnn.schemes.operator import Operator
from fullgnn.tasks import MultiClass
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
    """Trace the epoch of ``rank``.

    Args:
        padded: rows that arrive or stay are laid out in lines, as on a GPU, see ``aligned.py``.
    """
    num_rows = max(1, int(job.num_own_rows[job.grid.place(rank)]))
    few = min(num_rows, SAMPLE_ROWS)
    beyond = (num_rows - few) / few  # of the way from one skeleton to the next, twice as large

    def line(small: int, large: int) -> int:
        return round(small + (large - small) * beyond)

    def skeleton(sample: int) -> _Skeleton:
        return _Skeleton(job.scaled(sample / num_rows), rank, torch.device("cpu"), padded)

    first = skeleton(few)
    peak_bytes, gemms = first.train_one_epoch(), _gemms(job, few)
    if beyond:
        peak_bytes = line(peak_bytes, skeleton(2 * few).train_one_epoch())
        gemms = [Gemm(*map(line, one, two)) for one, two in zip(gemms, _gemms(job, 2 * few))]
    num_parameters = sum(parameter.numel() for parameter in first.model.parameters())
    return Trace(rank, first.products, gemms, num_parameters, peak_bytes)


def _gemms(job: PlannedJob, num_rows: int) -> list[Gemm]:
    """The dense products of a step on ``num_rows`` rows, by one rank alone."""
    num_train = min(num_rows, round(job.graph.num_train * (num_rows / job.graph.num_nodes)))
    part = replace(job.graph, num_nodes=num_rows, nnz=num_rows, num_train=num_train)
    alone = dict(job.cfg.scheme) | {"replication": 1, "split_rows": True, "exchange": "broadcast"}
    skeleton = _Skeleton(estimated_job(replace(job.cfg, scheme=alone), 1, part), 0, torch.device("meta"), padded=False)
    set_epoch(skeleton.model, 1)
    with _Gemms() as seen:
        of_all_rows = skeleton.graph.loss_block is None  # the device "meta" cannot select those with loss
        logits = (all_logits if of_all_rows else loss_logits)(skeleton.model, skeleton.graph)
        logits.backward(torch.empty_like(logits))
    return seen.found


class _Gemms(TorchDispatchMode):
    """Collects the dense products."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Gemm] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        first_factor = {torch.ops.aten.mm.default: 0, torch.ops.aten.mm.out: 0, torch.ops.aten.addmm.default: 1}
        if func in first_factor:
            x, weight = args[first_factor[func] :][:2]
            self.found.append(Gemm(*x.shape, weight.shape[1]))
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


class _TracedOperator(Operator):
    """An operator that appends its name and the columns of X to ``products`` as it multiplies."""

    name: str
    products: list[tuple[str, int]]

    def __call__(self, x: Tensor, epilogue: Epilogue = NO_EPILOGUE, *, scaled: bool = False) -> Tensor:
        self.products.append((self.name, x.shape[1]))
        return super().__call__(x, epilogue, scaled=scaled)


def _alone(tensor: Tensor) -> Tensor:
    """The sum over all ranks of a skeleton, which has no other rank."""
    return tensor


class _Skeleton:
    """One rank's model and its share of the graph, whose blocks have the reads of the real ones and no other entries.

    On the axes of the mesh nothing moves.
    """

    def __init__(self, job: PlannedJob, rank: int, device: torch.device, padded: bool):
        grid, meter = job.grid, Meter(torch.device("cpu"))
        self.job, self.products = job, list[tuple[str, int]]()  # name and columns of each product so far
        self.part, self.replica = grid.place(rank)
        self.context = RankContext(
            self.part,
            self.replica,
            grid.num_parts,
            grid.replication,
            MeshAxes(
                CountingAxis(grid.num_parts, self.part, meter),
                CountingAxis(grid.replication, self.replica, meter),
                CountingAxis(grid.num_ranks, rank, meter),
            ),
            device=device,
            wire_dtype=job.options.torch_wire_dtype,
            shared_memory=job.local and grid.num_ranks > 1 and job.options.shared_memory,
            pads_rows=padded,
            buffers=BufferPool(device, lambda number: SharedSlots(grid.num_ranks, rank, 1.0, True, number)),
        )
        self.model = build_model(job.cfg, job.graph.num_features, job.graph.num_classes, device)
        set_spmm_order(self.model, job.cfg.optimizations.spmm_order)
        self.graph = self._graph()
        place_rows(self.model, self.graph.block.source_id)

    def train_one_epoch(self) -> int:
        """Return the peak bytes of tensors."""
        scheme: Any = SimpleNamespace(sum_over_rows=_alone)
        cfg, labels = self.job.cfg, LabelFacts(self.job.graph.num_classes, num_train=self.graph.num_split_nodes[0])
        job = Job(self.model, self.graph, MultiClass(labels), scheme, cfg.optimizations)
        runner = StepRunner(TrainState(self.model, cfg), job, self.context.axes.world.meter)
        peak = TensorPeak(self.context.device)
        with peak.watch(*self.graph.tensors(), *runner.state.tensors()):
            runner(1)
        return peak.bytes

    def _graph(self) -> ShardedGraph:
        job, device, num_own = self.job, self.context.device, self.job.rows.num_own(self.part, self.replica)
        node_id, loss_block = torch.arange(num_own, device=device), None
        num_train = num_own * job.graph.num_train // job.graph.num_nodes
        if "loss" in job.products:
            num_train = job.products["loss"].out_rows.num_own(self.part, self.replica)
            targets = torch.arange(num_train, device=device)
            loss_block = Block(node_id, self._products("loss"), targets, add_up=_alone)
        block = Block(node_id, self._products("adj"), None, self.context.buffers, add_up=_alone)
        masks = torch.zeros(3, num_own, dtype=torch.bool)
        masks[0, :num_train] = True
        features = torch.zeros(num_own, job.graph.num_features, dtype=job.dtype, device=device)
        if self.context.pads_rows:
            features = zero_padded(num_own, job.graph.num_features, like=features)
        kept: Input = features
        propagation = input_propagation(self.model)
        if job.cfg.optimizations.cache_aggregation and propagation is not None:
            kept = PropagatedInput(
                block, propagation, {power: like_rows(features) for power in input_powers(self.model)}
            )
        elif not job.cfg.optimizations.skip_input_gradient:
            features.requires_grad_()
        return ShardedGraph(
            block=block,
            loss_block=loss_block,
            features=kept,
            labels=torch.zeros(num_own, dtype=torch.int64),
            masks=masks,
            num_features=job.graph.num_features,
            num_classes=job.graph.num_classes,
            num_split_nodes=(max(1, num_train), 0, 0),
        )

    def _products(self, name: str) -> dict[Propagation, FusedProduct]:
        """The product ``name`` and its transpose, which has the blocks of A if A is symmetric."""
        found = {}
        for propagation in needs_of(self.model, self.job.cfg.optimizations).propagations:
            forward = self._operator(name)
            if self.job.graph.symmetric and name == "adj":
                backward = copy.copy(forward)
                backward.name = "adj_t"
            else:
                backward = self._operator(f"{name}_t")
            found[propagation] = FusedProduct(forward, backward)
        return found

    def _operator(self, name: str) -> _TracedOperator:
        product = self.job.products[name]
        matrices = [self._block(product, product.source(self.part, stage)) for stage in product.stages[self.replica]]
        slice_ = self.replica if product.in_rows.num_slices > 1 else 0
        counts = np.zeros(product.num_parts, np.int64) if product.halo is None else product.halo[:, self.part, slice_]
        boundary = [np.arange(count) for count in counts]
        exchange = Exchange(self.context, product, [columns_read(matrix) for matrix in matrices], boundary)
        made = _TracedOperator(self.context, _Nothing(), product, exchange, matrices, True, self.job.dtype)
        made.name, made.products = name, self.products
        if not self.job.folded:
            return made
        num_own = product.in_rows.num_own(self.part, self.replica)
        return made.scaled(np.ones(product.out_rows.block_size(self.part)), np.ones(num_own))

    def _block(self, product: PlannedProduct, source: int) -> csr_array:
        """A matrix with an entry in each column that the block reads, all in its first row."""
        num_rows, num_columns = product.out_rows.block_size(self.part), product.in_rows.block_size(source)
        columns = np.arange(min(1, num_columns))
        if product.halo is not None:
            counts = zip(product.in_rows.slices(source), product.halo[self.part, source])
            columns = np.concatenate([rows.start + np.arange(count) for rows, count in counts])
        if num_rows == 0:
            columns = columns[:0]
        indptr = np.full(num_rows + 1, len(columns), np.int32)
        indptr[0] = 0
        entries = np.ones(len(columns), np.int8), columns.astype(np.int32), indptr
        return csr_array(entries, (num_rows, num_columns))
