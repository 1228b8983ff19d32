"""A constant sparse matrix X that a dense layer multiplies: Y = X W, with the gradient X^T G of W.

Both products are those of the adjacency, by the same kernels: X by rows, and X^T by columns of X. A dropout of X draws
for the stored entries alone, with the words of ``dropout/philox.py``, so that it equals the dropout of the dense X.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.kernels.dense.dense import activation_gradients
from fullgnn.kernels.dropout.philox import Mask, drop_entries
from fullgnn.kernels.epilogue.epilogue import NO_EPILOGUE, Epilogue, apply_epilogue_
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.spmm.single_use import SingleUseTriton, single_use_kernel
from fullgnn.kernels.spmm.triton_csr import TritonCSR
from fullgnn.kernels.support.aligned import as_rows, empty_aligned, to_aligned


class _Places:
    """Where the entries of X or of X^T are. A GPU sorts the rows once for all values, unless they are used once."""

    def __init__(self, csr: LocalCSR, dtype: torch.dtype, single_use: bool):
        self.csr, self._kernel = csr, single_use_kernel(csr.indices.device, dtype)
        if isinstance(self._kernel, SingleUseTriton) and not single_use:
            self._kernel = TritonCSR()
        self._block: Any = None

    def multiply(self, values: Tensor, x: Tensor, out: Tensor, epilogue: Epilogue = NO_EPILOGUE) -> Tensor:
        """Write the product of the matrix with these ``values`` and of (num_cols, g) ``x`` to ``out``.

        On a GPU, rows of ``x`` that do not begin at sectors of a cache line, such as those of a weight with 41 columns,
        are copied to rows that do: each row is read many times, and then 16 bytes at a time.
        """
        x = to_aligned(as_rows(x), x.device)
        if not len(values):
            return apply_epilogue_(out.zero_(), epilogue)
        if isinstance(self._kernel, TritonCSR) and self._block is not None:
            block = self._kernel.with_values(self._block, values)
        else:
            block = self._block = self._kernel.prepare(replace(self.csr, values=values), x.dtype)
        self._kernel.spmm(block, x, out, accumulate=False, epilogue=epilogue)
        return out


@dataclass(frozen=True, eq=False)
class _Pattern:
    """Where the entries of X are, by rows and by columns."""

    by_row: _Places
    by_column: _Places
    row: Tensor  # (nnz,) int32, of each entry, in the order of the rows
    from_rows: Tensor  # (nnz,) int32, for each entry in the order of the columns: its place in the order of the rows


class SparseRows:
    """(num_rows, num_columns) X on its device. Nothing is written to it, and it has no gradient."""

    requires_grad = False

    def __init__(self, pattern: _Pattern, values: Tensor):
        self._pattern, self.values = pattern, values
        self.shape = torch.Size((pattern.by_row.csr.num_rows, pattern.by_row.csr.num_cols))
        self.dtype, self.device = values.dtype, values.device

    @classmethod
    def of(cls, matrix: csr_array, dtype: torch.dtype, device: torch.device, single_use: bool = False) -> "SparseRows":
        """X of a matrix on the host, whose entries are sorted within a row.

        Args:
            single_use: whether X is multiplied in one step only, as that of a sampled batch is.

        Raises:
            ValueError: it has 2^31 entries or more.
        """
        if matrix.nnz >= 1 << 31:
            raise ValueError(f"it has {matrix.nnz} entries, 2^31 or more")
        num_rows, num_columns = matrix.shape
        # The columns of the places of the entries are the places of the columns' entries.
        places = csr_array((np.arange(matrix.nnz, dtype=np.int32), matrix.indices, matrix.indptr), shape=matrix.shape)
        by_column = places.tocsc()

        def local(indptr: np.ndarray, indices: np.ndarray, rows: int, columns: int) -> _Places:
            starts, ids = (torch.from_numpy(np.array(array, np.int32)).to(device) for array in (indptr, indices))
            return _Places(LocalCSR(starts, ids, None, rows, columns), dtype, single_use)

        row = np.repeat(np.arange(num_rows, dtype=np.int32), np.diff(matrix.indptr))
        pattern = _Pattern(
            local(matrix.indptr, matrix.indices, num_rows, num_columns),
            local(by_column.indptr, by_column.indices, num_columns, num_rows),
            torch.from_numpy(row).to(device),
            torch.from_numpy(by_column.data).to(device),
        )
        return cls(pattern, torch.from_numpy(np.array(matrix.data)).to(dtype).to(device))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nnz(self) -> int:
        """The number of stored entries."""
        return len(self.values)

    def dropout(self, mask: Mask) -> "SparseRows":
        """X with the dropout of its elements by ``mask``."""
        pattern = self._pattern
        return SparseRows(pattern, drop_entries(self.values, pattern.row, pattern.by_row.csr.indices, mask))

    def multiply(self, weight: Tensor, epilogue: Epilogue = NO_EPILOGUE) -> Tensor:
        """X W with an ``epilogue``: (num_columns, g) to (num_rows, g), whose rows begin at cache lines where no dropout
        asks for a contiguous result."""
        like = weight.detach()
        out = empty_aligned(len(self), like.shape[1], like)
        if epilogue.dropout is not None:
            out = like.new_empty(out.shape)
        return self._pattern.by_row.multiply(self.values, like, out, epilogue)

    def multiply_t(self, g: Tensor) -> Tensor:
        """X^T G: (num_rows, g) to (num_columns, g)."""
        values = self.values.index_select(0, self._pattern.from_rows)
        return self._pattern.by_column.multiply(values, g, g.new_empty(self.shape[1], g.shape[1]))

    def linear_gradients(self, g: Tensor, output: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
        """The gradients of W and b for Y = activation(X W + b); see ``linear_gradients`` of ``dense.py``."""
        masked, sums = activation_gradients(g, output, scale)
        return self.multiply_t(masked), sums

    def to_dense(self) -> Tensor:
        """(num_rows, num_columns) X as a matrix."""
        dense = self.values.new_zeros(self.shape)
        dense[self._pattern.row.long(), self._pattern.by_row.csr.indices.long()] = self.values
        return dense

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        pattern = self._pattern
        held = [*pattern.by_row.csr.tensors(), *pattern.by_column.csr.tensors()]
        return [*held, pattern.row, pattern.from_rows, self.values]
