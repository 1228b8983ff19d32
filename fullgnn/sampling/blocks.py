"""Sampled hops as the ``Block`` of each layer, so that the models of full-batch training serve sampled training too.

A block of a sample is rectangular: its sources are the sources of a hop, its targets some of them. Layers multiply by
the matrix A of the whole graph, of which a hop has some entries in each row. An entry that was drawn counts with its
factor (``Draw``), so that the product has the expected value of the product with A: normalisation reads the degrees of
the whole graph. Self-loops that a layer adds are never left out. So with all neighbours, a block is exact.

A layer that reads edges one by one sees the drawn edges. A sum of messages, as in ``MessageConv``, counts each with its
factor; means, maxima and softmaxes are those over the drawn edges.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullgnn.graph import EdgeSet, Propagation
from fullgnn.kernels.support.read_only import read_only_tensor
from fullgnn.kernels.support.to_device import move
from fullgnn.sampling.hop import Hop
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.products import SampledMultiplication, SampledProduct, transposed
from fullgnn.sampling.rows import HopEdges, Put
from fullgnn.schemes.base import BlockRequest
from fullgnn.schemes.block import Block
from fullgnn.schemes.edges import Stage
from fullgnn.schemes.row_exchange import ONE_RANK, RowExchange

CPU = torch.device("cpu")


class BlockMaker:
    """Makes the blocks of a model with a ``request`` from the hops of a sample.

    Args:
        dtype: of the rows that are multiplied.
        device: of the blocks.
        num_row_blocks: how many of the model's first blocks only name its rows.
        sums_rows: whether a layer may add over all rows of a block: there is one rank.
        home: the device on which hops are sampled. Blocks are computed there, and then moved to ``device``.
    """

    def __init__(
        self,
        graph: HostGraph,
        request: BlockRequest,
        dtype: torch.dtype,
        device: torch.device,
        num_row_blocks: int = 0,
        sums_rows: bool = True,
        home: torch.device = CPU,
    ):
        self.request, self.dtype, self.device = request, dtype, device
        self._num_row_blocks = num_row_blocks
        self._ranks = ONE_RANK if sums_rows else None

        def at_home(array: np.ndarray | None) -> Tensor | None:
            return None if array is None else read_only_tensor(array).to(home)

        self._indptr, self._weight = read_only_tensor(graph.indptr).to(home), at_home(graph.weight)
        scales = {
            propagation: propagation.scales(graph.row_sums.get(propagation.self_loops))
            for propagation in request.propagations
        }
        self._scales = {propagation: (at_home(row), at_home(col)) for propagation, (row, col) in scales.items()}

    def blocks(self, hops: Sequence[Hop[Any]], targets: np.ndarray, put: Put | None = None) -> list[Block]:
        """The blocks of all layers, the first layer's first.

        Args:
            hops: from the targets outwards.
            targets: (num_targets,) GLOBAL ids, the targets of the first hop.
            put: brings what the blocks hold to the device, see ``Packet.put``; None: at once.
        """
        put = put or self._move
        inputs = hops[-1].sources if hops else targets
        rows = [self._row_block(torch.as_tensor(inputs), put)] * self._num_row_blocks
        made: dict[int, Block] = {id(hop): self.block(hop, put) for hop in {id(hop): hop for hop in hops}.values()}
        return [*rows, *(made[id(hop)] for hop in reversed(hops))]

    def _move(self, tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        return tensor.to(self.device, dtype or tensor.dtype)

    def _row_block(self, ids: Tensor, put: Put) -> Block:
        """A block that names the rows with these ``ids``, and reads no neighbours."""
        row_exchange = partial(RowExchange, len(ids), len(ids))
        return Block(put(ids, torch.int64), row_exchange=row_exchange, ranks=self._ranks)

    def block(self, hop: Hop[Any], put: Put | None = None) -> Block:
        """The block of one layer; see ``blocks``."""
        hop, put = hop if isinstance(hop.sources, Tensor) else hop.tensors(), put or self._move
        edges = HopEdges(hop, self._indptr, self._weight, put)
        products = {propagation: self._product(propagation, edges) for propagation in self.request.propagations}
        stages = {edge_set: (self._stage(edge_set, edges),) for edge_set in self.request.edges}
        every = hop.num_targets == len(hop.sources)  # both are ascending, and the targets are among the sources
        return Block(
            put(hop.sources, torch.int64),
            products,
            None if every else put(hop.target_index, torch.int64),
            row_exchange=partial(RowExchange, len(hop.sources), hop.num_targets),
            edges=stages,
            ranks=self._ranks,
        )

    def _product(self, propagation: Propagation, edges: HopEdges) -> SampledProduct:
        hop, rows = edges.hop, edges.rows(propagation.self_loops)
        row, col = self._scales_of(propagation, edges)
        factor = edges.row_factor if hop.sums is None else None
        differ = hop.factors is not None or (propagation.self_loops and factor is not None)  # the edges of a row
        if edges.weights is not None or differ:
            matrix = rows.matrix(rows.entries(self.dtype, edges.weights, hop.factors, factor, row, col))
            return SampledProduct(SampledMultiplication(matrix, None, None, self.dtype), partial(transposed, matrix))
        if factor is not None:
            row = factor if row is None else row * factor
        row, col = (None if scale is None else rows.put(scale, self.dtype) for scale in (row, col))
        return SampledProduct(SampledMultiplication(rows.pattern, row, col, self.dtype), lambda: rows.transposed)

    def _scales_of(self, propagation: Propagation, edges: HopEdges) -> tuple[Tensor | None, Tensor | None]:
        """The scales of the targets and of the sources; an induced subgraph is normalised by its own row sums."""
        hop = edges.hop
        if hop.sums is None:
            row, col = self._scales[propagation]
            row = None if row is None else row.index_select(0, edges.target_ids)
            return row, None if col is None else col.index_select(0, hop.sources)
        scales = propagation.scales(hop.sums[int(propagation.self_loops)].cpu().numpy())
        row, col = (None if scale is None else torch.from_numpy(scale).to(hop.indptr.device) for scale in scales)
        return None if row is None else row[hop.target_index], col

    def _stage(self, edge_set: EdgeSet, edges: HopEdges) -> Stage:
        rows = edges.rows(edge_set.self_loops)
        values = None if edges.weights is None else rows.entries(self.dtype, edges.weights)

        def count() -> Tensor:
            factors = rows.entries(self.dtype, factors=edges.hop.factors, row_factor=edges.row_factor)
            return move(factors, self.device)

        return Stage(rows.matrix(values), count)
