"""The sparse block that a kernel multiplies, and the contract of a kernel."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from fullgnn.kernels.epilogue.epilogue import NO_EPILOGUE, Epilogue


@dataclass(frozen=True, eq=False)
class LocalCSR:
    """One block of the adjacency, held by this rank, in compressed sparse rows.

    Shapes are local to the block; column ids count from the first column of the block.
    """

    indptr: Tensor  # (num_rows + 1,) int32
    indices: Tensor  # (nnz,) int32, sorted within a row
    values: Tensor | None  # (nnz,) float32 or float64; None: every stored entry is 1
    num_rows: int
    num_cols: int
    single_use: bool = False  # a block of a sampled batch: nothing is prepared for it that its one step would not repay

    @property
    def nnz(self) -> int:
        return self.indices.numel()

    def tensors(self) -> list[Tensor]:
        """Its tensors, for counting memory."""
        return [tensor for tensor in (self.indptr, self.indices, self.values) if tensor is not None]


class Kernel(Protocol):
    """A way to multiply a ``LocalCSR`` by a dense matrix.

    The result has the same bits for any number of threads.
    """

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> Any:
        """Convert a non-empty block, once, to the format that ``spmm`` needs to multiply matrices of ``dtype``."""

    def spmm(self, block: Any, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NO_EPILOGUE) -> None:
        """Write ``block @ x`` into ``out``; with ``accumulate``, the values in ``out`` are added before the epilogue.

            out  <-  dropout(relu(diag(scale) (A x + out) + bias))

        ``x`` and ``out`` may have any row stride, as a slice of columns has; their columns are contiguous.

        Args:
            block: the result of ``prepare`` for a (num_rows, num_cols) block.
            x: (num_cols, F), of the dtype passed to ``prepare``.
            out: (num_rows, F), the same dtype; its contents are ignored unless ``accumulate``.
            epilogue: its scale and bias have the same dtype; with a dropout, ``out`` must be contiguous.
        """

    def tensors(self, block: Any) -> list[Tensor]:
        """The tensors that ``block`` holds at the moment, to count its memory."""

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        """The name, as in ``conf/kernel/``, of the kernel that multiplies a block on ``device`` by ``dtype`` matrices.

        Raises:
            UnsupportedError: the kernel does not support such a block.
        """


class BlockKernel:
    """A ``Kernel`` whose ``prepare`` returns an object that multiplies itself and lists its tensors."""

    def spmm(self, block: Any, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NO_EPILOGUE) -> None:
        if out.numel():
            block.multiply(x, out, accumulate, epilogue)

    def tensors(self, block: Any) -> list[Tensor]:
        return block.tensors()


@dataclass(frozen=True, eq=False)
class Prepared:
    """A block in the format of ``kernel``, for a ``BlockKernel`` that leaves the product to ``kernel``."""

    kernel: Kernel
    block: Any

    def multiply(self, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NO_EPILOGUE) -> None:
        self.kernel.spmm(self.block, x, out, accumulate, epilogue)

    def tensors(self) -> list[Tensor]:
        return self.kernel.tensors(self.block)
