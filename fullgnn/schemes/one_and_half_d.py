"""1D and 1.5D: block rows, broadcast stages, partial sums over replicas.

p ranks form a (p/r, r) mesh with the axes ``row`` and ``replica``. With b = p/r block rows,

    rank (i, k)   holds H_i, the rows of block i, and the blocks A_ij for the stages j of replica k
    stage j       owner (j, k) broadcasts H_j along ``row``; every (i, k) adds A_ij H_j to its partial sum
    at the end    the r partial sums of block row i are all-reduced along ``replica``

The broadcast of the next stage is in flight while the current one multiplies: two receive buffers, made once for each
width. A rank receives its replica's H_j except its own, and 2 (r-1)/r of T_i. With r = 1 the second axis has one
rank, its all-reduce returns its input, and this is 1D. The backward pass is the same product with the blocks
of A^T, which are those of A where A is symmetric.

Sources: CAGNET (Tripathy, Yelick, Buluc, SC'20), sections IV-A and IV-B; Miao et al. 2023, Algorithm 1. This differs
from CAGNET's 1.5D in:
1. any r that divides p works, not only r^2 | p: the stages are shared within one, by non-zeros (``stages.py``);
2. a rank stores only the blocks that it multiplies, not its whole block row.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullgnn.dist import Axis, Pending, World, from_rank0, receive_arrays, send_arrays, share
from fullgnn.errors import ConfigError, PartitionError
from fullgnn.kernels import Kernel, LocalCSR
from fullgnn.meter import Meter
from fullgnn.partition import Partition, contiguous
from fullgnn.reorder.measure import block_nnz
from fullgnn.schemes.base import PreparedGraph, ShardedGraph
from fullgnn.schemes.stages import rank_nnz, share_stages

log = logging.getLogger(__name__)


def one_d(world: World, kernel: Kernel, meter: Meter, replication: int = 1) -> "OneAndHalfD":
    """1D: 1.5D with one replica. Another ``replication``, as a sweep may set it, is put back to 1 with a line."""
    if replication != 1:
        log.info("scheme=1d keeps one replica: scheme.replication=%d is not used", replication)
    return OneAndHalfD(world, kernel, meter, replication=1)


def one_and_half_d(world: World, kernel: Kernel, meter: Meter, replication: int = 2) -> "OneAndHalfD":
    """1.5D with ``replication`` replicas of each block row.

    Raises:
        ConfigError: ``replication`` does not divide the number of ranks.
    """
    if replication < 1 or world.size % replication:
        divisors = ", ".join(str(r) for r in range(1, world.size + 1) if world.size % r == 0)
        raise ConfigError(
            f"scheme.replication={replication} does not divide the {world.size} processes: choose one of {divisors}"
        )
    return OneAndHalfD(world, kernel, meter, replication)


@dataclass(frozen=True)
class _Layout:
    """What every rank knows of the cut."""

    partition: Partition
    forward_stages: list[list[int]]  # of each replica, for A
    backward_stages: list[list[int]]  # of each replica, for A^T
    symmetric: bool
    num_classes: int
    num_split_nodes: tuple[int, int, int]
    nnz_imbalance: float


class OneAndHalfD:
    """This rank's part in 1.5D; see the head of this file. Built by ``one_d`` and ``one_and_half_d``."""

    mesh_axes = ("row", "replica")

    def __init__(self, world: World, kernel: Kernel, meter: Meter, replication: int):
        self.world, self.kernel, self.meter = world, kernel, meter
        self.replication = replication
        self.num_parts = world.size // replication
        self.nnz_imbalance = 1.0
        mesh = world.mesh((self.num_parts, replication), self.mesh_axes)
        self._row_axis = Axis(mesh.get_group("row"), meter)
        self._replica_axis = Axis(mesh.get_group("replica"), meter)
        self._world_axis = Axis(world.group, meter)
        self._partition: Partition
        self._node_id: Tensor

    def shard(self, prepared: PreparedGraph | None) -> ShardedGraph:
        """Cut on rank 0, one rank after the other, and send; each rank receives only what it will multiply."""
        layout = share(from_rank0(lambda: self._layout(prepared)))  # rank 0 has the prepared graph
        self._partition, self.nnz_imbalance = layout.partition, layout.nnz_imbalance
        if prepared is not None:
            for rank in range(1, self.world.size):
                send_arrays(self._cut(prepared, layout, rank), rank)
            arrays = self._cut(prepared, layout, 0)
        else:
            arrays = receive_arrays(0)
        tensors = {name: torch.from_numpy(array).to(self.world.device) for name, array in arrays.items()}
        self._node_id = tensors["node_id"]

        replica = self._replica_axis.index
        forward = self._staged_blocks(tensors, "adj", layout.forward_stages[replica])
        backward = (
            forward if layout.symmetric else self._staged_blocks(tensors, "adj_t", layout.backward_stages[replica])
        )
        return ShardedGraph(
            adj=_Adjacency(self, forward, backward, tensors["node_id"]),
            features=tensors["features"],
            labels=tensors["labels"],
            masks=tensors["masks"],
            num_features=tensors["features"].shape[1],
            num_classes=layout.num_classes,
            num_split_nodes=layout.num_split_nodes,
        )

    def sum_over_rows(self, tensor: Tensor) -> Tensor:
        """Sum over all ranks, to which only replica 0 contributes: each block row counts once, and since every rank
        receives the same bits, parameters that start equal stay equal."""
        if self._replica_axis.index != 0:
            tensor.zero_()
        return self._world_axis.all_reduce(tensor)

    def gather(self, rows: Tensor) -> Tensor | None:
        """See ``Scheme.gather``: replica 0 of each block row sends its rows to rank 0."""
        local = {"node_id": self._node_id.cpu().numpy(), "rows": rows.detach().cpu().numpy()}
        sources = range(0, self.world.size, self.replication)
        if self.world.rank != 0:
            if self.world.rank in sources:
                send_arrays(local, 0)
            return None
        out = np.empty((self._partition.num_nodes, rows.shape[1]), local["rows"].dtype)
        out[local["node_id"]] = local["rows"]
        for source in sources[1:]:
            part = receive_arrays(source)
            out[part["node_id"]] = part["rows"]
        return torch.from_numpy(out)

    def _layout(self, prepared: PreparedGraph | None) -> _Layout:
        assert prepared is not None
        graph = prepared.graph
        partition = contiguous(graph.num_nodes, self.num_parts)
        nnz = block_nnz(prepared.adj, partition)
        if nnz.max() >= 2**31:
            raise PartitionError(
                f"a block of the adjacency has {nnz.max()} non-zeros, 2^31 or more: use more processes"
            )
        forward, backward = share_stages(nnz, self.replication), share_stages(nnz.T, self.replication)
        load = rank_nnz(nnz, forward)
        return _Layout(
            partition,
            forward,
            backward,
            prepared.adj_t is None,
            graph.num_classes,
            (int(graph.train_mask.sum()), int(graph.val_mask.sum()), int(graph.test_mask.sum())),
            float(load.max() / load.mean()) if load.any() else 1.0,
        )

    def _cut(self, prepared: PreparedGraph, layout: _Layout, rank: int) -> dict[str, np.ndarray]:
        """The arrays of ``rank``: rows of H and labels, and one CSR triple for each block it multiplies."""
        part, replica = divmod(rank, self.replication)
        rows, graph = layout.partition.slice(part), prepared.graph
        arrays = {
            "node_id": prepared.node_id[rows].copy(),
            "features": graph.features[rows].astype(prepared.adj.dtype),
            "labels": graph.labels[rows].copy(),
            "masks": np.stack([graph.train_mask[rows], graph.val_mask[rows], graph.test_mask[rows]]),
        }
        matrices = [("adj", prepared.adj, layout.forward_stages)]
        if prepared.adj_t is not None:
            matrices.append(("adj_t", prepared.adj_t, layout.backward_stages))
        for name, matrix, stages in matrices:
            block_row = matrix[rows]
            for j in stages[replica]:
                block = block_row[:, layout.partition.slice(j)]
                arrays[f"{name}.{j}.indptr"] = block.indptr.astype(np.int32)
                arrays[f"{name}.{j}.indices"] = block.indices.astype(np.int32)
                arrays[f"{name}.{j}.values"] = block.data
        return arrays

    def _staged_blocks(self, tensors: dict[str, Tensor], name: str, stages: list[int]) -> list["_Stage"]:
        sizes, num_rows = self._partition.sizes, int(self._partition.sizes[self._row_axis.index])
        staged = []
        for j in stages:
            indptr, indices, values = (tensors.pop(f"{name}.{j}.{key}") for key in ("indptr", "indices", "values"))
            csr = LocalCSR(indptr, indices, values, num_rows, int(sizes[j]))
            staged.append(_Stage(j, int(sizes[j]), self.kernel.prepare(csr) if csr.nnz else None))
        return staged


@dataclass(frozen=True, eq=False)
class _Stage:
    source: int  # block row whose owner broadcasts
    num_rows: int  # rows of H_source
    block: Any  # A_i,source as the kernel wants it; None where it has no non-zeros


class _Adjacency:
    """The ``ShardedAdjacency`` of 1.5D: runs the stages, forward with A's blocks and backward with those of A^T."""

    def __init__(self, scheme: OneAndHalfD, forward: list[_Stage], backward: list[_Stage], node_id: Tensor):
        self.node_id = node_id
        self._forward, self._backward = forward, backward
        self._row_axis, self._replica_axis = scheme._row_axis, scheme._replica_axis
        self._kernel, self._meter = scheme.kernel, scheme.meter
        self._max_rows = int(scheme._partition.sizes.max())
        self._buffers: dict[tuple[int, torch.dtype], Tensor] = {}

    def tensors(self) -> list[Tensor]:
        """See ``ShardedAdjacency``; a kernel's prepared block counts where it is a tensor."""
        blocks = [stage.block for stage in (*self._forward, *self._backward)]
        return [self.node_id, *(block for block in blocks if isinstance(block, Tensor)), *self._buffers.values()]

    def spmm(self, x: Tensor) -> Tensor:
        """(num_local_nodes, F) rows of X to the same rows of A @ X."""
        return _SpMM.apply(x, self)

    def multiply(self, x: Tensor, stages: list[_Stage]) -> Tensor:
        """The product along ``stages``, summed over the replicas."""
        out = x.new_empty(x.shape)
        accumulate = False
        for stage, h in self._arrivals(x, stages):
            if stage.block is not None and h.numel():
                with self._meter.phase("spmm"):
                    self._kernel.spmm(stage.block, h, out, accumulate)
                accumulate = True
        if not accumulate:
            out.zero_()
        return self._replica_axis.all_reduce(out)

    def _arrivals(self, x: Tensor, stages: list[_Stage]) -> Iterator[tuple[_Stage, Tensor]]:
        """Yield each stage with its H_j, the next broadcast already under way."""
        buffers = self._receive_buffers(x)

        def start(t: int) -> Pending:
            stage = stages[t]
            own = stage.source == self._row_axis.index
            return self._row_axis.broadcast(x if own else buffers[t % 2, : stage.num_rows], stage.source)

        in_flight = [start(0)] if stages else []
        for t, stage in enumerate(stages):
            if t + 1 < len(stages):
                in_flight.append(start(t + 1))
            yield stage, in_flight.pop(0).wait()

    def _receive_buffers(self, x: Tensor) -> Tensor:
        """(2, most rows of a block, F): one block arrives while the other is read. None arrives with one block row."""
        key = (x.shape[1], x.dtype)
        if key not in self._buffers:
            self._buffers[key] = x.new_empty(2, self._max_rows if self._row_axis.size > 1 else 0, x.shape[1])
        return self._buffers[key]


class _SpMM(torch.autograd.Function):
    """Y = A X; its gradient is A^T times the gradient of Y."""

    @staticmethod
    def forward(ctx, x: Tensor, adj: _Adjacency) -> Tensor:
        ctx.adj = adj
        return adj.multiply(x.detach().contiguous(), adj._forward)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return ctx.adj.multiply(grad.contiguous(), ctx.adj._backward), None
