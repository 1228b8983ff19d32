"""Blocks of an adjacency that are hard to multiply, on the GPU where there is one, and their products in float64.

In Triton's interpreter the blocks are tiny.
"""

import torch
from torch import Tensor

from fullgnn.graph.lookalikes import Lookalike, generate
from fullgnn.kernels.spmm import LocalCSR
from tests.triton_device import DEVICE

ON_GPU = DEVICE.type == "cuda"
_COLUMNS_AT_ONCE = 64


def ragged(weighted: bool = False) -> LocalCSR:
    """A block with rows of all lengths: every seventh and the last are empty, one is full, one corner is dense."""
    num_rows, num_cols = (1237, 1501) if ON_GPU else (45, 61)
    generator = seeded(0)
    mask = torch.rand(num_rows, num_cols, device=DEVICE, generator=generator) < 0.02
    corner = mask[: num_rows // 4, : num_cols // 4]
    corner |= torch.rand(corner.shape, device=DEVICE, generator=generator) < 0.6
    mask[3::7] = False
    mask[-1] = False
    mask[num_rows // 2] = True
    values = torch.randn(int(mask.sum()), device=DEVICE, generator=generator) if weighted else None
    return _from_mask(mask, values)


def thin() -> LocalCSR:
    """A block with fewer rows than any panel, and one entry in most rows."""
    mask = torch.zeros(5, 40 if ON_GPU else 3, dtype=torch.bool, device=DEVICE)
    mask[[0, 2, 4], [0, 1, 2]] = True
    return _from_mask(mask)


def many_columns() -> LocalCSR:
    """A block of a graph with communities, with more columns than two bytes can number."""
    graph = generate(Lookalike(70_001, 1_470_001, 0, 16, 0), 1.0, 0, DEVICE)
    return graph.csr(graph.perm)


def star(num_cols: int) -> LocalCSR:
    """One row with an edge to every column, and four rows with three edges each."""
    few = torch.tensor([0, num_cols // 2, num_cols - 1], dtype=torch.int32).repeat(4)
    indptr = torch.tensor([0, *(num_cols + 3 * row for row in range(5))], dtype=torch.int32)
    return _on_device(indptr, torch.cat([torch.arange(num_cols, dtype=torch.int32), few]), 5, num_cols)


def full(num_rows: int, num_cols: int) -> LocalCSR:
    """A block without zeros, whose panels hold all columns."""
    return corner(num_rows, num_cols, num_rows, num_cols)


def corner(num_rows: int, num_cols: int, height: int, width: int) -> LocalCSR:
    """A block whose last ``height`` rows have edges to the last ``width`` columns; the other rows are empty."""
    indptr = torch.zeros(num_rows + 1, dtype=torch.int32)
    indptr[-height:] = torch.arange(1, height + 1, dtype=torch.int32) * width
    indices = torch.arange(num_cols - width, num_cols, dtype=torch.int32).repeat(height)
    return _on_device(indptr, indices, num_rows, num_cols)


def exact(block: LocalCSR, x: Tensor) -> tuple[Tensor, Tensor]:
    """(num_rows, F) float64 A X and |A| |X|; errors are relative to the second."""
    return _product(block, block.values, x), _product(
        block, None if block.values is None else block.values.abs(), x.abs()
    )


def seeded(seed: int) -> torch.Generator:
    return torch.Generator(DEVICE).manual_seed(seed)


def _product(block: LocalCSR, values: Tensor | None, x: Tensor) -> Tensor:
    rows = torch.arange(block.num_rows, device=x.device)
    row = torch.repeat_interleave(rows, block.indptr.long().diff(), output_size=block.nnz)
    out = torch.zeros(block.num_rows, x.shape[1], dtype=torch.float64, device=x.device)
    for part in (slice(first, first + _COLUMNS_AT_ONCE) for first in range(0, x.shape[1], _COLUMNS_AT_ONCE)):
        addends = x[:, part].index_select(0, block.indices.long()).double()
        if values is not None:
            addends *= values.double()[:, None]
        out[:, part] = out[:, part].index_add(0, row, addends)
    return out


def _from_mask(mask: Tensor, values: Tensor | None = None) -> LocalCSR:
    row, column = mask.nonzero(as_tuple=True)
    indptr = torch.searchsorted(row, torch.arange(len(mask) + 1, device=mask.device))
    return LocalCSR(indptr.int(), column.int(), values, *mask.shape)


def _on_device(indptr: Tensor, indices: Tensor, num_rows: int, num_cols: int) -> LocalCSR:
    return LocalCSR(indptr.to(DEVICE), indices.to(DEVICE), None, num_rows, num_cols)
