"""One training epoch of one rank, as its real program goes through it, on a skeleton of its share of the graph.

Two runs, neither of which needs the graph:

    memory   on the CPU, without other ranks: the scheme's own operators and exchange, with a few of the rank's rows and
             a kernel that multiplies nothing. The peak memory is linear in the number of rows, so two points give it.
    work     on the device "meta", where tensors have a size and no content: the dense products of some rows, and in a
             model that reads edges one by one the other operations on rows. Each side of such a product, and the bytes
             of such an operation, are linear in the number of rows as well.

A new model, or another order of multiplying, is thus planned by the code that runs it, and needs no formula.

What the epoch asks of the rows of the graph are passes over its edges, and rows that move before, during and after a
pass. A pass is a product, or a pass of a layer that reads edges one by one. The products of the skeleton and its
``TracedHalo`` note each pass and each movement. What a layer reads for an edge is stated in its contract, and hooks
note it before the layer's forward and backward pass.
"""

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from fullgnn.costs.layout import MadeUpDirectory, Move, MoveKind, made_up_step
from fullgnn.costs.statistics import PlannedJob, estimated_job
from fullgnn.distributed import CountingAxis, SharedSlots
from fullgnn.engine import Run, StepRunner, build_model
from fullgnn.engine.passes import all_logits, loss_logits
from fullgnn.engine.state import place_rows, split_parameters
from fullgnn.graph.labels import LabelFacts
from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.spmm import NO_EPILOGUE, Epilogue, LocalCSR
from fullgnn.kernels.support.aligned import like_rows, zero_padded
from fullgnn.kernels.support.trials import TensorPeak
from fullgnn.nn import RowReads, contract_of, set_epoch, set_spmm_order
from fullgnn.nn.contract import block_request
from fullgnn.schemes.base import BlockRequest, ShardedGraph
from fullgnn.schemes.block import Block, BlockProduct, EdgeIds
from fullgnn.schemes.buffers import BufferPool
from fullgnn.schemes.edges import Stage
from fullgnn.schemes.exchange import Exchange, RankContext, exchange_of
from fullgnn.schemes.halo import Halo
from fullgnn.schemes.inputs import Input, PropagatedInput
from fullgnn.schemes.multiplication import DistributedMultiplication
from fullgnn.schemes.product_layout import HALO
from fullgnn.schemes.step_plan import StepPlan
from fullgnn.tasks import MultiClass, Task
from fullgnn.telemetry.meter import Meter

SAMPLE_ROWS = 4096
"""Rows of the smaller of the two skeletons: enough that the program treats them as large matrices."""

MOST_ROWS = 2**18
"""Rows of all ranks together in that skeleton, which may hold a copy of them all."""


TRAVELS = ("fetch", "push")
"""The moves of rows between block rows: in the dtype of the wire, at the beginning of a pass."""


@dataclass(frozen=True)
class Pass:
    """A pass over the edges of a block, and what moves before, during and after it."""

    name: str  # of the product that reads the same rows, as in ``Layout``
    moves: tuple[Move, ...] = ()
    reads: RowReads = field(default_factory=RowReads)
    """Numbers that it reads for an edge."""
    is_product: bool = False  # which reads a row of X for each edge


@dataclass(eq=False)
class PassLog:
    """Notes the passes of an epoch.

    The moves between two passes over edges belong to the first of them; gradients that begin to travel, and rows that
    arrive, begin a pass, which has the reads that were stated last.
    """

    products: list[Pass] = field(default_factory=list)
    over_edges: list[Pass] = field(default_factory=list)
    stated: RowReads | None = None  # what the pass reads which a layer is about to begin

    def multiply(self, name: str, x: Tensor, wire_dtype: torch.dtype) -> None:
        """Note the product ``name`` with (rows, F) ``x``, which travels in ``wire_dtype``."""
        width, row_bytes = x.shape[1], x.shape[1] * x.itemsize
        moves = Move("fetch", row_bytes, width * wire_dtype.itemsize), Move("sum", row_bytes, row_bytes)
        self.products.append(Pass(name, moves, RowReads(sources=width), is_product=True))

    def move(self, name: str, kind: MoveKind, row_bytes: int, wire_bytes: int) -> None:
        """Note a ``Move`` of the rows that the product ``name`` reads."""
        last, travels = Pass("") if not self.over_edges else self.over_edges[-1], kind in TRAVELS
        kinds = {move.kind for move in last.moves}
        awaits_rows = kind == "fetch" and "push" in kinds and "fetch" not in kinds and self.stated is None
        if last.name != name or (travels and not awaits_rows):
            last = Pass(name)
            self.over_edges.append(last)
        if travels and self.stated is not None:
            last, self.stated = replace(last, reads=self.stated), None
        self.over_edges[-1] = replace(last, moves=(*last.moves, Move(kind, row_bytes, wire_bytes)))

    def watch(self, model: torch.nn.Module) -> None:
        """Have each layer of ``model`` that says what it reads for an edge state that before the moves of its forward
        pass, and before those of its backward pass."""
        for layer in model.modules():
            if (reads := contract_of(layer).edge_reads) is not None:
                layer.register_forward_pre_hook(partial(self._state, reads.forward))
                layer.register_forward_hook(partial(self._end_forward, reads.backward))

    def _state(self, reads: RowReads, *of_hook: Any) -> None:
        self.stated = reads

    def _end_forward(self, reads: RowReads, layer: torch.nn.Module, args: Any, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(partial(self._state, reads))


def _noted(kind: MoveKind, moved: Callable[..., Any]) -> Any:
    """A method of ``Halo`` that notes a move of this ``kind``: of a tensor, or of a width of rows like it."""

    def noted(halo: "TracedHalo", *args: Any) -> Any:
        like = args[-1]
        width = args[0] if kind == "push" else like.numel() if kind == "copies" else like.shape[1]
        wire_dtype = halo._context.travelling_dtype(like) if kind in TRAVELS else like.dtype
        halo._log.move(halo._name, kind, width * like.itemsize, width * wire_dtype.itemsize)
        return moved(halo, *args)

    return noted


class TracedHalo(Halo):
    """A row exchange without other ranks that has the moves of the rows of product ``name`` noted in ``log``."""

    def __init__(self, exchange: Exchange, name: str, log: PassLog):
        super().__init__(exchange)
        self._name, self._log = name, log

    arrivals = _noted("fetch", Halo.arrivals)
    push = _noted("push", Halo.push)
    gather_targets = _noted("targets", Halo.gather_targets)
    reduce = _noted("sum", Halo.reduce)
    maximum = _noted("maximum", Halo.maximum)
    sum_partial = _noted("copies", Halo.sum_partial)


class Gemm(NamedTuple):
    """A dense product: (m, k) times (k, n)."""

    m: int
    k: int
    n: int


@dataclass(frozen=True)
class Trace:
    """One epoch of one rank."""

    rank: int
    request: BlockRequest
    passes: list[Pass]  # those over edges one by one in order, then the products in order
    transposed: frozenset[str]  # the products by which edges are kept in the order of their sources too
    gemms: list[Gemm]
    num_parameters: int  # of those that every rank holds
    num_row_parameters: int  # of those that have a row for each node, in a row
    peak_tensor_bytes: int  # without the blocks of the adjacency
    buffer_bytes: int  # of these, the buffers of the exchange
    kept_bytes: int  # of these, A^k @ H0
    pass_bytes: int
    """Read or written by operations on rows other than dense products, in a model that reads edges one by one."""

    @property
    def products(self) -> list[Pass]:
        """The ``passes`` that are products."""
        return [row_pass for row_pass in self.passes if row_pass.is_product]


def trace_epoch(job: PlannedJob, rank: int, padded: bool = False) -> Trace:
    """Trace the epoch of ``rank``.

    Args:
        padded: rows that arrive or stay are laid out in lines, as on a GPU, see ``aligned.py``.
    """
    num_rows = max(1, int(job.num_own_rows[job.grid.place(rank)]))
    all_travel = any(product.halo is None for product in job.products.values())
    few = min(num_rows, SAMPLE_ROWS, MOST_ROWS // job.grid.num_parts if all_travel else SAMPLE_ROWS)

    def trained(sample: int) -> tuple[_Skeleton, list[int]]:
        """A skeleton of ``sample`` rows after an epoch, and what grows with its rows: bytes, and sides of products."""
        skeleton = _Skeleton(job.scaled(sample / num_rows), rank, torch.device("cpu"), padded)
        held, work = skeleton.train_one_epoch(), _work(job, sample)
        return skeleton, [*held, work.pass_bytes, *itertools.chain(*work.gemms)]

    first, numbers = trained(few)
    if beyond := (num_rows - few) / few:  # of the way from one skeleton to the next, twice as large
        pairs = zip(numbers, trained(2 * few)[1])
        numbers = [round(small + (large - small) * beyond) for small, large in pairs]
    passes = [*first.log.over_edges, *first.log.products]
    gemms = [Gemm(*sides) for sides in np.reshape(numbers[4:], (-1, 3)).tolist()]
    replicated, sharded = split_parameters(first.model)
    num_parameters = sum(parameter.numel() for parameter in replicated)
    num_row_parameters = sum(parameter[0].numel() for parameter in sharded if len(parameter))
    known = rank, first.request, passes, frozenset(first.transposed), gemms, num_parameters, num_row_parameters
    return Trace(*known, *numbers[:4])


def peak_bytes(runner: StepRunner, epoch: int) -> int:
    """The peak of the tensors of a rank in an ``epoch``, its graph included."""
    graph = runner.run.graph
    peak = TensorPeak(graph.labels.device)
    with peak.watch(*graph.tensors(), *runner.state.tensors()):
        runner(epoch).cost.read()
    return peak.bytes


def _work(job: PlannedJob, num_rows: int) -> "Operations":
    """The operations of a step on ``num_rows`` rows, by one rank alone, whose blocks have no edges."""
    num_train = min(num_rows, round(job.graph.num_train * (num_rows / job.graph.num_nodes)))
    part = replace(job.graph, num_nodes=num_rows, nnz=num_rows, num_train=num_train)
    keys = {"replication": 1, "split_rows": True, "exchange": "broadcast", "fetch": "stages", "piece_rows": None}
    alone = dict(job.cfg.scheme) | keys
    skeleton = _Skeleton(estimated_job(replace(job.cfg, scheme=alone), 1, part), 0, torch.device("meta"), padded=False)
    set_epoch(skeleton.model, 1)
    if skeleton.request.edges:
        skeleton.model.eval()  # on this device a dropout draws its numbers in operations that no other device runs
    with Operations() as seen:
        of_all_rows = skeleton.graph.loss_block is None  # the device "meta" cannot select those with loss
        logits = (all_logits if of_all_rows else loss_logits)(skeleton.model, skeleton.graph)
        logits.backward(torch.empty_like(logits))
    if not skeleton.request.edges:
        seen.pass_bytes = 0  # products fuse such operations, but not on this device
    return seen


class Operations(TorchDispatchMode):
    """Collects the dense products of torch, the bytes that its other operations read and write, and how many both are.

    Compiled kernels of this project are no operations of torch, and are not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gemms: list[Gemm] = []
        self.pass_bytes = self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first_factor = {torch.ops.aten.mm.default: 0, torch.ops.aten.mm.out: 0, torch.ops.aten.addmm.default: 1}
        result = func(*args, **(kwargs or {}))
        if func in first_factor:
            x, weight = args[first_factor[func] :][:2]
            self.gemms.append(Gemm(x.shape[0], x.shape[1], weight.shape[1]))
            self.count += 1
        elif not (func.is_view or "empty" in func.__name__):
            self.count += 1
            tensors = [leaf for leaf in tree_iter((args, kwargs, result)) if isinstance(leaf, Tensor)]
            self.pass_bytes += sum(tensor.nbytes for tensor in tensors)
        return result


class EmptyKernel:
    """A ``Kernel`` that multiplies nothing."""

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> Any:
        return adj

    def spmm(self, block: Any, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NO_EPILOGUE) -> None:
        pass

    def tensors(self, block: Any) -> list[Tensor]:
        return []

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        return "nothing"


class _TracedMultiplication(DistributedMultiplication):
    """A multiplication that has itself noted, with its ``name``, in ``log`` as it multiplies. Its blocks have an entry
    in each row, so that the kernel is called, and no others."""

    name: str
    log: PassLog

    def __call__(self, x: Tensor, epilogue: Epilogue = NO_EPILOGUE, *, scaled: bool = False) -> Tensor:
        self.log.multiply(self.name, x, self.context.travelling_dtype(x))
        return super().__call__(x, epilogue, scaled=scaled)

    def _matrix(self, plan: StepPlan, matrices: list[csr_array]) -> csr_array:
        shape, indptr = (self.num_rows, plan.num_rows), np.arange(self.num_rows + 1) * min(1, plan.num_rows)
        return csr_array((np.ones(indptr[-1], np.int8), np.zeros(indptr[-1], int), indptr), shape)


class _Skeleton:
    """One rank's model and its share of the graph, whose blocks have the reads of the real ones and no other entries.

    On the axes of the mesh nothing moves.
    """

    def __init__(self, job: PlannedJob, rank: int, device: torch.device, padded: bool):
        grid, meter = job.grid, Meter(torch.device("cpu"))
        (part, replica), self.job, self.log = grid.place(rank), job, PassLog()
        self.transposed: set[str] = set()  # see ``Trace``; known after an epoch
        self._exchange = cache(self._exchange_of)
        self._num_own = job.rows.num_own(part, replica)
        self.context = RankContext(
            part,
            replica,
            CountingAxis(grid.num_parts, part, meter),
            CountingAxis(grid.replication, replica, meter),
            CountingAxis(grid.num_ranks, rank, meter),
            device=device,
            wire_dtype=grid.torch_wire_dtype,
            shared_memory=job.shares_memory("cpu"),
            pads_rows=padded,
            buffers=BufferPool(device, lambda number: SharedSlots(grid.num_ranks, rank, 1.0, True, number)),
        )
        self.model = build_model(job.cfg, job.graph.num_features, job.graph.num_classes, torch.device("cpu"))
        place_rows(self.model, torch.arange(self._num_own))
        self.model.to(device)  # the device "meta" could not draw the first values
        self.request = block_request(self.model, job.cfg.optimizations)
        set_spmm_order(self.model, job.cfg.optimizations.spmm_order)
        self.log.watch(self.model)
        self.graph = self._graph()

    def train_one_epoch(self) -> tuple[int, int, int]:
        """Return the peak bytes of tensors, those of the buffers of its exchanges, and those of A^k @ H0, which may
        replace the features."""
        scheme: Any = SimpleNamespace(sum_over_rows=lambda tensor: tensor)  # of all ranks: there is no other
        cfg, meter = self.job.cfg, self.context.world.meter
        alone: Any = None  # no world, and no facts but those of the plan
        run = Run(cfg, alone, meter, alone, self.model, self._task(), cfg.optimizations, self.request)
        run.scheme, run.graph = scheme, self.graph
        runner = StepRunner(run)
        runner.state.optimizer.step()  # makes its moments, which every step but the very first holds from its beginning
        peak, buffers = peak_bytes(runner, 1), self.context.buffers.tensors()
        kept = self.graph.features.tensors() if isinstance(self.graph.features, PropagatedInput) else []
        return peak, sum(tensor.nbytes for tensor in buffers), sum(tensor.nbytes for tensor in kept)

    def _task(self) -> Task:
        if (links := self.job.links) is None:
            return MultiClass(LabelFacts(self.job.graph.num_classes, num_train=self.graph.num_split_nodes[0]))
        task: Any = copy.copy(links.task)
        task.make_steps = lambda: [made_up_step(links, self.context)]
        return task

    def _graph(self) -> ShardedGraph:
        job, device, optimizations = self.job, self.context.device, self.job.cfg.optimizations
        num_own, num_features = self._num_own, job.graph.num_features
        node_id, loss_block = torch.arange(num_own, device=device), None
        num_train = num_own * job.graph.num_train // job.graph.num_nodes
        if "loss" in job.products:
            num_train = job.products["loss"].out_rows.num_own(self.context.part, self.context.replica)
            loss_block = self._block("loss", node_id, torch.arange(num_train, device=device))
        block = self._block("adj", node_id, None)
        features = torch.zeros(num_own, num_features, dtype=job.dtype, device=device)
        if self.context.pads_rows and num_features:
            features = zero_padded(num_own, num_features, like=features)
        kept: Input = features
        contract = contract_of(self.model)
        if optimizations.cache_aggregation and contract.input_propagation is not None:
            products = {power: like_rows(features) for power in contract.input_powers}
            kept = PropagatedInput(block, contract.input_propagation, products)
        elif not optimizations.skip_input_gradient:
            features.requires_grad_()
        return ShardedGraph(
            block=block,
            loss_block=loss_block,
            features=kept,
            labels=torch.zeros(num_own, dtype=torch.int64),
            masks=torch.arange(num_own) < torch.tensor([[num_train], [0], [0]]),
            num_features=num_features,
            num_classes=job.graph.num_classes,
            num_split_nodes=(max(1, num_train), 0, 0),
            num_blocks=self.request.num_blocks,
        )

    def _block(self, name: str, node_id: Tensor, targets: Tensor | None) -> Block:
        """The block of the product ``name``."""
        directory: Any = MadeUpDirectory(self.context, len(node_id))
        block = Block(node_id, {}, targets, self.context.buffers, directory=lambda: directory, ranks=self)
        if not (self.request.propagations or self.request.edges):
            return block
        halo, ids = TracedHalo(self._exchange(name), name, self.log), EdgeIds()
        if self.request.edges:  # no ids arrive, and ids of their own are as good
            numbers = partial(torch.arange, device=node_id.device)
            ids = EdgeIds(numbers(halo.num_targets), [*map(numbers, halo.num_rows)])
        return replace(
            block,
            products={propagation: self._product(name) for propagation in self.request.propagations},
            row_exchange=lambda: halo,
            edges={edge_set: tuple(map(partial(self._stage, name), halo.num_rows)) for edge_set in self.request.edges},
            edge_ids=ids,
        )

    def _stage(self, name: str, num_rows: int) -> Stage:
        """Edges of a stage in which so many rows arrive: none on the device "meta", where torch operations would
        compute them; else one, so that the kernel runs."""
        device, num_targets = self.context.device, self.job.products[name].out_rows.block_size(self.context.part)
        nnz = 0 if device.type == "meta" else min(1, num_rows, num_targets)
        indices = partial(torch.zeros, nnz, dtype=torch.int32, device=device)

        def pointers(size: int) -> Tensor:
            begun = torch.empty(size + 1, dtype=torch.int32, device=device)
            if device.type != "meta":
                torch.clamp(torch.arange(size + 1, out=begun), max=nnz, out=begun)
            return begun

        def transposed(csr: LocalCSR) -> Transposed:
            self.transposed.add(name)
            return Transposed(pointers(num_rows), indices(), None, num_rows, num_targets, places=indices())

        return Stage(LocalCSR(pointers(num_targets), indices(), None, num_targets, num_rows), transpose=transposed)

    def sum_over_rows(self, tensor: Tensor) -> Tensor:
        """Note what would travel; see ``JoinsRows``."""
        self.log.move("adj", "all", tensor.nbytes, tensor.nbytes)
        return tensor

    def gather_partial(self, tensor: Tensor) -> Tensor:
        """Note what would travel; see ``JoinsRows``."""
        self.log.move("adj", "gathered", tensor.nbytes, tensor.nbytes)
        return tensor[None]

    def _product(self, name: str) -> BlockProduct:
        """The product ``name`` and its transpose, which has the blocks of A if A is symmetric."""
        forward = self._multiplication(name)
        shared = self.job.graph.symmetric and name == "adj"
        backward = copy.copy(forward) if shared else self._multiplication(f"{name}_t")
        backward.name = f"{name}_t"
        return BlockProduct(forward, backward)

    def _multiplication(self, name: str) -> _TracedMultiplication:
        product = self.job.products[name]
        multiplication = _TracedMultiplication(EmptyKernel(), self._exchange(name), [], True, self.job.dtype)
        multiplication.name, multiplication.log = name, self.log
        if not self.job.folded:
            return multiplication
        num_own = product.in_rows.num_own(self.context.part, self.context.replica)
        return multiplication.scaled(np.ones(multiplication.num_rows), np.ones(num_own))

    def _exchange_of(self, name: str) -> Exchange:
        product, part, replica = self.job.products[name], self.context.part, self.context.replica
        counts = product.rows_read(product.halo) * (product.transports == HALO)[:, :, None]

        def columns(source: int) -> np.ndarray:
            pairs = zip(product.in_rows.slices(source), counts[part, source])
            return np.concatenate([rows.start + np.arange(count) for rows, count in pairs])

        boundary = counts[:, part, replica % product.in_rows.num_slices]
        halo = [columns(source) for source in product.sources(part, replica)]
        return exchange_of(self.context, product, halo, [*map(np.arange, boundary)])
