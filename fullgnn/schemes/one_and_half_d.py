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

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.distributed import Axis, World, broadcast_object, can_share_memory, from_rank0, receive_arrays, send_arrays
from fullgnn.errors import ConfigError
from fullgnn.kernels.spmm import Kernel
from fullgnn.kernels.support.lines import pads_rows
from fullgnn.schemes.adjacency import Adjacency
from fullgnn.schemes.base import Balance, PreparedGraph, ShardedGraph
from fullgnn.schemes.cut import Grid, Layout, cut, lay_out
from fullgnn.schemes.exchange import RankContext
from fullgnn.schemes.layout import Rows
from fullgnn.schemes.operator import Operator
from fullgnn.schemes.traffic import Reads
from fullgnn.telemetry.meter import Meter

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
    check_replication(replication, world.size)
    if wire_dtype is not None:
        log.info("scheme.wire_dtype=%s rounds what travels: the run is not exact", wire_dtype)
    return OneAndHalfD(world, kernel, meter, replication, stage_order, exchange, split_rows, wire_dtype, shared_memory)


def check_replication(replication: int, world_size: int) -> None:
    """Refuse replicas that ``world_size`` processes cannot share block rows among."""
    if replication < 1 or world_size % replication:
        divisors = ", ".join(str(r) for r in range(1, world_size + 1) if world_size % r == 0)
        raise ConfigError(
            f"scheme.replication={replication} does not divide the {world_size} processes: choose one of {divisors}"
        )


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
        self.grid = Grid(self.num_parts, replication, split_rows, stage_order, exchange)
        self.balance = Balance(1.0, 1.0)
        mesh = world.mesh((self.num_parts, replication), self.mesh_axes)
        self.context = RankContext(
            *self.grid.place(world.rank),
            self.num_parts,
            replication,
            row_axis=Axis(mesh.get_group("row"), meter),
            replica_axis=Axis(mesh.get_group("replica"), meter),
            world_axis=Axis(world.group, meter),
            device=world.device,
            wire_dtype=None if wire_dtype is None else getattr(torch, wire_dtype),
            shared_memory=shared_memory and can_share_memory(world),
            timeout_s=world.timeout_s,
            pads_rows=pads_rows(world.device),
            dry=world.dry,
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
        planned = from_rank0(lambda: self._lay_out(prepared, loss_rows))
        layout = broadcast_object(planned[0] if planned else None)
        self._rows, self.balance = layout.rows, layout.balance
        self._dtype = layout.dtype
        self.kernel.name_for(self.world.device, self._dtype)  # refuses what it cannot multiply, on every rank
        if planned is not None and prepared is not None:
            for rank in self.world.others:
                send_arrays(cut(prepared, layout, planned[1], rank), rank)
            arrays = cut(prepared, layout, planned[1], self.world.rank)
        else:
            arrays = receive_arrays(0)
        own = layout.rows.own(self.context.part, self.context.replica)

        def tensor(name: str) -> Tensor:
            return torch.from_numpy(arrays[name]).to(self.world.device)

        self._node_id = tensor("node_id")
        full = self._operators(layout, arrays, own)
        adj = Adjacency(*full, self._node_id, None)
        train_adj = None
        if loss_rows:
            index = tensor("masks")[0].nonzero().squeeze(1)
            output = Adjacency(*self._loss_operators(layout, arrays, own), self._node_id, index)
            train_adj = Adjacency(*full, self._node_id, None, output)
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
        if not self.grid.split_rows and self.context.replica != 0:
            tensor.zero_()
        return self.context.world_axis.all_reduce(tensor)

    def gather(self, rows: Tensor) -> Tensor | None:
        """See ``Scheme.gather``: the ranks send their rows to rank 0, of equal ones only replica 0."""
        local = {"node_id": self._node_id.cpu().numpy(), "rows": rows.detach().cpu().numpy()}
        sources = range(0, self.world.size, self.replication if not self.grid.split_rows else 1)
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

    def _lay_out(self, prepared: PreparedGraph | None, loss_rows: bool) -> tuple[Layout, dict[str, Reads]]:
        assert prepared is not None  # rank 0 has it
        return lay_out(prepared, self.grid, loss_rows)

    def _operators(self, layout: Layout, arrays: dict[str, np.ndarray], own: slice) -> tuple[Operator, Operator]:
        """A and A^T. Where the matrix is symmetric they share their blocks and differ in their scales at most."""
        row, col = arrays.get("row_scale"), arrays.get("col_scale")
        forward = self._operator(layout, arrays, "adj", self._matrices(layout, arrays, "adj"))
        forward = forward.scaled(row, _take(col, own))
        if layout.symmetric:
            return forward, forward.scaled(col, _take(row, own))
        backward = self._operator(layout, arrays, "adj_t", self._matrices(layout, arrays, "adj_t"))
        return forward, backward.scaled(col, _take(row, own))

    def _loss_operators(self, layout: Layout, arrays: dict[str, np.ndarray], own: slice) -> tuple[Operator, Operator]:
        """A[train, :] and its transpose."""
        row, col, mask = arrays.get("row_scale"), arrays.get("col_scale"), arrays["train_mask"]
        rows, block = layout.rows, layout.rows.block(self.context.part)
        local = np.flatnonzero(mask[block])
        matrices = [matrix[local] for matrix in self._matrices(layout, arrays, "adj")]
        forward = self._operator(layout, arrays, "loss", matrices)
        product = layout.products["loss_t"]
        matrices = [
            matrix[:, np.flatnonzero(mask[rows.block(product.source(self.context.part, stage))])]
            for stage, matrix in zip(
                product.stages[self.context.replica],
                self._matrices(layout, arrays, "adj" if layout.symmetric else "adj_t"),
            )
        ]
        backward = self._operator(layout, arrays, "loss_t", matrices)
        own_train = np.flatnonzero(mask[block][own]) + own.start
        return forward.scaled(_take(row, local), _take(col, own)), backward.scaled(col, _take(row, own_train))

    def _operator(
        self, layout: Layout, arrays: dict[str, np.ndarray], name: str, matrices: list[csr_array]
    ) -> Operator:
        """One of ``layout.products``, with a matrix for each stage of this rank."""
        served = np.split(arrays[f"{name}.served"], np.cumsum(arrays[f"{name}.num_served"])[:-1])
        product = layout.products[name]
        return Operator(self.context, self.kernel, product, matrices, served, layout.pattern, layout.dtype)

    def _matrices(self, layout: Layout, arrays: dict[str, np.ndarray], name: str) -> list[csr_array]:
        """The blocks of A (``adj``) or A^T (``adj_t``), one a stage, from the arrays that ``cut`` made."""
        matrices, product = [], layout.products[name]
        for stage in product.stages[self.context.replica]:
            indptr, indices = arrays[f"{name}.{stage}.indptr"], arrays[f"{name}.{stage}.indices"]
            data = arrays.get(f"{name}.{stage}.values")
            shape = len(indptr) - 1, layout.rows.block_size(product.source(self.context.part, stage))
            data = np.ones(len(indices), np.int8) if data is None else data
            matrices.append(csr_array((data, indices, indptr), shape))
        return matrices


def _take(scale: np.ndarray | None, chosen: slice | np.ndarray) -> np.ndarray | None:
    return None if scale is None else scale[chosen]
