"""Calls of compiled loops over rows of edges. Importing this module imports numba.

A loop processes a range of rows. It does not allocate the memory that it addresses by number: numba frees an array
after the last use of its name, whatever happens to its address.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.aligned import LINE_BYTES
from fullgnn.kernels.support.process import even_work, parallel_for

CHUNKS_PER_THREAD = 8
MIN_SHARED_EDGES = 1 << 13  # about 0.1 ms of work; for fewer edges, one thread: waking others costs as much
ROW_COST = 8  # cost of one more row, in edges


@dataclass(frozen=True)
class RowLoop:
    """A compiled loop, and the memory in which it keeps the numbers of a tile of edges."""

    function: Callable[..., None]
    bits: int
    scratch: int
    """Floats of ``bits`` bits."""

    def allocate(self) -> np.ndarray:
        """(scratch,) uninitialised floats from the beginning of a cache line on."""
        size = self.bits // 8
        memory = np.empty(self.scratch * size + LINE_BYTES, np.uint8)
        first = -memory.ctypes.data % LINE_BYTES
        return memory[first : first + self.scratch * size].view(f"float{self.bits}")


def over_rows(loop: RowLoop, edges: LocalCSR, *args: object) -> None:
    """Run ``loop`` over chunks of rows, about equal in work, in threads.

    Each call is ``loop.function(indptr, indices, first_row, stop_row, scratch, *args)``.

    Args:
        args: tensors, also those of tuples, are passed as the address of their first number.
    """
    passed = [tuple(map(_address, arg)) if isinstance(arg, tuple) else _address(arg) for arg in args]

    def with_scratch(starts: np.ndarray, ends: np.ndarray, first_row: int, stop_row: int) -> None:
        loop.function(starts, ends, first_row, stop_row, loop.allocate(), *passed)

    over_rows_of_arrays(with_scratch, edges)


def _address(arg: Any) -> Any:
    return arg.data_ptr() if isinstance(arg, Tensor) else arg


def over_rows_of_arrays(loop: Callable[..., None], edges: LocalCSR, *args: Any) -> None:
    """Call ``loop(indptr, indices, first_row, stop_row, *args)`` for chunks of rows, as ``over_rows`` does."""
    starts, ends, num_rows = edges.indptr.contiguous().numpy(), edges.indices.contiguous().numpy(), edges.num_rows
    num_threads = torch.get_num_threads() if edges.nnz >= MIN_SHARED_EDGES else 1
    num_chunks = min(num_threads * CHUNKS_PER_THREAD, max(1, num_rows)) if num_threads > 1 else 1
    bounds = even_work(starts, num_rows, ROW_COST, num_chunks)
    parallel_for(lambda rows: loop(starts, ends, *rows, *args), itertools.pairwise(bounds))
