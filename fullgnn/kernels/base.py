"""What a kernel multiplies and what it promises."""

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True, eq=False)
class LocalCSR:
    """One block of the adjacency, held by this rank, in compressed sparse rows.

    Shapes are local to the block; column ids count from the first column of the block.
    """

    indptr: Tensor  # (num_rows + 1,) int32
    indices: Tensor  # (nnz,) int32, sorted within a row
    values: Tensor  # (nnz,) float32 or float64
    num_rows: int
    num_cols: int

    @property
    def nnz(self) -> int:
        return self.indices.numel()


class Kernel(Protocol):
    """A way to multiply a ``LocalCSR`` by a dense matrix."""

    def prepare(self, adj: LocalCSR) -> Any:
        """Turn a non-empty block into whatever ``spmm`` wants, once."""

    def spmm(self, block: Any, x: Tensor, out: Tensor, accumulate: bool) -> None:
        """Write ``block @ x`` into ``out``, or add it to what ``out`` holds.

        Args:
            block: what ``prepare`` returned for a (num_rows, num_cols) block.
            x: (num_cols, F), contiguous.
            out: (num_rows, F), contiguous; its contents are ignored unless ``accumulate``.
        """
