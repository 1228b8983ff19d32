"""1D and 1.5D: block rows, stages, partial sums over replicas.

p ranks form a (p/r, r) mesh with the axes ``row`` and ``replica``. With b = p/r block rows,

    rank (i, k)   holds slice k of the rows of block i, and the blocks A_ij of its stages
    stage s       rank (i, k), for the stages s of replica k, receives H_j and adds A_ij H_j to its partial sum
    at the end    the r partial sums of block row i are added, each rank keeping its slice

In the order ``broadcast`` stage s multiplies source column j = s everywhere: the owner broadcasts H_s along ``row``. In
the order ``diagonal`` rank (i, k) multiplies j = i + s mod b. With r = 1 this is 1D. The backward pass is the same
product with the blocks of A^T, which are those of A where A is symmetric. ``split_rows=False`` is the published 1.5D:
all r replicas hold the same rows, do the same dense work, and all-reduce.

Sources: CAGNET (Tripathy, Yelick, Buluc, SC'20), sections IV-A and IV-B; Miao et al. 2023, Algorithm 1. This differs
from CAGNET's 1.5D in:
1. any r that divides p works, not only r^2 | p: the stages are shared within one, by non-zeros (``stages.py``);
2. a rank stores only the blocks that it multiplies, not its whole block row;
3. rows are split over the replicas, so that dense work and activations are divided by r;
4. rows that a block has no column for need not travel (``exchange.py``).
"""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.dist import Axis, World, can_share_memory, from_rank0, receive_arrays, send_arrays, share
from fullgnn.errors import ConfigError, PartitionError
from fullgnn.kernels import Kernel
from fullgnn.meter import Meter
from fullgnn.reorder.measure import block_nnz, imbalance
from fullgnn.schemes.base import Balance, PreparedGraph, ShardedAdjacency, ShardedGraph
from fullgnn.schemes.exchange import Place
from fullgnn.schemes.layout import Rows, cut_rows, stage_nnz, stage_source
from fullgnn.schemes.operator import Operator
from fullgnn.schemes.stages import rank_nnz, share_stages

log = logging.getLogger(__name__)

CHOICES = {
    "stage_order": ("diagonal", "broadcast"),
    "exchange": ("auto", "broadcast", "needed_rows"),
    "wire_dtype": (None, "bfloat16"),
}


def one_d(
    world: World,
    kernel: Kernel,
    meter: Meter,
    replication: int = 1,
    stage_order: str = "diagonal",
    exchange: str = "auto",
    split_rows: bool = True,
    wire_dtype: str | None = None,
    shared_memory: bool = True,
) -> "OneAndHalfD":
    """1D: 1.5D with one replica. Another ``replication``, as a sweep may set it, is put back to 1 with a line."""
    if replication != 1:
        log.info("scheme=1d keeps one replica: scheme.replication=%d is not used", replication)
    return one_and_half_d(world, kernel, meter, 1, stage_order, exchange, split_rows, wire_dtype, shared_memory)


def one_and_half_d(
    world: World,
    kernel: Kernel,
    meter: Meter,
    replication: int = 2,
    stage_order: str = "diagonal",
    exchange: str = "auto",
    split_rows: bool = True,
    wire_dtype: str | None = None,
    shared_memory: bool = True,
) -> "OneAndHalfD":
    """1.5D with ``replication`` replicas of each block row.

    Args:
        stage_order: ``diagonal`` or ``broadcast``, see the head of this file.
        exchange: ``broadcast``: whole blocks of H travel; ``needed_rows``: the rows that are read; ``auto``: the
            cheaper, stage by stage.
        split_rows: each replica holds 1/r of its block's rows; otherwise all of them, as published.
        wire_dtype: ``bfloat16`` halves what travels of H and its gradients, and is not exact.
        shared_memory: where all ranks are processes of one machine without GPUs, they read each other's rows in place.

    Raises:
        ConfigError: an unknown choice, or ``replication`` does not divide the number of ranks.
    """
    for key, value in (("stage_order", stage_order), ("exchange", exchange), ("wire_dtype", wire_dtype)):
        if value not in CHOICES[key]:
            known = ", ".join("null" if choice is None else choice for choice in CHOICES[key])
            raise ConfigError(f"scheme.{key}={value} is not known: choose one of {known}")
    if replication < 1 or world.size % replication:
        divisors = ", ".join(str(r) for r in range(1, world.size + 1) if world.size % r == 0)
        raise ConfigError(
            f"scheme.replication={replication} does not divide the {world.size} processes: choose one of {divisors}"
        )
    if wire_dtype is not None:
        log.info("scheme.wire_dtype=%s rounds what travels: the run is not exact", wire_dtype)
    return OneAndHalfD(world, kernel, meter, replication, stage_order, exchange, split_rows, wire_dtype, shared_memory)


@dataclass(frozen=True)
class _Layout:
    """What every rank knows of the cut."""

    rows: Rows
    forward_stages: list[list[int]]  # of each replica, for A
    backward_stages: list[list[int]]  # of each replica, for A^T
    symmetric: bool
    pattern: bool
    dtype: torch.dtype
    num_classes: int
    num_split_nodes: tuple[int, int, int]
    balance: Balance


class OneAndHalfD:
    """This rank's part in 1.5D; see the head of this file. Built by ``one_d`` and ``one_and_half_d``."""

    mesh_axes = ("row", "replica")

    def __init__(
        self,
        world: World,
        kernel: Kernel,
        meter: Meter,
        replication: int,
        stage_order: str,
        exchange: str,
        split_rows: bool,
        wire_dtype: str | None,
        shared_memory: bool,
    ):
        self.world, self.kernel = world, kernel
        self.replication, self.num_parts = replication, world.size // replication
        self.num_slices = replication if split_rows else 1
        self.balance = Balance(1.0, 1.0)
        mesh = world.mesh((self.num_parts, replication), self.mesh_axes)
        part, replica = divmod(world.rank, replication)
        self.place = Place(
            part,
            replica,
            self.num_parts,
            replication,
            row_axis=Axis(mesh.get_group("row"), meter),
            replica_axis=Axis(mesh.get_group("replica"), meter),
            world_axis=Axis(world.group, meter),
            device=world.device,
            stage_order=stage_order,
            exchange=exchange,
            wire_dtype=None if wire_dtype is None else getattr(torch, wire_dtype),
            shared_memory=shared_memory and can_share_memory(world),
            timeout_s=world.timeout_s,
        )
        self._rows: Rows
        self._node_id: Tensor
        self._dtype: torch.dtype

    @property
    def kernel_name(self) -> str:
        """See ``Scheme``."""
        return self.kernel.name_for(self.world.device, self._dtype)

    def shard(self, prepared: PreparedGraph | None, loss_rows: bool = False) -> ShardedGraph:
        """Cut on rank 0, one rank after the other, and send; each rank receives only what it will multiply."""
        layout = share(from_rank0(lambda: self._layout(prepared)))  # rank 0 has the prepared graph
        self._rows, self.balance = layout.rows, layout.balance
        self._dtype = layout.dtype
        self.kernel.name_for(self.world.device, self._dtype)  # refuses what it cannot multiply, on every rank
        if prepared is not None:
            for rank in range(1, self.world.size):
                send_arrays(self._cut(prepared, layout, rank, loss_rows), rank)
            arrays = self._cut(prepared, layout, 0, loss_rows)
        else:
            arrays = receive_arrays(0)
        own = layout.rows.own(self.place.part, self.place.replica)

        def tensor(name: str) -> Tensor:
            return torch.from_numpy(arrays[name]).to(self.world.device)

        self._node_id = tensor("node_id")
        full = self._operators(layout, arrays, own)
        adj = _Adjacency(*full, self._node_id, None)
        train_adj = None
        if loss_rows:
            index = tensor("masks")[0].nonzero().squeeze(1)
            output = _Adjacency(*self._loss_operators(layout, arrays, own), self._node_id, index)
            train_adj = _Adjacency(*full, self._node_id, None, output)
        return ShardedGraph(
            adj=adj,
            train_adj=train_adj,
            features=torch.from_numpy(arrays["features"]),  # on the host
            labels=tensor("labels"),
            masks=tensor("masks"),
            num_features=arrays["features"].shape[1],
            num_classes=layout.num_classes,
            num_split_nodes=layout.num_split_nodes,
        )

    def sum_over_rows(self, tensor: Tensor) -> Tensor:
        """Sum over all ranks. Where replicas hold the same rows, only replica 0 contributes: each row counts once.

        Every rank receives the same bits, so parameters that start equal stay equal.
        """
        if self.num_slices == 1 and self.place.replica != 0:
            tensor.zero_()
        return self.place.world_axis.all_reduce(tensor)

    def gather(self, rows: Tensor) -> Tensor | None:
        """See ``Scheme.gather``: the ranks send their rows to rank 0, of equal ones only replica 0."""
        local = {"node_id": self._node_id.cpu().numpy(), "rows": rows.detach().cpu().numpy()}
        sources = range(0, self.world.size, self.replication if self.num_slices == 1 else 1)
        if self.world.rank != 0:
            if self.world.rank in sources:
                send_arrays(local, 0)
            return None
        out = np.empty((self._rows.total, rows.shape[1]), local["rows"].dtype)
        out[local["node_id"]] = local["rows"]
        for source in sources[1:]:
            part = receive_arrays(source)
            out[part["node_id"]] = part["rows"]
        return torch.from_numpy(out)

    def _layout(self, prepared: PreparedGraph | None) -> _Layout:
        assert prepared is not None
        graph, adj = prepared.graph, prepared.adj
        nnz = block_nnz(adj.matrix, prepared.partition)
        if nnz.max() >= 2**31:
            raise PartitionError(
                f"a block of the adjacency has {nnz.max()} non-zeros, 2^31 or more: use more processes"
            )
        order = self.place.stage_order
        forward_nnz, backward_nnz = stage_nnz(nnz, order), stage_nnz(nnz.T, order)
        forward = share_stages(forward_nnz, self.replication)
        return _Layout(
            cut_rows(prepared.partition, self.num_slices),
            forward,
            forward if adj.symmetric else share_stages(backward_nnz, self.replication),
            adj.symmetric,
            adj.pattern,
            getattr(torch, prepared.dtype.name),
            graph.num_classes,
            (int(graph.train_mask.sum()), int(graph.val_mask.sum()), int(graph.test_mask.sum())),
            _balance(forward_nnz, forward),
        )

    def _cut(self, prepared: PreparedGraph, layout: _Layout, rank: int, loss_rows: bool) -> dict[str, np.ndarray]:
        """The arrays of ``rank``: its rows of H and labels, and one CSR triple for each block it multiplies."""
        part, replica = divmod(rank, self.replication)
        graph, adj, block = prepared.graph, prepared.adj, layout.rows.block(part)
        own = layout.rows.own(part, replica)
        rows = slice(block.start + own.start, block.start + own.stop)
        arrays = {
            "node_id": prepared.node_id[rows].copy(),
            "features": graph.features[rows].astype(prepared.dtype),
            "labels": graph.labels[rows].copy(),
            "masks": np.stack([graph.train_mask[rows], graph.val_mask[rows], graph.test_mask[rows]]),
        }
        for name, scale in (("row_scale", adj.row_scale), ("col_scale", adj.col_scale)):
            if scale is not None:
                arrays[name] = scale[block]
        if loss_rows:
            arrays["train_mask"] = graph.train_mask
        matrices = [("adj", adj.matrix, layout.forward_stages)]
        if adj.matrix_t is not None:
            matrices.append(("adj_t", adj.matrix_t, layout.backward_stages))
        for name, matrix, stages in matrices:
            block_row = matrix[block]
            for stage in stages[replica]:
                source = stage_source(part, stage, self.num_parts, self.place.stage_order)
                cut = block_row[:, layout.rows.block(source)] if self.num_parts > 1 else block_row
                arrays[f"{name}.{stage}.indptr"] = cut.indptr.astype(np.int32)
                arrays[f"{name}.{stage}.indices"] = cut.indices.astype(np.int32)
                if not adj.pattern:
                    arrays[f"{name}.{stage}.values"] = cut.data
        return arrays

    def _operators(self, layout: _Layout, arrays: dict[str, np.ndarray], own: slice) -> tuple[Operator, Operator]:
        """A and A^T. Where the matrix is symmetric they share their blocks and differ in their scales at most."""
        row, col = arrays.get("row_scale"), arrays.get("col_scale")
        rows = layout.rows
        forward = self._operator(layout, self._matrices(layout, arrays, "adj"), False, rows, rows)
        forward = forward.scaled(row, _take(col, own))
        if layout.symmetric:
            return forward, forward.scaled(col, _take(row, own))
        backward = self._operator(layout, self._matrices(layout, arrays, "adj_t"), True, rows, rows)
        return forward, backward.scaled(col, _take(row, own))

    def _loss_operators(self, layout: _Layout, arrays: dict[str, np.ndarray], own: slice) -> tuple[Operator, Operator]:
        """A[train, :] and its transpose."""
        row, col, mask = arrays.get("row_scale"), arrays.get("col_scale"), arrays["train_mask"]
        rows, block = layout.rows, layout.rows.block(self.place.part)
        train_rows, local = rows.restrict(mask), np.flatnonzero(mask[block])
        matrices = [matrix[local] for matrix in self._matrices(layout, arrays, "adj")]
        forward = self._operator(layout, matrices, False, train_rows, rows)
        matrices = [
            matrix[:, np.flatnonzero(mask[rows.block(self.place.source(stage))])]
            for stage, matrix in zip(
                layout.backward_stages[self.place.replica],
                self._matrices(layout, arrays, "adj" if layout.symmetric else "adj_t"),
            )
        ]
        backward = self._operator(layout, matrices, True, rows, train_rows)
        own_train = np.flatnonzero(mask[block][own]) + own.start
        return forward.scaled(_take(row, local), _take(col, own)), backward.scaled(col, _take(row, own_train))

    def _operator(
        self, layout: _Layout, matrices: list[csr_array], transposed: bool, out_rows: Rows, in_rows: Rows
    ) -> Operator:
        stages = layout.backward_stages if transposed else layout.forward_stages
        return Operator(self.place, self.kernel, matrices, stages, layout.pattern, layout.dtype, out_rows, in_rows)

    def _matrices(self, layout: _Layout, arrays: dict[str, np.ndarray], name: str) -> list[csr_array]:
        """The blocks of A (``adj``) or A^T (``adj_t``), one a stage, from the arrays that ``_cut`` made."""
        matrices = []
        stages = layout.forward_stages if name == "adj" else layout.backward_stages
        for stage in stages[self.place.replica]:
            indptr, indices = arrays[f"{name}.{stage}.indptr"], arrays[f"{name}.{stage}.indices"]
            data = arrays.get(f"{name}.{stage}.values")
            shape = len(indptr) - 1, layout.rows.block_size(self.place.source(stage))
            data = np.ones(len(indices), np.int8) if data is None else data
            matrices.append(csr_array((data, indices, indptr), shape))
        return matrices


def _take(scale: np.ndarray | None, chosen: slice | np.ndarray) -> np.ndarray | None:
    return None if scale is None else scale[chosen]


def _balance(nnz: np.ndarray, shares: list[list[int]]) -> Balance:
    """Of (b, b) non-zeros by block row and stage, where the stages are shared over the replicas."""
    load = rank_nnz(nnz, shares)
    if not nnz.any():
        return Balance(1.0, 1.0, (0,) * load.size)
    steps = [[stages[step] for stages in shares if step < len(stages)] for step in range(max(map(len, shares)))]
    waiting = sum(nnz[:, stages].max() for stages in steps)
    return Balance(imbalance(load), float(waiting / load.mean()), tuple(load.ravel().tolist()))


class _Adjacency:
    """The ``ShardedAdjacency`` of 1.5D: A, or its rows with loss, forward and transposed."""

    def __init__(
        self,
        forward: Operator,
        backward: Operator,
        node_id: Tensor,
        row_index: Tensor | None,
        output: ShardedAdjacency | None = None,
    ):
        self.multiply, self.multiply_t = forward, backward
        self.input_scale, self.gradient_scale = forward.input_scale, backward.input_scale
        self.node_id, self.row_index = node_id, row_index
        self.output: ShardedAdjacency = self if output is None else output

    def tensors(self) -> list[Tensor]:
        """See ``ShardedAdjacency``."""
        index = [] if self.row_index is None else [self.row_index]
        return [self.node_id, *index, *self.multiply.tensors(), *self.multiply_t.tensors()]

    def release(self) -> None:
        """See ``ShardedAdjacency``."""
        self.multiply.exchange.release()
        self.multiply_t.exchange.release()

    def spmm(self, x: Tensor) -> Tensor:
        """(num_local_nodes, F) rows of X to (num_local_rows, F) rows of A @ X."""
        return _SpMM.apply(x, self)


class _SpMM(torch.autograd.Function):
    """Y = A X; its gradient is A^T times the gradient of Y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, adj: _Adjacency) -> Tensor:
        ctx.adj = adj
        return adj.multiply(x.detach())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return ctx.adj.multiply_t(grad), None
