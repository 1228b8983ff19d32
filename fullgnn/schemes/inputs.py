"""The input of the first layer in place of a matrix of features, where something is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Union

from torch import Tensor

from fullgnn.errors import UnsupportedError
from fullgnn.graph import Propagation
from fullgnn.kernels.support.aligned import select_rows

if TYPE_CHECKING:
    from fullgnn.kernels.dense.host_rows import HostRows
    from fullgnn.kernels.dense.sparse_rows import SparseRows
    from fullgnn.schemes.block import Block


@dataclass(frozen=True, eq=False)
class PropagatedInput:
    """A constant model input H0 of which only some products A^k H0 are kept, so that the first convolution needs no
    sparse product."""

    block: Block  # has every row as a target
    propagation: Propagation  # A
    products: Mapping[int, Tensor | HostRows]
    """By the power k, (num_sources, F), this rank's rows of A^k H0, on its device or on the host."""
    _selected: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False)
    """By the power, the own targets of the last block that had fewer of them, and their rows."""

    def rows(self, block: Block, propagation: Propagation, power: int = 1) -> Tensor | HostRows:
        """The rows of A^power H0 that are the own targets of ``block``, which has the same sources: (num_own_targets,
        F). Some rows are selected once for every epoch.

        Raises:
            UnsupportedError: a product that is not kept, or a block of another graph, is asked for.
        """
        if propagation != self.propagation or block.source_id is not self.block.source_id or power not in self.products:
            raise UnsupportedError(f"only the powers {[*self.products]} of the product for {self.propagation} are kept")
        product = self.products[power]
        if block.target_index is None:
            return product
        if not isinstance(product, Tensor):  # rows on the host
            return product.index_select(0, block.target_index)
        if power not in self._selected or self._selected[power][0] is not block.target_index:
            self._selected[power] = block.target_index, select_rows(product, block.target_index)
        return self._selected[power][1]

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        kept = [*self.products.values(), *(rows for _, rows in self._selected.values())]
        return [tensor for rows in kept for tensor in ([rows] if isinstance(rows, Tensor) else rows.tensors())]


@dataclass(frozen=True, eq=False)
class InputRows:
    """A constant model input on a CPU that is not copied: its rows lie in a matrix of more rows."""

    matrix: Tensor  # (n, F)
    index: Tensor  # (num_sources,) int32, the row of each source in the matrix
    requires_grad = False

    def copied(self, some: Tensor | None = None) -> Tensor:
        """(num_sources, F), a copy of the rows, or of (m,) ``some`` of them."""
        return self.matrix.index_select(0, self.index if some is None else self.index[some])

    def tensors(self) -> list[Tensor]:
        """The tensors that it alone holds, for counting memory."""
        return [self.index]


Input = Union[Tensor, PropagatedInput, InputRows, "SparseRows"]
"""What the first layer of a model reads: the rows of the features, dense or sparse, what is kept of them, or where they
lie. Only a model whose contract says ``reads_input_rows`` gets ``InputRows``, and only one whose contract says
``reads_sparse_rows`` gets ``SparseRows``."""
