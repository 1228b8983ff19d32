"""Build the blocks of one rank from what it has read, see ``layout.RankArrays``.

The arrays hold the stored adjacency. What a convolution multiplies by is made from it here: ones on the diagonal, and
the normalisation, as scales of the rows of X and Y or as entries of the matrices. A rank keeps the blocks in the form
that its kernel wants, and not the arrays.
"""

from collections.abc import Callable, Hashable, Iterator
from functools import cache, partial

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.graph import EdgeSet, Propagation, normalized_entries, with_self_loops
from fullgnn.kernels.spmm import Kernel
from fullgnn.schemes.base import BlockRequest
from fullgnn.schemes.block import Block, BlockProduct, JoinsRows
from fullgnn.schemes.directory import Directory
from fullgnn.schemes.edges import Stage
from fullgnn.schemes.exchange import Exchange, RankContext, exchange_of
from fullgnn.schemes.halo import Halo
from fullgnn.schemes.layout import Layout, RankArrays
from fullgnn.schemes.multiplication import DistributedMultiplication, local_csr
from fullgnn.schemes.nodes import RowSumArrays, numpy_dtype

RowSelection = slice | np.ndarray
Scales = tuple[np.ndarray | None, np.ndarray | None]


class BlockBuilder:
    """The blocks of this rank.

    Args:
        arrays: a stage's matrix is (rows of block row i, rows of the source block).
        row_sums: see ``row_sum_arrays``.
        source_id: (num_sources,) int64, original ids of this rank's rows.
        ranks: joins what the ranks have computed from their rows.
    """

    def __init__(
        self,
        context: RankContext,
        kernel: Kernel,
        layout: Layout,
        request: BlockRequest,
        arrays: RankArrays,
        row_sums: RowSumArrays,
        source_id: Tensor,
        ranks: JoinsRows,
    ):
        self._context, self._kernel, self._layout, self._request = context, kernel, layout, request
        self._arrays, self._row_sums, self._source_id, self._ranks = arrays, row_sums, source_id, ranks
        self._own = layout.rows.own(context.part, context.replica)
        self._folded = request.fold and not layout.weighted
        self._dtype = numpy_dtype(layout.dtype)
        copies = None if layout.rows.num_slices > 1 else context.replicas
        buffers = context.buffers if context.shared_memory and context.device.type == "cpu" else None
        self._directory = cache(lambda: Directory(context.world, copies, source_id, layout.rows.total, buffers))
        self._exchanges: dict[str, Exchange] = {}
        self._multiplications: dict[Hashable, DistributedMultiplication] = {}
        self._matrices: dict[Hashable, list[csr_array]] = {}

    def block(self) -> Block:
        """The block whose own targets are all rows of this rank."""
        return self._block("adj", slice(None), self._own, None)

    def loss_block(self) -> Block:
        """The block whose own targets are the rows of this rank with loss."""
        mask = self._train_mask[self._layout.rows.block(self._context.part)]
        own_train = np.flatnonzero(mask[self._own])
        index = torch.from_numpy(own_train).to(self._context.device)
        return self._block("loss", np.flatnonzero(mask), own_train + self._own.start, index)

    def _block(self, name: str, targets: RowSelection, own_targets: RowSelection, target_index: Tensor | None) -> Block:
        """The block of ``layout.products[name]``.

        Args:
            targets, own_targets: the rows of the block row that are targets, and those of them that this rank holds.
            target_index: see ``Block``.
        """
        products = {}
        for propagation in self._request.propagations:
            row, col = self._scales(propagation)
            forward = self._multiplication(name, propagation)
            shared = name == "adj" and propagation.shares_blocks(self._layout.symmetric, self._folded)
            backward = forward if shared else self._multiplication(f"{name}_t", propagation)
            products[propagation] = BlockProduct(
                forward.scaled(_take(row, targets), _take(col, self._own)),
                backward.scaled(col, _take(row, own_targets)),
            )
        moves_rows = self._request.propagations or self._request.edges
        row_exchange = partial(Halo, self._exchange(name)) if moves_rows else None
        edges = {edge_set: tuple(self._stages(name, edge_set)) for edge_set in self._request.edges}
        made = Block(
            self._source_id,
            products,
            target_index,
            self._context.buffers,
            row_exchange,
            edges,
            self._directory,
            self._ranks,
        )
        if edges:
            assert made.target_id is not None and made.stage_source_id is not None  # their first use is a collective
        return made

    def _stages(self, name: str, edge_set: EdgeSet) -> Iterator[Stage]:
        """The stored edges of each stage, whose columns are numbered as their rows arrive."""
        matrices = self._restricted(name, partial(self._unnormalized, self_loops=edge_set.self_loops))
        for plan in self._exchange(name).plans:
            matrix = plan.matrix(matrices)
            if self._layout.weighted:
                matrix = csr_array((matrix.data.astype(self._dtype), matrix.indices, matrix.indptr), matrix.shape)
            yield Stage(local_csr(matrix, not self._layout.weighted, self._context.device))

    def _scales(self, propagation: Propagation) -> Scales:
        """The scales of X and Y for the rows of this block row; None: all 1, or part of the entries."""
        return self._all_scales(propagation, self._context.part) if self._folded else (None, None)

    def _all_scales(self, propagation: Propagation, part: int) -> Scales:
        """Row scale and column scale of A for the rows of block ``part``; None: all 1."""
        return propagation.scales(self._row_sums.get((propagation.self_loops, part)))

    def _multiplication(self, name: str, propagation: Propagation) -> DistributedMultiplication:
        """The multiplication of ``layout.products[name]``, without scales; those with equal entries are one object."""
        key = name, propagation.self_loops if self._folded else propagation
        if key not in self._multiplications:
            matrices = self._restricted(name, partial(self._entries, propagation=propagation))
            self._multiplications[key] = DistributedMultiplication(
                self._kernel, self._exchange(name), matrices, self._folded, self._layout.dtype
            )
        return self._multiplications[key]

    def _exchange(self, name: str) -> Exchange:
        """The exchange that brings the rows for every multiplication of ``layout.products[name]``."""
        if name not in self._exchanges:
            product, halo, boundary = self._layout.products[name], self._arrays.halo[name], self._arrays.boundary[name]
            self._exchanges[name] = exchange_of(self._context, product, halo, boundary)
        return self._exchanges[name]

    def _restricted(self, name: str, make: Callable[[str], list[csr_array]]) -> list[csr_array]:
        """The matrices of ``layout.products[name]``, one for each stage of this rank.

        Args:
            make: makes those of all rows, for ``adj`` and ``adj_t``.
        """
        if name in ("adj", "adj_t"):
            return make(name)
        from fullgnn.graph._csr_cpu import select  # imported here, since it imports numba

        mask, rows, part = self._train_mask, self._layout.rows, self._context.part
        if name == "loss":
            local = np.flatnonzero(mask[rows.block(part)])
            return [select(matrix, rows=local) for matrix in make("adj")]
        sources = [rows.block(source) for source in self._sources(name)]
        return [select(matrix, columns=np.flatnonzero(mask[source])) for matrix, source in zip(make("adj_t"), sources)]

    def _entries(self, name: str, propagation: Propagation) -> list[csr_array]:
        """The blocks of A (``adj``) or A^T (``adj_t``): its pattern if the normalisation is folded."""
        if self._folded:
            return self._unnormalized(name, propagation.self_loops)
        if name == "adj_t" and propagation.shares_blocks(self._layout.symmetric, self._folded):
            name = "adj"
        key = name, propagation
        if key not in self._matrices:
            pairs = zip(self._unnormalized(name, propagation.self_loops), self._sources(name))
            self._matrices[key] = [self._normalized(matrix, name, propagation, source) for matrix, source in pairs]
        return self._matrices[key]

    def _unnormalized(self, name: str, self_loops: bool) -> list[csr_array]:
        """The stored blocks of the adjacency (``adj``) or its transpose (``adj_t``), with ones on the diagonal if
        ``self_loops``."""
        if name == "adj_t" and self._layout.symmetric:
            name = "adj"
        key = name, self_loops
        if key not in self._matrices:
            matrices, own = self._arrays.matrices[name], self._context.part
            if self_loops:
                pairs = zip(matrices, self._sources(name))
                matrices = [with_self_loops(matrix) if source == own else matrix for matrix, source in pairs]
            self._matrices[key] = matrices
        return self._matrices[key]

    def _normalized(self, matrix: csr_array, name: str, propagation: Propagation, source: int) -> csr_array:
        """``matrix``, the block of A' or its transpose in block column ``source``, with the entries of A or A^T."""
        (row, col), (source_row, source_col) = (
            self._all_scales(propagation, part) for part in (self._context.part, source)
        )
        before, after = (source_col, row) if name == "adj" else (source_row, col)
        return csr_array(
            (normalized_entries(matrix, after, before, self._dtype), matrix.indices, matrix.indptr), matrix.shape
        )

    def _sources(self, name: str) -> list[int]:
        """The block column of each stage of this rank in ``layout.products[name]``."""
        return self._layout.products[name].sources(self._context.part, self._context.replica)

    @property
    def _train_mask(self) -> np.ndarray:
        assert self._arrays.train_mask is not None
        return self._arrays.train_mask


def _take(scale: np.ndarray | None, chosen: RowSelection) -> np.ndarray | None:
    return None if scale is None else scale[chosen]
