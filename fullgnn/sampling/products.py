"""The product of one sampled block with a dense matrix, and that of its transpose."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fullgnn.kernels.dense.dense import Picked, linear_gradients, matmul_nt
from fullgnn.kernels.edges.index import transpose
from fullgnn.kernels.epilogue.epilogue import Activation, apply_epilogue_
from fullgnn.kernels.spmm import NO_EPILOGUE, Epilogue, LocalCSR
from fullgnn.kernels.spmm.base import Prepared
from fullgnn.kernels.spmm.beside import multiplies_beside, spmm_beside_linear
from fullgnn.kernels.spmm.single_use import single_use_kernel
from fullgnn.kernels.support.aligned import as_rows
from fullgnn.kernels.support.process import even_slices, parallel_for
from fullgnn.room import module_on_use
from fullgnn.sampling.hop import PADDING
from fullgnn.schemes.block import Block, BlockProduct
from fullgnn.schemes.inputs import InputRows
from fullgnn.schemes.row_exchange import linear_map

if TYPE_CHECKING:
    from fullgnn.sampling import _blocks_cpu
else:
    _blocks_cpu = module_on_use("fullgnn.sampling._blocks_cpu")


@dataclass(frozen=True, eq=False)
class SampledMultiplication:
    """diag(row_scale) M diag(col_scale) of one process, a ``Multiplication``."""

    csr: LocalCSR  # M
    row_scale: Tensor | None  # (rows of M,); None: all 1
    col_scale: Tensor | None  # (columns of M,); None: all 1
    dtype: torch.dtype

    @property
    def input_scale(self) -> Tensor | None:
        """See ``Multiplication``."""
        return self.col_scale

    @cached_property
    def _prepared(self) -> Prepared:
        kernel = single_use_kernel(self.csr.indices.device, self.dtype)
        return Prepared(kernel, kernel.prepare(self.csr, self.dtype))

    def __call__(self, x: Tensor, epilogue: Epilogue = NO_EPILOGUE, *, scaled: bool = False) -> Tensor:
        """See ``Multiplication``."""
        out = x.new_empty(self.csr.num_rows, x.shape[1])
        return self.write(x if scaled or self.col_scale is None else x * self.col_scale[:, None], out, epilogue)

    def write(self, x: Tensor, out: Tensor, epilogue: Epilogue = NO_EPILOGUE) -> Tensor:
        """Write the product with the scaled ``x`` to ``out``, of any row stride without a dropout, and return it."""
        epilogue = replace(epilogue, scale=self.row_scale)
        if self.csr.nnz == 0:
            return apply_epilogue_(out.zero_(), epilogue)
        self._prepared.multiply(as_rows(x), out, False, epilogue)
        return out

    def reading(self, x: InputRows) -> LocalCSR:
        """M with the columns of ``x.matrix`` in place of those of its sources."""
        columns = self.csr.indices.new_empty(self.csr.nnz + PADDING)
        columns[self.csr.nnz :] = 0
        torch.index_select(x.index, 0, self.csr.indices, out=columns[: self.csr.nnz])
        return replace(self.csr, indices=columns[: self.csr.nnz], num_cols=len(x.matrix))

    def tensors(self) -> list[Tensor]:
        """See ``Multiplication``."""
        return self.csr.tensors() + [scale for scale in (self.row_scale, self.col_scale) if scale is not None]


ADDING_PARTS = 4
"""Into how many parts the rows of a gradient are cut that threads add."""
EDGE_COST = 20
"""Cost of one column of an edge in a sparse product, in multiplications of a dense one (measured on a CPU)."""


class SampledProduct(BlockProduct):
    """The two products with a sampled matrix. The transpose is made when a backward pass first asks for it.

    Args:
        matrix: A.
        transposed: returns the transpose of its ``csr``, once for all products that share it.
    """

    multiply: SampledMultiplication

    def __init__(self, matrix: SampledMultiplication, transposed: Callable[[], LocalCSR]):
        self.multiply, self._transposed = matrix, transposed

    def propagates_first(self, f: int, g: int, needs_input_gradient: bool) -> bool | None:
        """See ``BlockProduct``. A sampled matrix has fewer rows than columns: (A H) W then has fewer rows in its dense
        products, the gradients of W and H included."""
        csr, num_dense = self.multiply.csr, 2 + needs_input_gradient
        propagate = EDGE_COST * csr.nnz * f * (1 + needs_input_gradient) + csr.num_rows * f * g * num_dense
        transform = EDGE_COST * csr.nnz * g * 2 + csr.num_cols * f * g * num_dense
        return propagate < transform

    @cached_property
    def multiply_t(self) -> SampledMultiplication:  # type: ignore[override]
        """The product with A^T."""
        forward = self.multiply
        return SampledMultiplication(self._transposed(), forward.col_scale, forward.row_scale, forward.dtype)

    def spmm(self, x: Tensor | InputRows) -> Tensor:
        """See ``BlockProduct``; of ``InputRows``, rows are read where they lie."""
        if isinstance(x, Tensor):
            return super().spmm(x)
        matrix = self.multiply
        if matrix.col_scale is not None:
            return matrix(x.copied())
        return replace(matrix, csr=matrix.reading(x))(x.matrix)

    def linear_beside(
        self, x: Tensor | InputRows, block: Block, weight: Tensor, bias: Tensor | None, activation: Activation
    ) -> Tensor | None:
        """See ``BlockProduct``; of ``InputRows``, rows are read where they lie."""
        matrix, own = self.multiply, block.target_index
        rows = x if isinstance(x, Tensor) else x.matrix
        if matrix.col_scale is not None or not multiplies_beside(matrix.csr, rows, weight.shape[1]):
            return None
        own = torch.arange(matrix.csr.num_rows) if own is None else own
        if isinstance(x, Tensor):
            return _LinearBeside.apply(x, weight, bias, self, matrix.csr, own.int(), activation)
        return _LinearBeside.apply(
            x.matrix, weight, bias, self, matrix.reading(x), x.index.index_select(0, own), activation
        )

    def spmm_beside(self, x: Tensor, block: Block) -> Tensor:
        """See ``BlockProduct``. Both halves are written in place."""
        index = block.target_index
        if index is None:
            return super().spmm_beside(x, block)
        return linear_map(partial(self._beside, index), partial(self._add_beside, index), x)

    def _beside(self, index: Tensor, x: Tensor) -> Tensor:
        matrix, width, x = self.multiply, x.shape[1], as_rows(x)
        out = x.new_empty(len(index), 2 * width)
        matrix.write(x if matrix.col_scale is None else x * matrix.col_scale[:, None], out[:, :width])
        out[:, width:] = x.index_select(0, index)
        return out

    def _add_beside(self, index: Tensor, grad: Tensor) -> Tensor:
        """The adjoint of ``_beside``."""
        width = grad.shape[1] // 2
        return self.multiply_t(grad[:, :width]).index_add_(0, index, grad[:, width:])

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        backward = vars(self).get("multiply_t")  # once it was asked for
        return [*self.multiply.tensors(), *([] if backward is None else backward.tensors())]


class _LinearBeside(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        product: SampledProduct,
        csr: LocalCSR,
        own: Tensor,
        activation: Activation,
    ) -> Tensor:
        matrix, x = product.multiply, as_rows(x.detach())
        ax, y = spmm_beside_linear(csr, x, own, matrix.row_scale, weight, activation.epilogue(bias))
        ctx.product, ctx.scale = product, activation.scale
        ctx.save_for_backward(ax, x, own, weight, y if activation.relu else None)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ax, x, own, weight, output = ctx.saved_tensors
        needs_grad_x, _, needs_grad_bias, *_ = ctx.needs_input_grad
        grad_weight, grad_bias, masked = linear_gradients(ax, grad, output, ctx.scale, needs_grad_x, Picked(x, own))
        grad_x = None
        if masked is not None:
            grad_both, width = matmul_nt(masked, weight), ax.shape[1]
            grad_x = _add_rows(ctx.product.multiply_t(grad_both[:, :width]), own, grad_both)
        return grad_x, grad_weight, grad_bias if needs_grad_bias else None, None, None, None, None


def _add_rows(target: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    """Add the last columns of ``rows`` to the rows ``index``, none twice, of ``target``, on a CPU, in place; returns
    ``target``."""
    into, places, added = target.numpy(), index.numpy(), rows.numpy()
    parallel_for(
        lambda part: _blocks_cpu.add_rows(into, places[part], added[part]), even_slices(len(places), ADDING_PARTS)
    )
    return target


def transposed(matrix: LocalCSR) -> LocalCSR:
    """The transpose of a ``matrix``."""
    swapped = transpose(matrix)
    return LocalCSR(swapped.indptr, swapped.indices, swapped.values, swapped.num_rows, swapped.num_cols)
