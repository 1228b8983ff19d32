"""1D and 1.5D: A is cut into block rows, multiplied in stages, and the partial sums of the replicas are added.

p ranks form a (p/r, r) mesh with the axes ``row`` and ``replica``. With b = p/r block rows,

    rank (i, k)   holds slice k of the rows of block i, and the blocks A_ij of its stages
    stage s       if s is a stage of replica k, rank (i, k) receives H_j and adds A_ij H_j to its partial sum
    at the end    the r partial sums of block row i are added, and each rank keeps its slice

In the stage order ``broadcast``, stage s multiplies source column j = s everywhere: the owner broadcasts H_s along
``row``. In the stage order ``diagonal``, rank (i, k) multiplies j = i + s mod b. With r = 1 this is 1D. The backward
pass is the same product with the blocks of A^T, which equal those of A if A is symmetric. ``split_rows=False`` is the
published 1.5D: all r replicas hold the same rows, do the same dense work, and all-reduce the partial sums.

Sources: CAGNET (Tripathy, Yelick, Buluc, SC'20), sections IV-A and IV-B; Miao et al. 2023, Algorithm 1. This differs
from CAGNET's 1.5D in:
1. any r that divides p works, not only one with r^2 | p: the stages are assigned to the replicas by non-zeros, and the
   replicas' stage counts differ by at most one (``product_layout.py``);
2. a rank stores only the blocks that it multiplies, not its whole block row;
3. rows are split over the replicas, so that dense work and activations are divided by r;
4. rows for which a block has no column need not travel (``exchange.py``).
"""

import logging
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fullgnn.config.options import takes_options
from fullgnn.distributed import (
    Axis,
    SharedSlots,
    World,
    can_share_memory,
    on_every_rank,
)
from fullgnn.kernels.spmm import Kernel
from fullgnn.kernels.support.aligned import pads_rows
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.schemes.base import Balance, BlockRequest, Offers, ShardedGraph
from fullgnn.schemes.buffers import BufferPool
from fullgnn.schemes.build import BlockBuilder
from fullgnn.schemes.coded import CodedFeatures
from fullgnn.schemes.exchange import RankContext
from fullgnn.schemes.gather import GathersRows
from fullgnn.schemes.layout import lay_out, rank_arrays
from fullgnn.schemes.nodes import row_sum_arrays, sharded_graph
from fullgnn.schemes.options import SchemeOptions
from fullgnn.telemetry.meter import Meter

log = logging.getLogger(__name__)


@takes_options(SchemeOptions)
def one_d(world: World, kernel: Kernel, meter: Meter, **options: Any) -> "OneAndHalfD":
    """Build 1D, which is 1.5D with one replica; see ``SchemeOptions``.

    A sweep may set another ``replication``: 1D logs this and uses 1.
    """
    replication = options.get("replication", 1)
    if replication != 1:
        log.info("scheme=1d keeps one replica: scheme.replication=%d is not used", replication)
    return one_and_half_d(world, kernel, meter, **{**options, "replication": 1})


@takes_options(SchemeOptions)
def one_and_half_d(world: World, kernel: Kernel, meter: Meter, **options: Any) -> "OneAndHalfD":
    """Build 1.5D from the ``SchemeOptions`` that are given by name.

    Raises:
        ConfigError: an unknown choice, or ``replication`` does not divide the number of ranks.
    """
    return OneAndHalfD(world, kernel, meter, SchemeOptions(**options))


class OneAndHalfD(GathersRows):
    """The ``Scheme`` 1.5D on this rank, as the docstring of this module explains it.

    ``one_d`` and ``one_and_half_d`` build it.
    """

    mesh_axes = ("row", "replica")
    offers = Offers(edges=True, pairs=True, loss_rows=True, joins_rows=True)

    def __init__(self, world: World, kernel: Kernel, meter: Meter, options: SchemeOptions):
        self.world, self.kernel = world, kernel
        self.grid = options.grid_on(world.device, world.size)
        self.replication, self.num_parts = self.grid.replication, self.grid.num_parts
        self.balance = Balance(1.0, 1.0)
        if options.wire_dtype is not None:
            log.info("scheme.wire_dtype=%s rounds the rows that ranks send: the run is not exact", options.wire_dtype)
        mesh = world.mesh((self.num_parts, self.replication), self.mesh_axes)
        self.context = RankContext(
            *self.grid.place(world.rank),
            Axis(mesh.get_group("row"), meter) if self.grid.broadcasts else None,
            Axis(mesh.get_group("replica"), meter),
            Axis(world.group, meter),
            device=world.device,
            wire_dtype=options.torch_wire_dtype,
            shared_memory=options.shared_memory and not self.grid.packs and can_share_memory(world),
            pads_rows=pads_rows(world.device),
            buffers=BufferPool(
                world.device, lambda number: SharedSlots(world.size, world.rank, world.timeout_s, world.dry, number)
            ),
        )
        self.all_ranks = self.context.world
        self.copies = 1 if self.grid.split_rows else self.replication
        self._dtype: torch.dtype  # of the last ``shard``

    @property
    def kernel_name(self) -> str:
        """See ``Scheme``."""
        return self.kernel.name_for(self.world.device, self._dtype)

    def shard(self, source: PreparedGraph, request: BlockRequest) -> ShardedGraph:
        """See ``Scheme.shard``. A rank builds the blocks that it multiplies, one after the other."""
        layout, halos = on_every_rank(lambda: lay_out(source, self.grid, request))
        self.balance, self.num_nodes, self._dtype = layout.balance, source.facts.num_nodes, request.dtype
        self.kernel.name_for(self.world.device, request.dtype)  # a kernel without the dtype raises on every rank
        sums = row_sum_arrays(self.world, source, self.grid, request)
        arrays = on_every_rank(lambda: rank_arrays(source, layout, halos, request, self.world.rank))
        self.node_id = torch.from_numpy(arrays.nodes["node_id"]).to(self.world.device)
        builder = BlockBuilder(self.context, self.kernel, layout, request, arrays, sums, self.node_id, self)
        loss_block = builder.loss_block() if request.loss_rows else None
        graph = sharded_graph(source.facts, request, arrays.nodes, builder.block(), loss_block)
        if request.codec is None or arrays.codes is None or self.world.size == 1 or self.context.shared_memory:
            return graph  # no row is sent
        return replace(graph, coded=CodedFeatures(torch.from_numpy(arrays.codes), request.codec, request.dtype))

    def sum_over_rows(self, tensor: Tensor) -> Tensor:
        """Sum over all ranks. Where replicas hold the same rows, only replica 0 contributes: each row counts once.

        Every rank receives the same bits, so parameters that start equal stay equal.
        """
        return self.context.world.all_reduce(tensor.zero_() if self._is_copy else tensor)

    def gather_partial(self, tensor: Tensor) -> Tensor:
        """See ``Block.gather_partial``. Where replicas hold the same rows, all but replica 0 contribute zeros."""
        return self.context.world.all_gather(torch.zeros_like(tensor) if self._is_copy else tensor)

    @property
    def _is_copy(self) -> bool:
        """Whether another rank counts the rows of this rank."""
        return not self.grid.split_rows and self.context.replica != 0
